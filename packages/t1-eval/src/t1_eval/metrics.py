"""Rates and differences with intervals that respect the task as the unit of sampling.

    m_t = mean of task t's attempts        mean = mean of m_t        half = 1.96 · sd(m_t) / √tasks

Attempts at one task are not independent, so the interval is computed over per-task means
(clusters). A difference pairs the same task before and after. The quantile is the normal one: with
fewer than about 30 tasks the interval is somewhat too narrow. Invalid attempts have no score; leave
them out and report how many there were.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from t1_eval.errors import ScoresError

__all__ = ["Interval", "mean_with_interval", "paired_difference"]

_NORMAL_975 = 1.959963984540054


@dataclass(frozen=True)
class Interval:
    """A mean and its 95 % interval.

    Attributes:
        mean: mean over tasks.
        low: lower end; NaN for fewer than two tasks.
        high: upper end; NaN for fewer than two tasks.
        tasks: number of tasks.
    """

    mean: float
    low: float
    high: float
    tasks: int


def mean_with_interval(scores: Mapping[str, Sequence[float]]) -> Interval:
    """Mean over tasks of the mean over attempts.

    Args:
        scores: per task id, one score per attempt; tasks may differ in their number of attempts.

    Raises:
        ScoresError: no task, a task without attempts, or a score that is not finite.
    """
    return _interval(_task_means(scores))


def paired_difference(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> Interval:
    """Mean over tasks of (after - before), tasks paired by id.

    Raises:
        ScoresError: the two sides do not hold the same tasks, or a side is as
            `mean_with_interval` refuses it.
    """
    odd = sorted(before.keys() ^ after.keys())
    if odd:
        raise ScoresError(f"{len(odd)} tasks are on one side only, first {odd[:3]}; drop them")
    paired = {task: after[task] for task in before}
    return _interval(_task_means(paired) - _task_means(before))


def _task_means(scores: Mapping[str, Sequence[float]]) -> NDArray[np.float64]:
    """Mean per task, float64 [tasks], in the mapping's order."""
    if not scores:
        raise ScoresError("expected at least one task, got none")
    for task, attempts in scores.items():
        if not len(attempts) or not np.isfinite(attempts).all():
            raise ScoresError(
                f"task {task!r}: expected one finite score per attempt and at least one attempt, "
                f"got {list(attempts)}; leave invalid attempts out"
            )
    return np.array([np.mean(attempts) for attempts in scores.values()], np.float64)


def _interval(means: NDArray[np.float64]) -> Interval:
    mean, tasks = float(means.mean()), len(means)
    if tasks < 2:
        return Interval(mean, math.nan, math.nan, tasks)
    half = _NORMAL_975 * float(means.std(ddof=1)) / math.sqrt(tasks)
    return Interval(mean, mean - half, mean + half, tasks)
