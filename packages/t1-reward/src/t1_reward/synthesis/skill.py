"""What one subgoal consists of, and what a skill is: a way of drawing subgoals.

A skill's function draws a `Draft`; the skill stamps its name on it and it becomes a `Subgoal`.
Invariants of every subgoal, checked by tests against a real shell:
  - every assertion fails in the initial state and passes after the good steps;
  - the habit, if there is one, fails most of the assertions; so does leaving the subgoal out;
  - each step's predicted output and exit code are what bash gives in the work directory;
  - commands use only words that the instruction or an earlier output has shown.
A subgoal does not know which other subgoals stand beside it in a task: names never overlap.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from t1_reward.synthesis.condition import Condition
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.state import Entry

__all__ = ["NO_SUCH_FILE", "Draft", "Skill", "Step", "Subgoal", "skill"]

# how coreutils end a message about a missing file, the quote after its name included
NO_SUCH_FILE = "': No such file or directory"


class Step(NamedTuple):
    """One command with what the terminal shows.

    Attributes:
        command: what is typed.
        output: stdout and stderr merged, without the final newline; None when nothing is shown
            because the session ends (`exit`).
        exit_code: the command's exit code.
    """

    command: str
    output: str | None = ""
    exit_code: int = 0


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A drawn subgoal that no skill has signed yet.

    Attributes:
        instruction: what to do, in words.
        state: entries of the initial state.
        good: steps that meet every assertion.
        slip: a plausible wrong version of the last good step, fit to follow the steps before it.
        assertions: label to condition; at least two.
        habit: the way it is often done wrongly; empty if there is none.
        fix: the habit followed by what repairs it; empty if there is none.
        values: modes and numbers that occur in it, as text.
    """

    instruction: str
    state: tuple[Entry, ...]
    good: tuple[Step, ...]
    slip: Step
    assertions: Mapping[str, Condition]
    habit: tuple[Step, ...] = ()
    fix: tuple[Step, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Subgoal(Draft):
    """A subgoal of a task: a draft with the names of its skill and family."""

    skill: str
    family: str


@dataclass(frozen=True)
class Skill:
    """A named way of drawing subgoals.

    Attributes:
        id: for people, for example "make-symlink".
        family: the group of skills it belongs to.
        pieces: phrases and command heads of its language, each fit to be one token.
        draft: draws a subgoal.
    """

    id: str
    family: str
    pieces: tuple[str, ...]
    draft: Callable[[Draw], Draft] = field(repr=False)

    def draw(self, draw: Draw) -> Subgoal:
        """Returns a new subgoal of this skill."""
        return Subgoal(skill=self.id, family=self.family, **vars(self.draft(draw)))


def skill(
    id: str, *, family: str, pieces: tuple[str, ...]
) -> Callable[[Callable[[Draw], Draft]], Skill]:
    """Returns a decorator that makes a drawing function a skill."""
    return lambda draft: Skill(id, family, pieces, draft)
