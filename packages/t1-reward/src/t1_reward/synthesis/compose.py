"""Tasks composed of one to five subgoals, from a seed.

The number of subgoals is drawn first, with the same weights in both splits; then the skills, all
equally likely, again and again until they lie on the split's side; then each skill draws its subgoal
with names no other subgoal uses. A training task holds no reserved pair of skills, in whatever order
and however far apart; a held-out task of two or more subgoals holds at least one. Redrawing changes
neither the mix of lengths nor that of skills: the reserved pairs treat all skills alike. Seed and
split determine the task, on every machine and Python version.
"""

from dataclasses import dataclass
from functools import cached_property

from t1_reward.errors import SynthesisError
from t1_reward.manifest import TaskManifest
from t1_reward.stream import Stream
from t1_reward.synthesis.catalogue import SKILLS, has_reserved_pair
from t1_reward.synthesis.condition import Condition
from t1_reward.synthesis.draw import Draw, Split
from t1_reward.synthesis.script import render_solution, render_test
from t1_reward.synthesis.skill import Skill, Step, Subgoal
from t1_reward.synthesis.state import pack_state
from t1_reward.task import Task

__all__ = ["GENERATOR_VERSION", "LENGTH_WEIGHTS", "SynthesizedTask", "generate_task"]

# raised whenever a seed gives other files than before: what was made by one version is not to be
# taken for what another one makes
GENERATOR_VERSION = 2

# of one, two, ... subgoals
LENGTH_WEIGHTS = (4, 6, 6, 3, 1)

_AGENT_TIMEOUT_S = 60.0
_VERIFIER_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class SynthesizedTask:
    """A task with the structure it was made from.

    Attributes:
        id: unique within the generator, for example "train-000042".
        seed: what it was generated from, together with the split.
        split: training or held out.
        subgoals: in the order of the instruction; they do not depend on each other.
    """

    id: str
    seed: int
    split: Split
    subgoals: tuple[Subgoal, ...]

    @property
    def instruction(self) -> str:
        """What the agent is told."""
        return "; ".join(subgoal.instruction for subgoal in self.subgoals)

    @property
    def skills(self) -> tuple[str, ...]:
        """The skill of each subgoal."""
        return tuple(subgoal.skill for subgoal in self.subgoals)

    @property
    def families(self) -> tuple[str, ...]:
        """The family of each subgoal."""
        return tuple(subgoal.family for subgoal in self.subgoals)

    @property
    def conditions(self) -> dict[str, Condition]:
        """Assertion id to condition, subgoal by subgoal."""
        return {
            f"{place}-{subgoal.skill}-{label}": condition
            for place, subgoal in enumerate(self.subgoals, start=1)
            for label, condition in subgoal.assertions.items()
        }

    @property
    def reference(self) -> tuple[Step, ...]:
        """Steps that meet every assertion."""
        return tuple(step for subgoal in self.subgoals for step in subgoal.good)

    @cached_property
    def task(self) -> Task:
        """The task as files, ready to be written or run."""
        conditions = self.conditions
        return Task.create(
            self.id,
            instruction=self.instruction,
            state=pack_state(entry for subgoal in self.subgoals for entry in subgoal.state),
            test=render_test(conditions),
            solution=render_solution([step.command for step in self.reference]),
            manifest=self._manifest(tuple(conditions)),
        )

    def _manifest(self, assertions: tuple[str, ...]) -> TaskManifest:
        return TaskManifest.model_validate(
            {
                "schema_version": "1.2",
                "task": {"name": f"t1/{self.id}"},
                "metadata": {
                    "families": self.families,
                    "skills": self.skills,
                    "split": self.split.value,
                    "length": len(self.subgoals),
                    "assertions": assertions,
                },
                "agent": {"timeout_sec": _AGENT_TIMEOUT_S},
                "verifier": {"timeout_sec": _VERIFIER_TIMEOUT_S},
                "environment": {"workdir": "/app"},
            }
        )


def generate_task(seed: int, split: Split | str) -> SynthesizedTask:
    """Returns the task of a seed.

    Args:
        seed: any integer.
        split: "train" or "heldout".

    Raises:
        SynthesisError: the split is neither.
    """
    if split not in tuple(Split):
        raise SynthesisError(f"split: expected one of {', '.join(Split)}, got {split!r}")
    split = Split(split)
    stream = Stream("t1-reward/task/1", split.value, seed)
    length = 1 + stream.weighted(LENGTH_WEIGHTS)
    skills = _draw_skills(stream, split, length)
    draw = Draw(stream, split)
    subgoals = tuple(skill.draw(draw) for skill in skills)
    return SynthesizedTask(f"{split.value}-{seed:06d}", seed, split, subgoals)


def _draw_skills(stream: Stream, split: Split, length: int) -> list[Skill]:
    # one skill alone is no composition: both splits have it
    wanted = split is Split.HELDOUT and length > 1
    while True:
        skills = [stream.choice(SKILLS) for _ in range(length)]
        if has_reserved_pair(skills) is wanted:
            return skills
