"""A linear scale: numbers to positions, and where its ticks are.

Positions are rounded to a tenth of a unit of the drawing. A number beyond the scale's ends lies at
the end; a scale never has equal ends.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Scale", "spanning", "ticks"]


@dataclass(frozen=True)
class Scale:
    """From [low, high] to [start, end].

    Attributes:
        low: number at `start`.
        high: number at `end`; greater than `low`.
        start: position of `low`.
        end: position of `high`; may be the smaller one, as y grows downwards in a drawing.
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Position of a number."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers (1, 2 or 5 times a power of ten apart) within [low, high]."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    spacing = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / spacing - 1e-9)
    last = math.floor(high / spacing + 1e-9)
    # adding zero turns -0.0 into 0.0
    return [round(n * spacing, 12) + 0.0 for n in range(first, last + 1)]


def spanning(values: Sequence[float], *, include: Sequence[float] = ()) -> tuple[float, float]:
    """Ends of a scale that holds all values with a little air; 0 is an end where they touch it.

    Args:
        values: finite numbers, at least one.
        include: further numbers to hold, without air.
    """
    low, high = min([*values, *include]), max([*values, *include])
    air = (high - low) * 0.06 or abs(high) * 0.1 or 0.5
    below = low if low in include else (max(low - air, 0.0) if low >= 0 else low - air)
    above = high if high in include and high > below else high + air
    return below, above
