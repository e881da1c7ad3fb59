"""Trials as rows of TRL, and back. Follows TRL 1.16.

TrainingSequence   of experimental.async_grpo: input_ids, completion_mask, old_log_probs, all
                   over the whole chunk, and rollout_id
rollout_func       of GRPOTrainer: columns prompt_ids, completion_ids, logprobs and env_mask,
                   one row per prompt, so that a trial of several chunks has no place there
"""

from collections.abc import Sequence
from typing import Any

from t1_tito.errors import AdapterError
from t1_tito.trial import Trial

from ._fields import field, list_in, refused, same_lengths
from .rows import Row, responses_of, row_of_parts, row_of_whole

__all__ = [
    "LOSSY",
    "from_rollout_output",
    "from_training_sequence",
    "to_rollout_output",
    "to_training_sequences",
]

LOSSY: tuple[tuple[str, str], ...] = (
    ("source_turn, source_index, kind", "no such fields; the audit recovers them from the turns"),
    ("boundaries", "no such field"),
    ("chunks without loss", "they train nothing and make no row"),
    ("finish_reason", "no such field; TRL looks for a stop token at the row's end"),
    ("version_sent, version_received", "no such fields"),
    ("reward", "no such field; TRL's reward functions give it"),
)
"""What of a trial a row does not hold, and why."""


def to_training_sequences(trial: Trial, *, rollout_id: Any) -> list[dict[str, Any]]:
    """The training sequences of a trial, one per chunk that has loss.

    Args:
        trial: the trial.
        rollout_id: what its sequences share.

    Raises:
        AdapterError: the trial has no loss.
    """
    rows: list[dict[str, Any]] = []
    for response in responses_of(trial):
        prompt = len(response.prompt_ids)
        rows.append(
            {
                "input_ids": response.prompt_ids + response.response_ids,
                "completion_mask": [0] * prompt + response.response_mask,
                "old_log_probs": [0.0] * prompt + response.response_logprobs,
                "rollout_id": rollout_id,
            }
        )
    return rows


def from_training_sequence(sequence: object) -> Row:
    """The row of a training sequence.

    Raises:
        AdapterError: a list is missing, or lists differ in length.
    """
    where, advice = "training sequence", "expected a TrainingSequence"
    names = ("input_ids", "completion_mask", "old_log_probs")
    return row_of_whole(where, *((name, list_in(sequence, name, where, advice)) for name in names))


def to_rollout_output(trials: Sequence[Trial]) -> dict[str, Any]:
    """What a `rollout_func` returns for a batch of trials, one per prompt.

    Raises:
        AdapterError: a trial has no loss, or more than one row; it names the trial.
    """
    output: dict[str, Any] = {name: [] for name in _COLUMNS}
    for index, trial in enumerate(trials):
        try:
            responses = responses_of(trial)
        except AdapterError as error:
            raise refused(f"trial {index}", str(error)) from error
        if len(responses) > 1:
            raise refused(
                f"trial {index}",
                f"{len(responses)} chunks, but rollout_func returns one row per "
                "prompt; train it with to_training_sequences",
            )
        (response,) = responses
        row = (
            response.prompt_ids,
            response.response_ids,
            response.response_logprobs,
            response.response_mask,
        )
        for name, value in zip(_COLUMNS, row, strict=True):
            output[name].append(value)
    return output


_COLUMNS = ("prompt_ids", "completion_ids", "logprobs", "env_mask")


def from_rollout_output(output: object) -> list[Row]:
    """The rows of what a `rollout_func` returned; without `env_mask` a whole completion trains.

    Raises:
        AdapterError: columns differ in length, or lists of one row do; it names the row.
    """
    where, advice = "rollout output", "expected the mapping that rollout_func returns"
    columns = {name: list_in(output, name, where, advice) for name in _COLUMNS[:3]}
    masks = field(output, "env_mask")
    if masks is None:
        masks = [[1] * len(ids) for ids in columns["completion_ids"]]
    columns["env_mask"] = masks
    same_lengths(where, columns)
    rows: list[Row] = []
    for index, lists in enumerate(zip(*columns.values(), strict=True)):
        prompt, ids, logprobs, mask = zip(columns, lists, strict=True)
        rows.append(row_of_parts(f"row {index}", prompt, ids, mask, logprobs))
    return rows
