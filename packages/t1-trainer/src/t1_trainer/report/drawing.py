"""Inline SVG: elements, axes with ticks, and columns that show their numbers when pointed at.

Everything is built as an XML tree, so that a drawing is well-formed and text from a run is escaped.
Colours and fonts are classes of the page's style sheet: `s0` .. `s6` are series, in this order.
"""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from t1_trainer.report.scale import Scale, ticks

__all__ = [
    "Frame",
    "add",
    "add_column",
    "add_x_axis",
    "add_y_axis",
    "drawing",
    "number",
    "text_of",
]

Attribute = str | float


@dataclass(frozen=True)
class Frame:
    """Size of a drawing and margins around its plot, in units of the drawing."""

    width: int = 440
    height: int = 220
    left: int = 52
    right: int = 10
    top: int = 20
    bottom: int = 36

    def x(self, low: float, high: float) -> Scale:
        """Horizontal scale of the plot."""
        return Scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Scale:
        """Vertical scale of the plot."""
        return Scale(low, high, self.height - self.bottom, self.top)


def add(parent: ET.Element, tag: str, text: str = "", **attributes: Attribute) -> ET.Element:
    """A new child; `class_` stands for class and `_` for a hyphen."""
    names = {name.rstrip("_").replace("_", "-"): str(value) for name, value in attributes.items()}
    child = ET.SubElement(parent, tag, names)
    child.text = text or None
    return child


def drawing(frame: Frame, label: str) -> ET.Element:
    """An empty drawing; `label` says in words what it shows."""
    return ET.Element(
        "svg",
        {"viewBox": f"0 0 {frame.width} {frame.height}", "role": "img", "aria-label": label},
    )


def text_of(root: ET.Element) -> str:
    """The drawing as text for the page."""
    return ET.tostring(root, encoding="unicode")


def number(value: float, *, percent: bool = False) -> str:
    """Four significant digits; as a percentage if wanted."""
    return f"{100 * value:.3g} %" if percent else f"{value:.4g}"


def add_y_axis(
    root: ET.Element, frame: Frame, scale: Scale, unit: str, *, percent: bool, count: int
) -> None:
    """Ticks with grid lines, and the unit above."""
    right = frame.width - frame.right
    for value in ticks(scale.low, scale.high, count):
        y = scale(value)
        add(root, "path", class_="grid", d=f"M{frame.left},{y} H{right}")
        shown = f"{100 * value:.6g}" if percent else f"{value:.6g}"
        add(root, "text", shown, x=frame.left - 5, y=y + 4, class_="end")
    if unit:
        add(root, "text", unit, x=4, y=12, class_="unit")


def add_x_axis(
    root: ET.Element, frame: Frame, scale: Scale, unit: str, *, whole: bool, count: int
) -> None:
    """The base line, ticks and the unit below; only whole numbers if `whole`."""
    bottom, right = frame.height - frame.bottom, frame.width - frame.right
    add(root, "path", class_="axis", d=f"M{frame.left},{bottom} H{right}")
    for value in ticks(scale.low, scale.high, count):
        if whole and value != int(value):
            continue
        x = scale(value)
        add(root, "path", class_="axis", d=f"M{x},{bottom} v4")
        add(root, "text", f"{value:.6g}", x=x, y=bottom + 16, class_="middle")
    add(root, "text", unit, x=right, y=frame.height - 4, class_="end unit")


def add_column(root: ET.Element, frame: Frame, x: float, width: float, text: str) -> None:
    """An invisible column that shows `text` when pointed at."""
    column = add(
        root,
        "rect",
        class_="column",
        x=round(x - width / 2, 1),
        y=frame.top,
        width=round(width, 1),
        height=frame.height - frame.top - frame.bottom,
    )
    add(column, "title", text)
