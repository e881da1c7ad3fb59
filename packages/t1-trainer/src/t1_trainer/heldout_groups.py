"""Which families, habits and lengths of held-out tasks moved, and which did not.

A task belongs to the group of each family and each habit skill that one of its subgoals has, and to
the group of its length; groups overlap. Whether an attempt resolved its task is known of the whole
task, so a group's rate is that of whole tasks which contain it, and a group can move because of what
stands beside it. Every interval is of the paired difference, with the task as the unit, and stands
alone: nothing is corrected for the number of groups.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from t1_eval import Interval
from t1_reward.synthesis import habit_skills
from t1_trainer.evaluation import Evaluation, Scores, paired
from t1_trainer.rollout.messages import Attempt

__all__ = ["MOVED", "NOT_SHOWN", "by_verdict", "heldout_groups", "named_groups", "verdict"]

MOVED = "moved"
NOT_SHOWN = "not shown to move"

# five tasks that all change the same way are no evidence at 95 % (two-sided sign test: p = 1/16)
_FEWEST_TASKS = 6
_HABITS = frozenset(habit_skills())

Groups = dict[str, dict[str, dict[str, Any]]]


def heldout_groups(before: Evaluation, after: Evaluation) -> dict[str, Groups]:
    """Per decoding and kind ("family", "habit", "length"), each group's change in resolved rate.

    Returns:
        decoding -> kind -> name -> `tasks` valid on both sides, their valid attempts
        (`attempts_before`, `attempts_after`), rates `before` and `after` (means of the tasks'
        means, so `change` is their difference), `change` with its 95 % interval, `verdict`.
    """
    return {
        decoding: _groups(before, after, decoding)
        for decoding in before.attempts
        if decoding in after.attempts
    }


def named_groups(
    kinds: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Kind, name for people and content of every group of one decoding."""
    for kind, groups in kinds.items():
        for name, group in groups.items():
            yield kind, f"length {name}" if kind == "length" else name, group


def by_verdict(
    kinds: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> tuple[list[str], list[str]]:
    """Names for people of the groups that moved, with their change in points, and of the others."""
    groups = [(name, group) for _, name, group in named_groups(kinds)]
    return (
        [f"{n} {100 * g['change']['mean']:+.0f}" for n, g in groups if g["verdict"] == MOVED],
        [name for name, group in groups if group["verdict"] != MOVED],
    )


def verdict(change: Interval) -> str:
    """`MOVED` where the 95 % interval excludes 0 and enough tasks stand behind it."""
    excludes_zero = change.low > 0 or change.high < 0
    return MOVED if excludes_zero and change.tasks >= _FEWEST_TASKS else NOT_SHOWN


def _groups(before: Evaluation, after: Evaluation, decoding: str) -> Groups:
    sides = before.scores(decoding, "resolved"), after.scores(decoding, "resolved")
    tasks = {a.task_id: a for a in before.attempts[decoding] if a.task_id in sides[0]}
    members: dict[str, Callable[[Attempt], set[Any]]] = {
        "family": lambda task: set(task.families),
        "habit": lambda task: set(task.skills) & _HABITS,
        "length": lambda task: {task.length},
    }
    return {
        kind: {str(name): _group(*sides, ids) for name, ids in _members(tasks, of).items()}
        for kind, of in members.items()
    }


def _members(
    tasks: Mapping[str, Attempt], of: Callable[[Attempt], set[Any]]
) -> dict[Any, list[str]]:
    """Group name to task ids, in order of name."""
    members: dict[Any, list[str]] = {}
    for task_id, task in tasks.items():
        for name in of(task):
            members.setdefault(name, []).append(task_id)
    return dict(sorted(members.items()))


def _group(before: Scores, after: Scores, ids: list[str]) -> dict[str, Any]:
    both = [task for task in ids if task in after]
    if not both:
        return {"tasks": 0, "verdict": NOT_SHOWN}
    change = paired({t: before[t] for t in both}, {t: after[t] for t in both})
    return {
        "tasks": len(both),
        "attempts_before": sum(len(before[task]) for task in both),
        "attempts_after": sum(len(after[task]) for task in both),
        "before": float(np.mean([np.mean(before[task]) for task in both])),
        "after": float(np.mean([np.mean(after[task]) for task in both])),
        "change": asdict(change),
        "verdict": verdict(change),
    }
