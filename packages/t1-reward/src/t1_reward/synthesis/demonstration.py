"""Demonstrations for supervised training, flawed on purpose.

A demonstration is a list of steps ending with `exit`, rendered without running anything. Each
subgoal is done, independently,
  - the habitual wrong way with probability `habit_rate`, or wrong and then repaired with
    probability `fix_rate`, if its skill has such a way; else the right way;
  - and is sabotaged with probability `sabotage_rate`: left out (half of the time), stopped before
    its last step (a quarter), or given its slip as the last step (a quarter; half when it has one
    step only). A habit is wrong already: its last step is never replaced.

A policy trained on them knows every command and often decides wrongly: what reinforcement learning
can repair. The predicted outputs stay what bash prints, flawed or not.
"""

from typing import Protocol

from t1_reward.synthesis.compose import SynthesizedTask
from t1_reward.synthesis.skill import Step, Subgoal

__all__ = ["EXIT", "UniformSource", "build_demonstration"]

EXIT = Step("exit", None)


class UniformSource(Protocol):
    """Anything with `random()`: a `random.Random`, a numpy generator, a `t1_reward.Stream`."""

    def random(self) -> float:
        """Returns a float in [0, 1)."""
        ...


def build_demonstration(
    task: SynthesizedTask,
    random: UniformSource,
    habit_rate: float = 0.6,
    sabotage_rate: float = 0.15,
    fix_rate: float = 0.1,
) -> list[Step]:
    """Returns the steps of one demonstration; the last one is `exit` with output None.

    Args:
        task: a generated task.
        random: where the randomness comes from.
        habit_rate: probability of the habit where a skill has one.
        sabotage_rate: probability that a subgoal is sabotaged.
        fix_rate: probability of the habit followed by its repair where a skill has one.
    """
    steps: list[Step] = []
    for subgoal in task.subgoals:
        way = _choose_way(subgoal, random.random(), habit_rate, fix_rate)
        if random.random() < sabotage_rate:
            way = _sabotage(subgoal, way, random.random())
        steps += way
    return [*steps, EXIT]


def _choose_way(
    subgoal: Subgoal, ticket: float, habit_rate: float, fix_rate: float
) -> tuple[Step, ...]:
    if subgoal.habit and ticket < habit_rate:
        return subgoal.habit
    if subgoal.fix and ticket < habit_rate + fix_rate:
        return subgoal.fix
    return subgoal.good


def _sabotage(subgoal: Subgoal, way: tuple[Step, ...], ticket: float) -> tuple[Step, ...]:
    if ticket < 0.5:
        return ()
    if ticket < 0.75 and len(way) > 1:
        return way[:-1]
    return way if way == subgoal.habit else (*way[:-1], subgoal.slip)
