"""Series of numbers over the steps of a run, exactly as `metrics.jsonl` has them.

A number that a step did not record is None. Smoothing is for the eye: it is drawn beside the
recorded numbers and never replaces them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Measure", "Series", "read", "smoothed", "smoothing_window"]


@dataclass(frozen=True)
class Measure:
    """What to read from each record.

    Attributes:
        label: for people.
        key: of the record.
        per: key of what it is divided by, if anything.
    """

    label: str
    key: str
    per: str | None = None


@dataclass(frozen=True)
class Series:
    """One number a step; `values[i]` belongs to `steps[i]`."""

    label: str
    steps: tuple[int, ...]
    values: tuple[float | None, ...]

    @property
    def measured(self) -> list[float]:
        """The numbers there are."""
        return [value for value in self.values if value is not None]


def read(records: Sequence[Mapping[str, Any]], measure: Measure) -> Series:
    """The measure's number in every record."""
    return Series(
        measure.label,
        tuple(record["step"] for record in records),
        tuple(_value(record, measure) for record in records),
    )


def _value(record: Mapping[str, Any], measure: Measure) -> float | None:
    value = record.get(measure.key)
    if value is None or measure.per is None:
        return value
    base = record.get(measure.per)
    return value / base if base else None


def smoothing_window(steps: int) -> int:
    """Odd number of neighbouring steps a smoothed line averages; 1 where a run is short."""
    return 2 * (steps // 16) + 1


def smoothed(series: Series, window: int) -> Series:
    """Mean of the numbers in a centred window, which is cut off at the ends of the run."""
    reach = window // 2
    values = tuple(
        None if value is None else _mean(series.values[max(0, i - reach) : i + reach + 1])
        for i, value in enumerate(series.values)
    )
    return Series(series.label, series.steps, values)


def _mean(values: Sequence[float | None]) -> float:
    there = [value for value in values if value is not None]
    return sum(there) / len(there)
