"""The result of a run in words and as intervals: held-out rates, and which groups moved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from t1_eval import Interval
from t1_trainer.heldout_groups import MOVED, by_verdict, named_groups, verdict
from t1_trainer.report.forest import Row, forest, interval_text

__all__ = ["Outcome", "headlines", "heldout_picture", "movements"]

Summary = Mapping[str, Any]
_KINDS = {"family": "Family", "habit": "Habit", "length": "Length"}


@dataclass(frozen=True)
class Outcome:
    """What moved under one decoding.

    Attributes:
        moved: group name with its change.
        not_shown: names of the other groups.
        svg: every group's change as an interval.
        rows: kind, name and content of every group, for the table.
    """

    moved: list[str]
    not_shown: list[str]
    svg: str
    rows: list[tuple[str, str, Mapping[str, Any]]]


def headlines(summary: Summary) -> list[str]:
    """One sentence per decoding."""
    return [
        _headline(decoding, summary, change["resolved"])
        for decoding, change in summary["heldout_change"].items()
    ]


def _headline(decoding: str, summary: Summary, change: Mapping[str, Any]) -> str:
    before, after = (
        100 * summary[side][decoding]["resolved"]["mean"]
        for side in ("heldout_before", "heldout_after")
    )
    return (
        f"Held-out tasks resolved, {decoding}: {before:.1f} % before training, {after:.1f} % after; "
        f"paired change {interval_text(change, 'points')}: {_reading(change)}."
    )


def _reading(change: Mapping[str, Any]) -> str:
    if verdict(Interval(**_without_none(change))) != MOVED:
        return "no change is shown"
    return "a rise" if change["mean"] > 0 else "a fall"


def _without_none(interval: Mapping[str, Any]) -> dict[str, Any]:
    """An end that JSON could not write is not a number."""
    return {k: float("nan") if interval[k] is None else interval[k] for k in interval}


def heldout_picture(summary: Summary) -> str:
    """Rates before and after with their intervals, as SVG."""
    rows = [
        Row(f"{decoding}, {word}", summary[side][decoding]["resolved"], shade, filled)
        for decoding in summary["heldout_change"]
        for side, word, shade, filled in (
            ("heldout_before", "before", 6, False),
            ("heldout_after", "after", 0, True),
        )
    ]
    return forest(rows, "Held-out resolved rate before and after", "%", hold=(0, 1), signed=False)


def movements(summary: Summary) -> dict[str, Outcome]:
    """What moved, by decoding; nothing for a summary without groups."""
    return {
        decoding: _outcome(kinds, decoding)
        for decoding, kinds in summary.get("heldout_groups", {}).items()
    }


def _outcome(kinds: Mapping[str, Mapping[str, Mapping[str, Any]]], decoding: str) -> Outcome:
    moved, not_shown = by_verdict(kinds)
    measured = [group for group in named_groups(kinds) if group[2]["tasks"]]
    rows: list[Row] = []
    for kind, heading in _KINDS.items():
        members = [(name, group) for k, name, group in measured if k == kind]
        rows += [Row(heading)] if members else []
        rows += [
            Row(name, group["change"], *((0, True) if group["verdict"] == MOVED else (6, False)))
            for name, group in members
        ]
    return Outcome(
        moved=moved,
        not_shown=not_shown,
        svg=forest(rows, f"Change by group, {decoding}", "points", hold=(0,)) if rows else "",
        rows=measured,
    )
