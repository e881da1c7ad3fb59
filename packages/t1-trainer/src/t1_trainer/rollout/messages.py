"""What the trainer and the rollout process say to each other.

Requests go one at a time; each is answered by `Done` or `Failed`, with `Progress` in between.
Weights travel as numpy arrays. Both ends are processes of one run on one machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t1_trainer.samples import Sample

__all__ = [
    "Attempt",
    "Close",
    "Collect",
    "Collected",
    "Commit",
    "Discard",
    "Done",
    "Evaluate",
    "Failed",
    "InvalidTrial",
    "LoadWeights",
    "Progress",
    "Retention",
]


@dataclass(frozen=True)
class LoadWeights:
    """Stage weights for `version`; answered with their digest. Nothing serves them yet."""

    version: int
    weights: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Commit:
    """Serve the staged weights from now on."""

    version: int


@dataclass(frozen=True)
class Discard:
    """Forget staged weights, if any."""


@dataclass(frozen=True)
class Collect:
    """Launch trials, admit the first `target` to complete, cancel the rest."""

    step: int
    task_ids: tuple[str, ...]
    target: int


@dataclass(frozen=True)
class Evaluate:
    """Run attempts at tasks under the served weights."""

    name: str
    task_ids: tuple[str, ...]
    attempts: int
    temperature: float
    agent: str = "policy"
    """`policy`, `oracle` or `noop`."""


@dataclass(frozen=True)
class Close:
    """Delete all sandboxes and end."""


@dataclass(frozen=True)
class Progress:
    """Where the running request stands."""

    phase: str
    finished: int
    total: int
    sandboxes: int
    sampled_tokens: int


@dataclass(frozen=True)
class InvalidTrial:
    """A trial without a reward, and why."""

    task_id: str
    cause: str


@dataclass(frozen=True)
class Retention:
    """How many of a family's (or length's) launched trials were admitted."""

    launched: int
    admitted: int


@dataclass(frozen=True)
class Collected:
    """An admitted batch and what became of the other launched trials.

    Attributes:
        samples: of the admitted trials with a reward, in admission order.
        admitted: task ids in admission order, those without a reward included.
        cancelled: task ids cancelled because the batch was full.
        invalid: admitted without a verdict, or failed by infrastructure.
        retention: per family and per length ("length 3").
        seconds: wall seconds of the rollout.
        cpu_seconds: CPU seconds of the rollout process, its sandboxes not included.
        statistics: what engine and sandboxes did meanwhile, cancelled trials included.
    """

    samples: tuple[Sample, ...]
    admitted: tuple[str, ...]
    cancelled: tuple[str, ...]
    invalid: tuple[InvalidTrial, ...]
    retention: Mapping[str, Retention]
    seconds: float
    cpu_seconds: float
    statistics: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True)
class Attempt:
    """One evaluated attempt; `reward` is None where infrastructure failed (`cause` says why).

    `families` and `skills` are those of the task's subgoals; attempts of older evaluations on disk
    have no skills.
    """

    task_id: str
    families: tuple[str, ...]
    length: int
    reward: float | None
    resolved: bool
    turns: int
    cause: str = ""
    skills: tuple[str, ...] = ()


@dataclass(frozen=True)
class Done:
    """The request's answer."""

    answer: Any


@dataclass(frozen=True)
class Failed:
    """The request could not be carried out; the message is for people."""

    message: str
