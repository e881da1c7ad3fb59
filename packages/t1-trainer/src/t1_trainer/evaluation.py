"""Held-out evaluation: sampled attempts and a greedy one per task, and what changed.

Differences pair the same tasks before and after; their intervals treat the task as the unit.
Attempts that infrastructure failed are left out of the rates and counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from t1_eval import Interval, mean_with_interval, paired_difference
from t1_trainer.config import EvaluationConfig
from t1_trainer.errors import RolloutFailed
from t1_trainer.rollout.client import RolloutClient
from t1_trainer.rollout.messages import Attempt, Evaluate

__all__ = ["Evaluation", "Scores", "compare", "evaluate", "paired"]

Scores = dict[str, list[float]]
"""Task id to the values of its valid attempts."""

_ATTEMPTS = TypeAdapter(dict[str, list[Attempt]])


@dataclass(frozen=True)
class Evaluation:
    """All attempts of one evaluation, by decoding ("sampled", "greedy").

    Raises:
        RolloutFailed: no attempt of a decoding has a verdict.
    """

    attempts: Mapping[str, Sequence[Attempt]]

    def __post_init__(self) -> None:
        """Refuse what has no rate."""
        for decoding, attempts in self.attempts.items():
            if not self._valid(decoding):
                raise RolloutFailed(
                    f"{decoding}: no attempt has a verdict; first cause: {attempts[0].cause}"
                )

    def scores(self, decoding: str, field: str) -> Scores:
        """Per task id, the valid attempts' values of `resolved`, `reward` or `turns`."""
        scores: Scores = {}
        for attempt in self._valid(decoding):
            scores.setdefault(attempt.task_id, []).append(float(getattr(attempt, field)))
        return scores

    def invalid(self, decoding: str) -> int:
        """Attempts without a reward."""
        return sum(attempt.reward is None for attempt in self.attempts[decoding])

    def _valid(self, decoding: str) -> list[Attempt]:
        return [attempt for attempt in self.attempts[decoding] if attempt.reward is not None]

    def summary(self) -> dict[str, Any]:
        """Rates with intervals, by decoding."""
        return {
            decoding: {
                "resolved": asdict(mean_with_interval(self.scores(decoding, "resolved"))),
                "reward": asdict(mean_with_interval(self.scores(decoding, "reward"))),
                "turns_mean": float(np.mean([a.turns for a in self._valid(decoding)])),
                "resolved_by_length": self._by_length(decoding),
                "attempts": len(self.attempts[decoding]),
                "invalid": self.invalid(decoding),
            }
            for decoding in self.attempts
        }

    def _by_length(self, decoding: str) -> dict[str, float]:
        valid = self._valid(decoding)
        lengths = sorted({attempt.length for attempt in valid})
        return {
            str(length): float(np.mean([a.resolved for a in valid if a.length == length]))
            for length in lengths
        }

    def to_json(self) -> dict[str, Any]:
        """Summary and every attempt; `from_json` reads it back."""
        attempts = {name: [asdict(a) for a in group] for name, group in self.attempts.items()}
        return {"schema_version": 1, "summary": self.summary(), "attempts": attempts}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Evaluation":
        """Inverse of `to_json`."""
        return cls(_ATTEMPTS.validate_python(content["attempts"]))


def evaluate(
    rollout: RolloutClient, task_ids: Sequence[str], config: EvaluationConfig, name: str
) -> Evaluation:
    """Evaluate the served weights.

    Raises:
        RolloutFailed: no attempt of a decoding has a verdict.
    """
    decodings = {
        "sampled": (config.attempts, config.temperature),
        "greedy": (int(config.greedy), 0.0),
    }
    results: dict[str, list[Attempt]] = {}
    for decoding, (attempts, temperature) in decodings.items():
        if attempts:
            wanted = Evaluate(f"eval-{name}-{decoding}", tuple(task_ids), attempts, temperature)
            results[decoding] = rollout.call(wanted)
    return Evaluation(results)


def compare(before: Evaluation, after: Evaluation) -> dict[str, dict[str, Interval]]:
    """Paired differences of resolved rate, reward and turns, by decoding, over tasks valid in both."""
    return {
        decoding: {
            field: paired(before.scores(decoding, field), after.scores(decoding, field))
            for field in ("resolved", "reward", "turns")
        }
        for decoding in before.attempts
        if decoding in after.attempts
    }


def paired(before: Scores, after: Scores) -> Interval:
    """Mean difference over the tasks that have valid attempts on both sides."""
    # in a fixed order: a sum of floats depends on it
    both = sorted(before.keys() & after.keys())
    return paired_difference({t: before[t] for t in both}, {t: after[t] for t in both})
