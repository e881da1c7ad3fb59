"""The closing words of a run or an evaluation."""

from pathlib import Path
from typing import Any

from t1_trainer.heldout_groups import by_verdict

__all__ = ["evaluation_text", "summary_text"]


def summary_text(summary: dict[str, Any], run: Path) -> str:
    """A few lines a person reads first."""
    lines = [f"{summary['steps']} steps in {summary['seconds'] / 60:.1f} min"]
    for decoding, change in summary["heldout_change"].items():
        before = summary["heldout_before"][decoding]
        after = summary["heldout_after"][decoding]
        lines.append(
            f"held-out resolved, {decoding:<7} {before['resolved']['mean']:.1%} -> "
            f"{after['resolved']['mean']:.1%}  change {_interval(change['resolved'], 100)} points"
        )
        lines.append(
            f"held-out reward,   {decoding:<7} {before['reward']['mean']:.3f} -> "
            f"{after['reward']['mean']:.3f}  change {_interval(change['reward'], 1, 3)}"
        )
    lines += [
        (
            f"training reward {summary['training_reward_first']:.3f} -> "
            f"{summary['training_reward_last']:.3f}; explained variance "
            f"{_signed(summary['explained_variance_first'])} -> "
            f"{_signed(summary['explained_variance_last'])}"
        ),
        f"turns per held-out trial {_turns(summary)}",
        *_movements(summary["heldout_groups"]),
        (
            f"|log p| gap with replay {_number(summary['gap_logprob_replay'])}, "
            f"without {_number(summary['gap_logprob_free'])}"
        ),
        (
            f"{summary['cancelled_trials']} trials cancelled by oversampling, "
            f"{summary['invalid_trials']} invalid"
        ),
        f"admitted share by family and length: {_shares(summary['retention'])}",
        f"everything is in {run} (open {run / 'report.html'}); evaluate again with: t1 eval {run}",
    ]
    return "\n".join(lines)


def evaluation_text(result: dict[str, Any]) -> str:
    """A few lines about one evaluation."""
    by_length = ", ".join(
        f"length {length} {rate:.1%}" for length, rate in result["resolved_by_length"].items()
    )
    return "\n".join(
        (
            (
                f"{result['resolved']['tasks']} held-out tasks, {result['attempts']} attempts of "
                f"agent {result['agent']}, {result['invalid']} invalid"
            ),
            f"resolved {_rate(result['resolved'])}: {by_length}",
            f"reward {_rate(result['reward'], 1, 3, '')}",
            f"turns per trial {result['turns_mean']:.1f}",
        )
    )


def _rate(value: dict[str, float], scale: float = 100, digits: int = 1, unit: str = " %") -> str:
    mean, low, high = (value[k] * scale for k in ("mean", "low", "high"))
    return f"{mean:.{digits}f}{unit} (95 % interval {low:.{digits}f} to {high:.{digits}f})"


def _interval(value: dict[str, float], scale: float, digits: int = 1) -> str:
    mean, low, high = (value[k] * scale for k in ("mean", "low", "high"))
    return f"{mean:+.{digits}f} (95 % interval {low:+.{digits}f} to {high:+.{digits}f})"


def _number(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.5f}"


def _signed(value: float | None) -> str:
    # a batch whose returns are all equal has no explained variance
    return "undefined" if value is None else f"{value:+.2f}"


def _shares(retention: dict[str, dict[str, int]]) -> str:
    return ", ".join(
        f"{name} {kept['admitted'] / kept['launched']:.0%}" for name, kept in retention.items()
    )


def _movements(groups: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """One line about the first decoding, which has the most attempts; the report has the others."""
    if not groups:
        return []
    decoding, kinds = next(iter(groups.items()))
    moved, others = by_verdict(kinds)
    return [
        (
            f"moved, {decoding}, in points: {', '.join(moved) or 'none'}; "
            f"not shown to move: {', '.join(others) or 'none'}"
        )
    ]


def _turns(summary: dict[str, Any]) -> str:
    parts = [
        f"{decoding} {summary['heldout_before'][decoding]['turns_mean']:.1f} -> "
        f"{summary['heldout_after'][decoding]['turns_mean']:.1f}"
        for decoding in summary["heldout_change"]
    ]
    return ", ".join(parts)
