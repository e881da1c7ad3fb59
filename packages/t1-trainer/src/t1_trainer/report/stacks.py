"""Stacked bars: one bar a step, whose parts add up to a recorded whole."""

from collections.abc import Sequence

from t1_trainer.report.drawing import (
    Frame,
    add,
    add_column,
    add_x_axis,
    add_y_axis,
    drawing,
    number,
    text_of,
)
from t1_trainer.report.series import Series

__all__ = ["remainder", "stack_chart"]

_FRAME = Frame()


def remainder(whole: Series, parts: Sequence[Series], label: str) -> Series:
    """What of the whole no part accounts for; None where the whole was not measured."""
    values = tuple(
        None if total is None else total - sum(part.values[i] or 0.0 for part in parts)
        for i, total in enumerate(whole.values)
    )
    return Series(label, whole.steps, values)


def stack_chart(parts: Sequence[Series], label: str, unit: str) -> str:
    """An SVG element, or "" where nothing was measured.

    Args:
        parts: over the same steps, from the bottom up; the n-th has class `s<n>`. What is missing
            or below zero has no height.
        label: what the chart shows, in words.
        unit: of the y axis.
    """
    if not any(part.measured for part in parts):
        return ""
    steps = parts[0].steps
    heights = [[max(part.values[i] or 0.0, 0.0) for part in parts] for i in range(len(steps))]
    highest = max(map(sum, heights)) or 1.0
    x, y = _FRAME.x(steps[0] - 0.5, steps[-1] + 0.5), _FRAME.y(0.0, highest * 1.05)
    root = drawing(_FRAME, label)
    add_y_axis(root, _FRAME, y, unit, percent=False, count=6)
    pitch = (_FRAME.width - _FRAME.left - _FRAME.right) / (steps[-1] - steps[0] + 1)
    for step, bar in zip(steps, heights, strict=True):
        base = 0.0
        for n, height in enumerate(bar):
            top, bottom = y(base + height), y(base)
            base += height
            if bottom > top:
                add(
                    root,
                    "rect",
                    class_=f"part s{n}",
                    x=round(x(step) - 0.42 * pitch, 1),
                    y=top,
                    width=round(0.84 * pitch, 1),
                    height=round(bottom - top, 1),
                )
    add_x_axis(root, _FRAME, x, "step", whole=True, count=8)
    for i, step in enumerate(steps):
        lines = [
            f"{part.label}: {number(value)} {unit}"
            for part in reversed(parts)
            if (value := part.values[i]) is not None
        ]
        add_column(root, _FRAME, x(step), pitch, "\n".join([f"step {step}", *lines]))
    return text_of(root)
