"""What a run gained, in numbers: the content of `summary.json`."""

from dataclasses import asdict
from typing import Any

from t1_trainer.evaluation import Evaluation, compare
from t1_trainer.heldout_groups import heldout_groups
from t1_trainer.run_directory import RunDirectory

__all__ = ["run_summary"]


def run_summary(
    run: RunDirectory, before: Evaluation, after: Evaluation, seconds: float
) -> dict[str, Any]:
    """Both evaluations, what changed between them, and what the steps recorded.

    Args:
        run: its `metrics.jsonl` and `tasks.jsonl` are read.
        before: held-out evaluation of the policy the run started from.
        after: of the trained one.
        seconds: wall seconds of the session that ends the run.
    """
    steps = run.lines("metrics.jsonl")
    change = {
        decoding: {field: asdict(interval) for field, interval in fields.items()}
        for decoding, fields in compare(before, after).items()
    }
    tenth = max(1, len(steps) // 10)
    return {
        "schema_version": 1,
        "steps": len(steps),
        "seconds": seconds,
        "heldout_before": before.summary(),
        "heldout_after": after.summary(),
        "heldout_change": change,
        "heldout_groups": heldout_groups(before, after),
        "training_reward_first": _mean(steps[:tenth], "reward/mean"),
        "training_reward_last": _mean(steps[-tenth:], "reward/mean"),
        "explained_variance_first": _mean(steps[:tenth], "critic/explained_variance"),
        "explained_variance_last": _mean(steps[-tenth:], "critic/explained_variance"),
        "gap_logprob_replay": _mean(steps, "gap/logprob_replay"),
        "gap_logprob_free": _mean(steps, "gap/logprob_free"),
        "cancelled_trials": sum(line["rollout/cancelled"] for line in steps),
        "invalid_trials": sum(line["rollout/invalid"] for line in steps),
        "retention": _retention(run),
    }


def _retention(run: RunDirectory) -> dict[str, dict[str, int]]:
    """Launched and admitted trials of the whole run, by family and by length."""
    counts: dict[str, dict[str, int]] = {}
    for line in run.lines("tasks.jsonl"):
        for name, kept in line["retention"].items():
            count = counts.setdefault(name, {"launched": 0, "admitted": 0})
            count["launched"] += kept["launched"]
            count["admitted"] += kept["admitted"]
    return dict(sorted(counts.items()))


def _mean(lines: list[dict[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return sum(values) / len(values) if values else None
