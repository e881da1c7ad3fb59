"""Replies of vLLM as turns. Follows vLLM 0.12 to 0.18.

    /v1/chat/completions     prompt_token_ids, choices[0]: token_ids, logprobs.content, stop_reason
    /v1/completions          choices[0]: prompt_token_ids, token_ids, logprobs.token_logprobs
    /inference/v1/generate   choices[0]: token_ids, logprobs.content
    RequestOutput            prompt_token_ids, outputs[0]: token_ids, logprobs [{id: Logprob}, ...]

Ask a server for `return_token_ids` and `logprobs`. Where it is too old for that, ask it for
`return_tokens_as_token_ids`; the ids then stand in the log-probabilities as "token_id:17". vLLM
replies carry no weight version, so the caller gives both.
"""

from collections.abc import Mapping
from typing import Any

from t1_tito.turn import Turn

from ._fields import Values, field, list_in, refused, required, same_lengths, turn_at
from ._replies import (
    check_counts,
    check_stop,
    finish_reason_of,
    place,
    prompt_of,
    read_choice,
    usage_of,
)

__all__ = ["LOSSY", "turn_from_output", "turn_from_reply"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("choices.message, text", "a turn holds ids alone"),
    ("logprobs", "the server raises values below -9999.0 to it before it replies"),
    ("logprobs.top_logprobs, prompt_logprobs", "a turn holds sampled tokens' values"),
    ("routed_experts", "a payload: gather it by turn with t1_tito.gather"),
)
"""Fields of a reply that a turn does not hold, and why."""

_ASK = "set return_token_ids=true in the request"


def turn_from_reply(
    reply: object,
    prompt_ids: Values | None = None,
    *,
    version_sent: int,
    version_received: int,
    turn: int | None = None,
    base_length: int = 0,
    synthetic_length: int = 0,
) -> Turn:
    """The turn of one reply of a vLLM server, with a single choice.

    Args:
        reply: the reply, as JSON or as the object of a client.
        prompt_ids: ids that were sent after the first `base_length`; may be left out where the
            reply repeats them, and are compared with it.
        version_sent: weight version when the request was sent.
        version_received: weight version when the reply arrived.
        turn: index of the turn, for messages.
        base_length: as in `Turn`.
        synthetic_length: as in `Turn`.

    Raises:
        AdapterError: a field is missing, or counts and ids contradict each other.
        TurnError: an id or log-probability cannot be one.
    """
    where = place("vLLM", turn)
    choice = read_choice(where, reply, "token_ids", _ASK)
    prompt = prompt_of(where, prompt_ids, choice.echoed, base_length)
    prompt_tokens, completion_tokens = usage_of(where, reply)
    check_counts(
        where,
        prompt=base_length + len(prompt),
        prompt_tokens=prompt_tokens,
        completion=len(choice.completion_ids),
        completion_tokens=completion_tokens,
    )
    check_stop(where, choice.completion_ids, field(choice.record, "stop_reason"))
    return turn_at(
        turn,
        prompt,
        choice.completion_ids,
        choice.logprobs,
        version_sent,
        version_received,
        choice.finish_reason,
        base_length=base_length,
        synthetic_length=synthetic_length,
    )


def turn_from_output(
    output: object,
    *,
    version_sent: int,
    version_received: int,
    turn: int | None = None,
) -> Turn:
    """The turn of a `RequestOutput` of the engine itself, with a single completion.

    Args:
        output: what `LLM.generate` returns for one prompt; sample with `logprobs=0` or more.
        version_sent: weight version when the request was sent.
        version_received: weight version when the output arrived.
        turn: index of the turn, for messages.

    Raises:
        AdapterError: a field is missing, or lengths contradict each other.
        TurnError: an id or log-probability cannot be one.
    """
    where = place("vLLM", turn)
    outputs = list_in(output, "outputs", where, "expected a RequestOutput")
    if len(outputs) != 1:
        raise refused(
            where, f"{len(outputs)} outputs, expected one; sample with n=1", field="outputs"
        )
    completion = list_in(outputs[0], "token_ids", where, "expected a CompletionOutput")
    rows = list_in(outputs[0], "logprobs", where, "set logprobs=0 in the SamplingParams")
    same_lengths(where, {"token_ids": completion, "logprobs": rows})
    check_stop(where, completion, field(outputs[0], "stop_reason"))
    return turn_at(
        turn,
        list_in(output, "prompt_token_ids", where, "expected a RequestOutput"),
        list(completion),
        [_logprob(where, at, row, completion[at]) for at, row in enumerate(rows)],
        version_sent,
        version_received,
        finish_reason_of(where, field(outputs[0], "finish_reason")),
    )


def _logprob(where: str, position: int, row: Any, token: int) -> float:
    """The value of the sampled token among those that the engine kept at its position."""
    entry = row.get(token) if isinstance(row, Mapping) else None
    if entry is None:
        raise refused(
            where,
            f"logprobs[{position}] has none of the sampled token {token}",
            field="logprobs",
            position=position,
        )
    if isinstance(entry, float):
        return entry
    return required(entry, "logprob", where, "expected a Logprob")
