"""Trials as samples of slime and miles, and back. Follows `Sample` of both as of mid 2026.

One sample per chunk, as a mapping for `Sample.from_dict`:

    tokens             the whole chunk
    response_length    R, its tokens from the first sampled one on; the last R of `tokens`
    loss_mask          R numbers 0 or 1
    rollout_log_probs  R numbers, 0.0 where the mask is 0
    status             "completed", "truncated" or "aborted", of the chunk's last turn
    weight_versions    the version of each of its turns, as text
    rollout_id         shared by the chunks of one trial, which share its reward

slime averages the loss within one `rollout_id` before it averages over rollouts; without it, a trial
of four chunks counts four times. miles reads a row's `rollout_id` as an attribute it does not use.
"""

from collections.abc import Mapping
from typing import Any

from t1_tito.errors import AdapterError
from t1_tito.trial import Trial
from t1_tito.turn import FinishReason

from ._fields import Values, field, list_in, number_in, refused
from .rows import Row, responses_of, row_of_parts

__all__ = ["LOSSY", "from_sample", "to_samples"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("source_turn, source_index, kind", "no such fields; the audit recovers them from the turns"),
    ("boundaries", "no such field"),
    ("chunks without loss", "they train nothing and make no sample"),
    ("prompt, response", "text; decode tokens where a reward function reads it"),
    ("version_sent", "weight_versions holds one version per turn, that of the reply"),
)
"""What of a trial a sample does not hold, and why."""

_STATUS = {
    FinishReason.STOP: "completed",
    FinishReason.LENGTH: "truncated",
    FinishReason.ABORT: "aborted",
}


def to_samples(
    trial: Trial,
    *,
    reward: float | Mapping[str, Any] | None = None,
    index: int | None = None,
    group_index: int | None = None,
    rollout_id: int | None = None,
) -> list[dict[str, Any]]:
    """The samples of a trial, one per chunk that has loss.

    Args:
        trial: the trial.
        reward: reward of the trial, given to every sample.
        index: index of the rollout that the trial is.
        group_index: index of its prompt's group.
        rollout_id: what its samples share; `index` where left out.

    Raises:
        AdapterError: the trial has no loss, or several chunks and nothing that they share.
    """
    responses = responses_of(trial)
    shared = index if rollout_id is None else rollout_id
    if len(responses) > 1 and shared is None:
        raise AdapterError(
            f"{len(responses)} chunks of one trial need a rollout_id (or index) to share, or the "
            "trial is counted once per chunk",
            field="rollout_id",
        )
    return [
        {
            "group_index": group_index,
            "index": index,
            "rollout_id": shared,
            "tokens": response.prompt_ids + response.response_ids,
            "response_length": len(response.response_ids),
            "reward": reward,
            "loss_mask": response.response_mask,
            "weight_versions": [str(turn.version_received) for turn in response.turns],
            "rollout_log_probs": response.response_logprobs,
            "status": _STATUS[response.finish_reason],
        }
        for response in responses
    ]


def from_sample(sample: object) -> Row:
    """The row of a sample, with its prompt back in the mask.

    A sample without a loss mask trains its whole response, and one with `remove_sample` nothing, as
    in slime.

    Raises:
        AdapterError: response_length, loss_mask, rollout_log_probs and tokens disagree.
    """
    where = f"sample {field(sample, 'index')}"
    tokens = list_in(sample, "tokens", where, "expected a Sample")
    length = number_in(sample, "response_length", where)
    if length is None or not 0 <= length <= len(tokens):
        raise refused(
            where, f"response_length is {length}, tokens has {len(tokens)}", field="response_length"
        )
    mask = _of_length(where, sample, "loss_mask", length)
    logprobs = _of_length(where, sample, "rollout_log_probs", length)
    if field(sample, "remove_sample"):
        mask = [0] * length
    start = len(tokens) - length
    return row_of_parts(
        where,
        ("tokens", tokens[:start]),
        ("tokens", tokens[start:]),
        ("loss_mask", [1] * length if mask is None else mask),
        None if logprobs is None else ("rollout_log_probs", logprobs),
    )


def _of_length(where: str, sample: object, name: str, length: int) -> Values | None:
    """A list that covers the response; None where the sample lacks it."""
    if field(sample, name) is None:
        return None
    values = list_in(sample, name, where, "expected a Sample")
    if len(values) != length:
        problem = f"{name} has {len(values)}, response_length is {length}"
        raise refused(where, problem, field=name)
    return values
