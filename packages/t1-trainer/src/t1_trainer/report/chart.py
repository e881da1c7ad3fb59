"""Line charts as inline SVG."""

import math
from collections.abc import Mapping, Sequence

__all__ = ["line_chart"]

_WIDTH, _HEIGHT = 460, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 30
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700", "#8250df")
Point = tuple[float, float]


def line_chart(series: Mapping[str, Sequence[Point]], x_label: str) -> str:
    """An SVG element with one line per series, axes from the data, and a legend.

    Args:
        series: name to points (x, y) in x order; points with a NaN are left out.
        x_label: name of the x axis.
    """
    kept = {
        name: [p for p in points if math.isfinite(p[0]) and math.isfinite(p[1])]
        for name, points in series.items()
    }
    points = [p for group in kept.values() for p in group]
    if not points:
        return "<p>no data</p>"
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    y_low, y_high = _span([y for _, y in points])

    def place(point: Point) -> str:
        x = _LEFT + (point[0] - x_low) / ((x_high - x_low) or 1) * (_WIDTH - _LEFT - _RIGHT)
        y = _HEIGHT - _BOTTOM - (point[1] - y_low) / (y_high - y_low) * (_HEIGHT - _TOP - _BOTTOM)
        return f"{x:.1f},{y:.1f}"

    parts = [_frame(x_low, x_high, y_low, y_high, x_label)]
    for number, (name, group) in enumerate(kept.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        path = " ".join(place(p) for p in group)
        parts.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{path}"/>'
        )
        parts.append(
            f'<text x="{_LEFT + 8}" y="{_TOP + 12 + 14 * number}" fill="{colour}">{name}</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(parts)}</svg>'


def _span(values: Sequence[float]) -> Point:
    """A little below the least value and above the greatest; not below 0 where no value is."""
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or max(abs(high) * 0.05, 0.5)
    return max(low - margin, 0.0) if low >= 0 else low - margin, high + margin


def _frame(x_low: float, x_high: float, y_low: float, y_high: float, x_label: str) -> str:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    middle = (y_low + y_high) / 2
    return (
        f'<path d="M{_LEFT},{_TOP} V{bottom} H{right}" fill="none" stroke="#888"/>'
        f'<text x="{_LEFT - 4}" y="{bottom}" text-anchor="end">{y_low:.3g}</text>'
        f'<text x="{_LEFT - 4}" y="{(bottom + _TOP) / 2:.0f}" text-anchor="end">{middle:.3g}</text>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 10}" text-anchor="end">{y_high:.3g}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{x_label} {x_low:.0f}</text>'
        f'<text x="{right}" y="{_HEIGHT - 8}" text-anchor="end">{x_high:.0f}</text>'
    )
