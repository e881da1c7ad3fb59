"""Trials as prime-rl's training samples, and back. Follows `TrainingSample` of both generations.

    since 2026    token_ids, mask, logprobs, temperatures: all four over the whole chunk
    before        prompt_ids, prompt_mask, completion_ids, completion_mask, completion_logprobs,
                  completion_temperatures

One sample per chunk, as keywords: `TrainingSample(**sample)`. Advantages are the orchestrator's to
give: add `advantages` where your version's sample wants them.
"""

from typing import Any

import numpy as np

from t1_tito.trial import Trial

from ._fields import field, list_in, mask_array, refused, same_lengths
from .rows import Row, responses_of, row_of_parts, row_of_whole

__all__ = ["LOSSY", "from_training_sample", "to_split_samples", "to_training_samples"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("source_turn, source_index, kind", "no such fields; the audit recovers them from the turns"),
    ("boundaries", "no such field"),
    ("chunks without loss", "they train nothing and make no sample"),
    ("finish_reason", "no such field"),
    ("version_sent, version_received", "no such fields"),
    ("trial", "no such field; samples of one trial are told by their order"),
)
"""What of a trial a sample does not hold, and why."""


def to_training_samples(
    trial: Trial, *, env_name: str, temperature: float, reward: float | None = None
) -> list[dict[str, Any]]:
    """The samples of a trial, one per chunk that has loss.

    Args:
        trial: the trial.
        env_name: name of its environment.
        temperature: temperature that all of its tokens were sampled at.
        reward: reward of the trial, given to every sample.

    Raises:
        AdapterError: the trial has no loss.
    """
    samples: list[dict[str, Any]] = []
    for response in responses_of(trial):
        prompt = len(response.prompt_ids)
        samples.append(
            {
                "token_ids": response.prompt_ids + response.response_ids,
                "mask": [False] * prompt + list(map(bool, response.response_mask)),
                "logprobs": [0.0] * prompt + response.response_logprobs,
                "temperatures": [temperature] * (prompt + len(response.response_ids)),
                "env_name": env_name,
                "reward": reward,
            }
        )
    return samples


def to_split_samples(
    trial: Trial, *, temperature: float, reward: float | None = None
) -> list[dict[str, Any]]:
    """The samples of a trial in the earlier form, in two parts; as `to_training_samples`.

    Raises:
        AdapterError: the trial has no loss.
    """
    return [
        {
            "prompt_ids": response.prompt_ids,
            "prompt_mask": [False] * len(response.prompt_ids),
            "completion_ids": response.response_ids,
            "completion_mask": list(map(bool, response.response_mask)),
            "completion_logprobs": response.response_logprobs,
            "completion_temperatures": [temperature] * len(response.response_ids),
            "reward": reward,
        }
        for response in responses_of(trial)
    ]


def from_training_sample(sample: object) -> Row:
    """The row of a sample of either form.

    Raises:
        AdapterError: a list is missing, lists differ in length, or a prompt carries loss.
    """
    where, advice = "training sample", "expected a TrainingSample"
    if field(sample, "token_ids") is not None:
        whole = [(name, list_in(sample, name, where, advice)) for name in _WHOLE]
        return row_of_whole(where, *whole)
    prompt, ids, mask, logprobs = ((name, list_in(sample, name, where, advice)) for name in _SPLIT)
    prompt_mask = list_in(sample, "prompt_mask", where, advice)
    same_lengths(where, dict([prompt, ("prompt_mask", prompt_mask)]))
    prompt_loss = mask_array(where, "prompt_mask", prompt_mask)
    if prompt_loss.any():
        raise refused(
            where,
            "prompt_mask has loss, on tokens without log-probabilities",
            field="prompt_mask",
            position=int(np.argmax(prompt_loss)),
        )
    return row_of_parts(where, prompt, ids, mask, logprobs)


_WHOLE = ("token_ids", "mask", "logprobs")
_SPLIT = ("prompt_ids", "completion_ids", "completion_mask", "completion_logprobs")
