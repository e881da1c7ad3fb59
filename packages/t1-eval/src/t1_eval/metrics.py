"""Rates and differences with intervals that respect the task as the unit of sampling.

Attempts at one task are not independent: every interval here is computed over per-task means
(clusters), with the normal 95 % quantile. A difference pairs the same tasks before and after.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Interval", "mean_with_interval", "paired_difference"]

_NORMAL_975 = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval; `low` and `high` are NaN for fewer than two tasks."""

    mean: float
    low: float
    high: float
    tasks: int

    def __str__(self) -> str:
        """As percentages."""
        return f"{self.mean:+.1%} [{self.low:+.1%}, {self.high:+.1%}]"


def mean_with_interval(scores: Mapping[str, Sequence[float]]) -> Interval:
    """Mean over tasks of the mean over attempts.

    Args:
        scores: per task id, one score per attempt.

    Raises:
        ValueError: no task, or a task without attempts.
    """
    return _interval(_task_means(scores))


def paired_difference(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> Interval:
    """Mean over tasks of (after - before), tasks paired by id.

    Raises:
        ValueError: the two sides do not hold the same tasks, or a task has no attempts.
    """
    if before.keys() != after.keys():
        odd = sorted(before.keys() ^ after.keys())[:3]
        raise ValueError(f"both sides need the same tasks; only one side has {odd}")
    ordered = sorted(before)
    difference = _task_means({t: after[t] for t in ordered}) - _task_means(
        {t: before[t] for t in ordered}
    )
    return _interval(difference)


def _task_means(scores: Mapping[str, Sequence[float]]) -> np.ndarray:
    empty = [task for task, attempts in scores.items() if not len(attempts)]
    if empty or not scores:
        raise ValueError(
            f"every task needs at least one attempt; without: {empty[:3] or 'no task'}"
        )
    return np.asarray([float(np.mean(attempts)) for attempts in scores.values()])


def _interval(means: np.ndarray) -> Interval:
    mean = float(means.mean())
    if len(means) < 2:
        return Interval(mean, math.nan, math.nan, len(means))
    half = _NORMAL_975 * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Interval(mean, mean - half, mean + half, len(means))
