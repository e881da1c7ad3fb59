"""Intervals as bars: one row each, its mean as a dot, a line at zero."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t1_trainer.report.drawing import Frame, add, add_x_axis, drawing, text_of
from t1_trainer.report.scale import spanning, ticks

__all__ = ["Row", "forest", "interval_text"]

_ROW_HEIGHT = 18
_LABELS = 118
_TICKS = 8


@dataclass(frozen=True)
class Row:
    """One interval, or a heading where there is none.

    Attributes:
        label: left of it.
        interval: `mean`, `low`, `high`; the ends may be missing, then only the dot is drawn.
        shade: number of its colour.
        filled: whether its dot is.
    """

    label: str
    interval: Mapping[str, Any] | None = None
    shade: int = 0
    filled: bool = True


def forest(
    rows: Sequence[Row], label: str, unit: str, *, hold: Sequence[float], signed: bool = True
) -> str:
    """An SVG element; numbers are multiplied by 100.

    Args:
        rows: from top to bottom.
        label: what it shows, in words.
        unit: of the x axis, of the multiplied numbers.
        hold: numbers the x axis holds whatever the rows are, not multiplied.
        signed: whether numbers are shown with their sign, as changes are.
    """
    frame = Frame(height=len(rows) * _ROW_HEIGHT + 44, left=_LABELS, right=14, top=6)
    numbers = [value for row in rows for value in _numbers(row.interval)]
    low, high = spanning([100 * value for value in numbers], include=[100 * h for h in hold])
    x = frame.x(low, high)
    root = drawing(frame, label)
    bottom = frame.height - frame.bottom
    for value in ticks(low, high, _TICKS):
        kind = "grid" if value else "zero"
        add(root, "path", class_=kind, d=f"M{x(value)},{frame.top} V{bottom}")
    add_x_axis(root, frame, x, unit, whole=False, count=_TICKS)
    for place, row in enumerate(rows):
        y = frame.top + (place + 0.5) * _ROW_HEIGHT
        if row.interval is None:
            add(root, "text", row.label, x=4, y=y + 4, class_="heading")
            continue
        group = add(root, "g", class_=f"s{row.shade}")
        add(group, "title", f"{row.label}: {interval_text(row.interval, unit, signed=signed)}")
        add(
            group,
            "rect",
            class_="column",
            x=0,
            y=y - _ROW_HEIGHT / 2,
            width=frame.width,
            height=_ROW_HEIGHT,
        )
        add(group, "text", row.label, x=_LABELS - 8, y=y + 4, class_="end")
        mean, *ends = (x(100 * value) for value in _numbers(row.interval))
        if ends:
            d = f"M{ends[0]},{y} H{ends[1]} M{ends[0]},{y - 4} v8 M{ends[1]},{y - 4} v8"
            add(group, "path", class_="whisker", d=d)
        kind = "dot" if row.filled else "dot hollow"
        add(group, "circle", class_=kind, cx=mean, cy=y, r=4)
    return text_of(root)


def interval_text(interval: Mapping[str, Any], unit: str, *, signed: bool = True) -> str:
    """Mean and ends for people, multiplied by 100; says where there are no ends."""
    mean, *ends = (100 * value for value in _numbers(interval))
    sign = "+" if signed else ""
    if not ends:
        return f"{mean:{sign}.1f} {unit} (one task: no interval)"
    return f"{mean:{sign}.1f} ({ends[0]:{sign}.1f} to {ends[1]:{sign}.1f}) {unit}"


def _numbers(interval: Mapping[str, Any] | None) -> list[float]:
    """Mean, low, high; the mean alone where there are no ends; none of a heading."""
    if interval is None:
        return []
    low, high = interval["low"], interval["high"]
    ends = [] if low is None or math.isnan(low) else [low, high]
    return [interval["mean"], *ends]
