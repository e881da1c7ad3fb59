"""Steps of an ATIF trajectory as turns, and turns as step metrics. Follows ATIF v1.8.

ATIF is Harbor's trajectory file. The metrics of an agent's step may hold `prompt_token_ids` (whole
prompts), `completion_token_ids` and `logprobs`. Turns are the agent's steps, without those that were
copied from an earlier trajectory (`is_copied_context`) and those that called no model
(`llm_call_count` 0). A step that stands for several calls holds the ids of one of them and is
refused.

What a turn knows beyond that is written under `extra["t1_tito"]`, and read from there.
"""

from collections.abc import Mapping
from typing import Any

from t1_tito.turn import FinishReason, Turn

from ._fields import field, list_in, number_in, refused, turn_at
from .harbor import check_whole

__all__ = ["LOSSY", "to_step_metrics", "turns_from_trajectory"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("base_length", "prompts are whole"),
    ("versions, finish_reason, synthetic_length", "held only in metrics written by this package"),
    ("step.message, tool_calls, observation", "a turn holds ids alone"),
    ("subagent_trajectories", "trajectories of their own; read each one"),
)
"""What of a turn the format itself does not hold, and the reverse, and why."""

_OURS = "t1_tito"
_ASK = "record the trajectory with rollout details"


def turns_from_trajectory(trajectory: object, *, version: int | None = None) -> list[Turn]:
    """The turns of one trajectory document, in order.

    Args:
        trajectory: a `Trajectory` or its JSON.
        version: weight version of the whole trajectory, for steps whose metrics do not say.

    Raises:
        AdapterError: a step lacks ids or log-probabilities, counts or lengths contradict each other,
            or a step stands for several model calls; it names turn and step.
        TurnError: an id or log-probability cannot be one; it names the turn.
    """
    turns: list[Turn] = []
    for step in list_in(trajectory, "steps", "trajectory", "expected an ATIF document"):
        if _is_sampled(step):
            where = f"turn {len(turns)} (step {field(step, 'step_id')})"
            turns.append(_turn(len(turns), where, step, version))
    return turns


def to_step_metrics(turn: Turn) -> dict[str, Any]:
    """The metrics of the step that a turn is, as JSON.

    Raises:
        AdapterError: the turn says only what its prompt adds (base_length > 0).
    """
    check_whole("turn", turn)
    return {
        "prompt_tokens": turn.prompt_length,
        "completion_tokens": turn.completion_ids.size,
        "prompt_token_ids": turn.prompt_ids.tolist(),
        "completion_token_ids": turn.completion_ids.tolist(),
        "logprobs": turn.logprobs.tolist(),
        "extra": {
            _OURS: {
                "version_sent": turn.version_sent,
                "version_received": turn.version_received,
                "finish_reason": str(turn.finish_reason),
                "synthetic_length": turn.synthetic_length,
            }
        },
    }


def _is_sampled(step: object) -> bool:
    return (
        field(step, "source") == "agent"
        and not field(step, "is_copied_context")
        and field(step, "llm_call_count") != 0
    )


def _turn(index: int, where: str, step: object, version: int | None) -> Turn:
    calls = number_in(step, "llm_call_count", where)
    if calls is not None and calls > 1:
        raise refused(
            where,
            f"stands for {calls} model calls, so ids of others are missing",
            field="llm_call_count",
        )
    metrics = field(step, "metrics")
    prompt, completion, logprobs = (
        list_in(metrics, name, where, _ASK)
        for name in ("prompt_token_ids", "completion_token_ids", "logprobs")
    )
    for name, ids in (
        ("prompt_tokens", prompt),
        ("completion_tokens", completion),
    ):
        count = number_in(metrics, name, where)
        if count is not None and count != len(ids):
            raise refused(where, f"{name} is {count}, but {len(ids)} ids are recorded", field=name)
    if len(completion) != len(logprobs):
        raise refused(
            where,
            f"{len(completion)} completion_token_ids and {len(logprobs)} logprobs",
            field="logprobs",
        )
    ours: Mapping[str, Any] = field(field(metrics, "extra"), _OURS) or {}
    return turn_at(
        index,
        prompt,
        completion,
        logprobs,
        _version(where, ours, "version_sent", version),
        _version(where, ours, "version_received", version),
        ours.get("finish_reason", FinishReason.STOP),
        synthetic_length=ours.get("synthetic_length", 0),
    )


def _version(where: str, ours: Mapping[str, Any], name: str, version: int | None) -> int:
    value = ours.get(name, version)
    if value is None:
        raise refused(
            where, f"{name} is not recorded; pass the weight version as version", field=name
        )
    return value
