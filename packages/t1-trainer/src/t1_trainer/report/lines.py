"""Line charts over steps: each series as recorded, and smoothed where the run is long enough."""

import xml.etree.ElementTree as ET
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
from t1_trainer.report.scale import Scale, spanning
from t1_trainer.report.series import Series, smoothed, smoothing_window

__all__ = ["line_chart"]

_PLAIN = Frame()


def line_chart(
    all_series: Sequence[Series],
    label: str,
    unit: str,
    *,
    frame: Frame = _PLAIN,
    percent: bool = False,
    hold: Sequence[float] = (),
    least: float | None = None,
    y_ticks: int = 6,
) -> str:
    """An SVG element, or "" where nothing was measured.

    Args:
        all_series: over the same steps; the n-th has class `s<n>`, measured or not.
        label: what the chart shows, in words.
        unit: of the y axis.
        frame: size and margins.
        percent: whether shares are shown as percentages.
        hold: numbers the y axis holds whatever the data; if 0 is one, a line is drawn there.
        least: where the y axis ends below, for numbers that may fall without bound; below what
            `hold` has.
        y_ticks: about how many ticks the y axis has.
    """
    drawn = [(n, series) for n, series in enumerate(all_series) if series.measured]
    if not drawn:
        return ""
    steps = drawn[0][1].steps
    low, high = spanning([v for _, series in drawn for v in series.measured], include=hold)
    low = low if least is None else max(low, least)
    x, y = frame.x(steps[0] - 0.5, steps[-1] + 0.5), frame.y(low, high)
    root = drawing(frame, label)
    add_y_axis(root, frame, y, unit, percent=percent, count=y_ticks)
    if 0 in hold:
        add(root, "path", class_="zero", d=f"M{frame.left},{y(0)} H{frame.width - frame.right}")
    add_x_axis(root, frame, x, "step", whole=True, count=8 if frame.width > 300 else 4)
    window = smoothing_window(len(steps))
    for n, series in drawn:
        kind = "raw" if window > 1 else "smooth"
        add(root, "path", class_=f"line {kind} s{n}", d=_path(series, x, y))
        if window > 1:
            path = _path(smoothed(series, window), x, y)
            add(root, "path", class_=f"line smooth s{n}", d=path)
    _add_columns(root, frame, x, [series for _, series in drawn], percent=percent)
    return text_of(root)


def _add_columns(
    root: ET.Element, frame: Frame, x: Scale, drawn: Sequence[Series], *, percent: bool
) -> None:
    pitch = (x.end - x.start) / (x.high - x.low)
    for i, step in enumerate(drawn[0].steps):
        lines = [
            f"{series.label}: {number(value, percent=percent)}"
            for series in drawn
            if (value := series.values[i]) is not None
        ]
        add_column(root, frame, x(step), pitch, "\n".join([f"step {step}", *lines]))


def _path(series: Series, x: Scale, y: Scale) -> str:
    """A line through the numbers there are; a lone number is a short dash."""
    points = [
        (x(step), y(value))
        for step, value in zip(series.steps, series.values, strict=True)
        if value is not None
    ]
    if len(points) == 1:
        ((left, top),) = points
        return f"M{left - 4:.1f},{top} h8"
    return "M" + " L".join(f"{left},{top}" for left, top in points)
