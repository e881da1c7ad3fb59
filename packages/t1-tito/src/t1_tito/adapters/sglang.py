"""Replies of SGLang as turns. Follows SGLang 0.5.23.

    /generate               output_ids, meta_info: output_token_logprobs [[logprob, id, text], ...],
                            finish_reason {"type", "matched"}, prompt_tokens, completion_tokens,
                            weight_version, and weight_versions [{"version", "start", "end"}, ...]
                            where an update met the request
    /v1/chat/completions    choices[0]: prompt_token_ids, response_token_ids, logprobs, and
                            meta_info as above with return_meta_info; metadata.weight_version

Ask /generate for `return_logprob`, and the chat endpoint for `return_token_ids` and `logprobs`. A
streamed reply counts as its last chunk, with all ids; not incremental ones.
"""

from collections.abc import Callable
from typing import Any

from t1_tito.turn import Turn

from ._fields import (
    Values,
    field,
    is_list,
    list_in,
    number_in,
    refused,
    required,
    same_lengths,
    turn_at,
)
from ._replies import (
    check_counts,
    check_stop,
    finish_reason_of,
    only_choice,
    place,
    prompt_of,
    read_choice,
    usage_of,
)

__all__ = ["LOSSY", "turn_from_chat", "turn_from_generate"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("text", "a turn holds ids alone"),
    (
        "meta_info.routed_experts, hidden_states",
        "payloads: gather them by turn with t1_tito.gather",
    ),
    ("meta_info.weight_versions", "a turn knows the versions at its two ends, and refuses two"),
    ("meta_info.input_token_logprobs, output_top_logprobs", "a turn holds sampled tokens' values"),
)
"""Fields of a reply that a turn does not hold, and why."""

_ASK = "set return_logprob=True in the request"
_ASK_CHAT = "set return_token_ids=true and logprobs=true in the request"


def turn_from_generate(
    reply: object,
    prompt_ids: Values | None = None,
    *,
    version_sent: int | None = None,
    parse_version: Callable[[str], int] = int,
    turn: int | None = None,
    base_length: int = 0,
    synthetic_length: int = 0,
) -> Turn:
    """The turn of one reply of /generate.

    Args:
        reply: the reply, with `meta_info`.
        prompt_ids: ids that were sent after the first `base_length`; may be left out where the
            reply repeats them.
        version_sent: weight version when the request was sent; where left out, the version of the
            first sampled token, which the reply must then tell (`weight_versions`).
        parse_version: the number of a version's name.
        turn: index of the turn, for messages.
        base_length: as in `Turn`.
        synthetic_length: as in `Turn`.

    Raises:
        AdapterError: a field is missing, or counts, ids or versions contradict each other.
        TurnError: an id or log-probability cannot be one.
    """
    where = place("SGLang", turn)
    meta = required(reply, "meta_info", where, "expected a reply of /generate")
    completion, logprobs = _sampled(where, reply, meta)
    finish = required(meta, "finish_reason", where, "the last reply of a stream has one")
    prompt = prompt_of(where, prompt_ids, field(reply, "prompt_token_ids"), base_length)
    check_counts(
        where,
        prompt=base_length + len(prompt),
        prompt_tokens=number_in(meta, "prompt_tokens", where),
        completion=len(completion),
        completion_tokens=number_in(meta, "completion_tokens", where),
    )
    check_stop(where, completion, field(finish, "matched"))
    sent, received = _versions(where, meta, version_sent, parse_version)
    return turn_at(
        turn,
        prompt,
        completion,
        logprobs,
        sent,
        received,
        finish_reason_of(where, field(finish, "type")),
        base_length=base_length,
        synthetic_length=synthetic_length,
    )


def turn_from_chat(
    reply: object,
    prompt_ids: Values | None = None,
    *,
    version_sent: int | None = None,
    parse_version: Callable[[str], int] = int,
    turn: int | None = None,
) -> Turn:
    """The turn of one reply of /v1/chat/completions or /v1/completions with a single choice.

    Args:
        reply: the reply.
        prompt_ids: ids that were sent, where the caller knows them; compared with those read.
        version_sent: as in `turn_from_generate`.
        parse_version: as in `turn_from_generate`.
        turn: index of the turn, for messages.

    Raises:
        AdapterError: a field is missing, or counts, ids or versions contradict each other.
        TurnError: an id or log-probability cannot be one.
    """
    where = place("SGLang", turn)
    first = only_choice(where, reply)
    meta = field(first, "meta_info")
    if meta is not None:
        echoed = field(first, "prompt_token_ids")
        return turn_from_generate(
            {"meta_info": meta, "prompt_token_ids": echoed},
            prompt_ids,
            version_sent=version_sent,
            parse_version=parse_version,
            turn=turn,
        )
    chat = field(first, "message") is not None
    choice = read_choice(where, reply, "response_token_ids" if chat else "token_ids", _ASK_CHAT)
    prompt = prompt_of(where, prompt_ids, choice.echoed, 0)
    prompt_tokens, completion_tokens = usage_of(where, reply)
    check_counts(
        where,
        prompt=len(prompt),
        prompt_tokens=prompt_tokens,
        completion=len(choice.completion_ids),
        completion_tokens=completion_tokens,
    )
    check_stop(where, choice.completion_ids, field(choice.record, "matched_stop"))
    metadata = required(reply, "metadata", where, "it holds the weight version")
    sent, received = _versions(where, metadata, version_sent, parse_version)
    return turn_at(
        turn, prompt, choice.completion_ids, choice.logprobs, sent, received, choice.finish_reason
    )


def _sampled(where: str, reply: object, meta: object) -> tuple[list[int], list[float]]:
    """Ids and log-probabilities from meta_info, checked against output_ids where those are given."""
    entries = list_in(meta, "output_token_logprobs", where, _ASK)
    for position, entry in enumerate(entries):
        if not is_list(entry) or len(entry) < 2 or entry[0] is None:
            raise refused(
                where,
                f"output_token_logprobs[{position}] is {entry!r}, expected "
                f"[logprob, id, text]; {_ASK}",
                field="output_token_logprobs",
                position=position,
            )
    ids = [entry[1] for entry in entries]
    output_ids = field(reply, "output_ids")
    if output_ids is not None:
        listed = list_in(reply, "output_ids", where, _ASK)
        same_lengths(where, {"output_ids": listed, "output_token_logprobs": entries})
        if list(output_ids) != ids:
            raise refused(
                where,
                "output_ids and output_token_logprobs name other ids",
                field="output_ids",
                position=next(at for at, token in enumerate(ids) if token != output_ids[at]),
            )
    return ids, [entry[0] for entry in entries]


def _versions(
    where: str, meta: object, sent: int | None, parse: Callable[[str], int]
) -> tuple[int, int]:
    """Weight versions at the first and last sampled token, or at sending and reply."""
    spans = field(meta, "weight_versions")
    if spans:
        first, last = (field(span, "version") for span in (spans[0], spans[-1]))
        # what ran before the first token saw no other version than that of the token
        return _number(where, first, parse), _number(where, last, parse)
    received = _number(where, required(meta, "weight_version", where, "update SGLang"), parse)
    if sent is None:
        raise refused(
            where,
            f"says only the version at its end ({received}); pass the weight version at "
            "sending as version_sent",
            field="version_sent",
        )
    return sent, received


def _number(where: str, name: Any, parse: Callable[[str], int]) -> int:
    try:
        return parse(name)
    except (TypeError, ValueError) as error:
        raise refused(
            where,
            f"weight_version {name!r} is not a number; set weight_version when updating "
            "weights, or pass parse_version",
            field="weight_version",
        ) from error
