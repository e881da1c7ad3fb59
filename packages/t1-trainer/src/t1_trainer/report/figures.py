"""Figures of the page: a drawing with its legend, and the numbers it was made from.

The numbers are those of the records, exactly: each is the `value` of a `<data>` element whose text
is rounded for people.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t1_trainer.report.catalogue import LAUNCHED, SECTIONS, STEP_PARTS, STEP_WHOLE, Chart
from t1_trainer.report.drawing import Frame
from t1_trainer.report.lines import line_chart
from t1_trainer.report.series import Measure, Series, read
from t1_trainer.report.stacks import remainder, stack_chart

__all__ = ["Figure", "retention_figures", "sections"]

Records = Sequence[Mapping[str, Any]]
_SMALL = Frame(width=220, height=120, left=36, right=8, top=8, bottom=34)


@dataclass(frozen=True)
class Figure:
    """What the page shows of one chart; `svg` is "" where nothing was measured."""

    title: str
    note: str
    svg: str
    series: Sequence[Series]
    filled: bool = False

    @property
    def rows(self) -> list[tuple[int, list[float | None]]]:
        """Step and number of each measured series."""
        columns = [series for series in self.series if series.measured]
        steps = columns[0].steps if columns else ()
        return [(step, [c.values[i] for c in columns]) for i, step in enumerate(steps)]


def sections(records: Records, launched: int) -> dict[str, list[Figure]]:
    """Section title to figures.

    Args:
        records: lines of `metrics.jsonl`.
        launched: trials launched a step.
    """
    extended = [{**record, LAUNCHED: launched} for record in records]
    figures = {
        title: [_figure(extended, chart) for chart in charts] for title, charts in SECTIONS.items()
    }
    figures["Time"].insert(0, _step_time(extended))
    return figures


def retention_figures(
    records: Records, retention: Mapping[str, Mapping[str, int]]
) -> dict[str, list[Figure]]:
    """Small charts of the admitted share of launched trials, by family and by length.

    Args:
        records: lines of `metrics.jsonl`.
        retention: group name to `launched` and `admitted` of the whole run.
    """
    groups: dict[str, list[Figure]] = {"By family": [], "By length": []}
    for name, count in retention.items():
        series = read(records, Measure(name, f"retention/{name}"))
        share = count["admitted"] / count["launched"]
        note = f"{share:.0%} of {count['launched']} launched"
        svg = line_chart(
            [series], f"{name}: {note}", "", frame=_SMALL, percent=True, hold=(0, 1), y_ticks=2
        )
        kind = "By length" if name.startswith("length ") else "By family"
        groups[kind].append(Figure(name, note, svg, [series]))
    return {kind: figures for kind, figures in groups.items() if figures}


def _figure(records: Records, chart: Chart) -> Figure:
    series = [read(records, measure) for measure in chart.measures]
    svg = line_chart(
        series,
        chart.title,
        chart.unit,
        percent=chart.percent,
        hold=chart.hold,
        least=chart.least,
    )
    return Figure(chart.title, chart.note, svg, series)


def _step_time(records: Records) -> Figure:
    parts = [read(records, measure) for measure in STEP_PARTS]
    parts.append(remainder(read(records, STEP_WHOLE), parts, "rest of the step"))
    note = "Wall seconds of each step in the trainer's process; bars add up to the whole step."
    svg = stack_chart(parts, "Where a step's time goes", "s")
    return Figure("Where a step's time goes", note, svg, parts, filled=True)
