"""Trials as SkyRL's generator output, and back. Follows SkyRL 0.3 (`GeneratorOutput`).

The output has columns, one entry per row; every chunk is a row. Rows of one trial stand together,
share its trajectory id and reward, and the last one has `is_last_step`, as in step-wise training,
where SkyRL takes the advantage from the last row of a trajectory and gives it to all of its rows.

    prompt_token_ids, response_ids, loss_masks, rollout_logprobs    lists per row
    rewards, stop_reasons, trajectory_ids, is_last_step             one value per row
"""

from collections.abc import Sequence
from typing import Any

from t1_tito.errors import AdapterError
from t1_tito.trial import Trial
from t1_tito.turn import FinishReason

from ._fields import field, list_in, refused, same_lengths
from .rows import Row, responses_of, row_of_parts

__all__ = ["LOSSY", "from_generator_output", "to_generator_output"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("source_turn, source_index, kind", "no such columns; the audit recovers them from the turns"),
    ("boundaries", "no such column"),
    ("chunks without loss", "they train nothing and make no row"),
    ("version_sent, version_received", "no such columns"),
    ("rollout_expert_indices", "a payload: gather it by turn with t1_tito.gather"),
)
"""What of a trial the output does not hold, and why."""

_STOP_REASONS = {
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
    FinishReason.ABORT: "abort",
}


def to_generator_output(
    trials: Sequence[Trial], *, rewards: Sequence[float], trajectory_ids: Sequence[Any]
) -> dict[str, Any]:
    """The generator output of a batch of trials.

    Args:
        trials: the trials, in the order of the generator's input.
        rewards: one reward per trial, given to all of its rows.
        trajectory_ids: one `TrajectoryID` per trial, given to all of its rows.

    Raises:
        AdapterError: the lists differ in length, or a trial has no loss; it names the trial.
    """
    same_lengths("batch", {"trials": trials, "rewards": rewards, "trajectory_ids": trajectory_ids})
    output: dict[str, Any] = {name: [] for name in _COLUMNS}
    for index, trial in enumerate(trials):
        try:
            responses = responses_of(trial)
        except AdapterError as error:
            raise refused(f"trial {index}", str(error)) from error
        for response in responses:
            row = (
                response.prompt_ids,
                response.response_ids,
                response.response_mask,
                response.response_logprobs,
                rewards[index],
                _STOP_REASONS[response.finish_reason],
                trajectory_ids[index],
                response is responses[-1],
            )
            for name, value in zip(_COLUMNS, row, strict=True):
                output[name].append(value)
    return {**output, "rollout_metrics": None, "rollout_expert_indices": None}


_COLUMNS = (
    "prompt_token_ids",
    "response_ids",
    "loss_masks",
    "rollout_logprobs",
    "rewards",
    "stop_reasons",
    "trajectory_ids",
    "is_last_step",
)


def from_generator_output(output: object) -> list[Row]:
    """The rows of a generator output, with their prompts in the mask.

    Raises:
        AdapterError: columns differ in length, or lists of one row do; it names the row.
    """
    where, advice = "generator output", "expected a GeneratorOutput"
    names = ("prompt_token_ids", "response_ids", "loss_masks")
    columns = {name: list_in(output, name, where, advice) for name in names}
    if field(output, "rollout_logprobs") is not None:
        columns["rollout_logprobs"] = list_in(output, "rollout_logprobs", where, advice)
    same_lengths(where, columns)
    return [
        _row(f"row {index}", dict(zip(columns, lists, strict=True)))
        for index, lists in enumerate(zip(*columns.values(), strict=True))
    ]


def _row(where: str, lists: dict[str, Any]) -> Row:
    for name, values in lists.items():
        if values is None:
            raise refused(where, f"{name} is missing, other rows have it", field=name)
    prompt, response, mask, *logprobs = lists.items()
    return row_of_parts(where, prompt, response, mask, logprobs[0] if logprobs else None)
