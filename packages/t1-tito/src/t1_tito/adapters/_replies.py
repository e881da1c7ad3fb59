"""What replies of all engines share: counts that must agree, and choices in the style of OpenAI.

An engine may return fewer ids than it sampled, when a parser or a stop rule takes control tokens out
of what it streams, and it may have sampled from other ids than it was sent. Both show only in counts
and echoes, so these are compared wherever a reply has them.
"""

from dataclasses import dataclass
from typing import Any

from t1_tito.turn import FinishReason

from ._fields import Values, field, is_list, list_in, number_in, refused, required, same_lengths

FINISH_REASONS = {
    "stop": FinishReason.STOP,
    "tool_calls": FinishReason.STOP,
    "function_call": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "abort": FinishReason.ABORT,
}
_ASK_FOR_LOGPROBS = "ask the engine for the log-probability of every sampled token"


def place(engine: str, turn: int | None) -> str:
    """How messages name a reply."""
    return f"{engine} reply" if turn is None else f"turn {turn}, {engine} reply"


def finish_reason_of(where: str, value: object) -> FinishReason:
    """The engine's word for why it stopped.

    Raises:
        AdapterError: it has not stopped yet, or stopped for a reason that is not known here.
    """
    reason = FINISH_REASONS.get(value) if isinstance(value, str) else None
    if reason is None:
        known = ", ".join(FINISH_REASONS)
        raise refused(
            where,
            f"finish_reason is {value!r}, expected one of {known}; the last reply of a "
            "stream has one",
            field="finish_reason",
        )
    return reason


def prompt_of(where: str, sent: Values | None, echoed: Values | None, base_length: int) -> Values:
    """The prompt ids after the first `base_length`, checked against what the engine says it read.

    Raises:
        AdapterError: nobody knows the prompt, or the engine read another one.
    """
    if echoed is None:
        if sent is None:
            raise refused(
                where,
                "no prompt ids; pass the ids that were sent as prompt_ids",
                field="prompt_token_ids",
            )
        return sent
    rest = list(echoed[base_length:])
    if sent is not None and rest != list(sent):
        shared = next(
            (i for i, (one, other) in enumerate(zip(sent, rest, strict=False)) if one != other),
            min(len(sent), len(rest)),
        )
        raise refused(
            where,
            f"the engine read another prompt than was sent: {len(sent)} ids sent, "
            f"{len(rest)} read, first difference at {base_length + shared}",
            field="prompt_token_ids",
            position=base_length + shared,
        )
    return rest


def check_counts(
    where: str,
    *,
    prompt: int,
    prompt_tokens: int | None,
    completion: int,
    completion_tokens: int | None,
) -> None:
    """Compare the numbers of ids with the engine's own counts, where it gives them.

    Raises:
        AdapterError: it counts other numbers.
    """
    if completion_tokens is not None and completion_tokens != completion:
        raise refused(
            where,
            f"{completion} completion ids, but completion_tokens is {completion_tokens}; "
            "the engine left sampled ids out of its reply",
            field="completion_tokens",
        )
    if prompt_tokens is not None and prompt_tokens != prompt:
        raise refused(
            where,
            f"{prompt} prompt ids, but prompt_tokens is {prompt_tokens}; the engine read "
            "another prompt than was sent",
            field="prompt_tokens",
        )


def check_stop(where: str, completion: Values, matched: object) -> None:
    """Check that the stop token that the engine says it matched is the last completion id.

    Raises:
        AdapterError: it is not; the engine hides it.
    """
    stop = [matched] if isinstance(matched, int) else matched
    if not is_list(stop):  # a text, which may end anywhere, or nothing
        return
    last = list(completion[-len(stop) :])
    if last != list(stop):
        raise refused(
            where,
            f"stopped at token {matched}, but the completion ends in {last}; ask the "
            "engine to return stop tokens",
            field="completion_ids",
            position=len(completion) - 1 if len(completion) else None,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The only choice of a reply in the style of OpenAI.

    Attributes:
        record: the choice itself.
        completion_ids: sampled ids.
        logprobs: one per sampled id.
        finish_reason: why sampling ended.
        echoed: prompt ids as the engine read them, where it says so.
    """

    record: Any
    completion_ids: Values
    logprobs: Values
    finish_reason: FinishReason
    echoed: Values | None


def only_choice(where: str, reply: object) -> Any:
    """The choice of a reply that must have exactly one.

    Raises:
        AdapterError: it has none or several.
    """
    choices = list_in(reply, "choices", where, "expected a reply in the style of OpenAI")
    if len(choices) != 1:
        raise refused(
            where, f"{len(choices)} choices, expected one; sample with n=1", field="choices"
        )
    return choices[0]


def read_choice(where: str, reply: object, ids_field: str, advice: str) -> Choice:
    """Ids and log-probabilities of the only choice of a reply.

    Raises:
        AdapterError: something is missing, or the lengths disagree.
    """
    choice = only_choice(where, reply)
    logprobs, tokens = _logprobs(where, choice)
    if field(choice, ids_field) is not None:
        ids = list_in(choice, ids_field, where, advice)
    else:
        ids = _ids_in_tokens(where, tokens, ids_field, advice)
    same_lengths(where, {ids_field: ids, "logprobs": logprobs})
    reason = finish_reason_of(where, field(choice, "finish_reason"))
    echoed = field(choice, "prompt_token_ids")
    if echoed is None:
        echoed = field(reply, "prompt_token_ids")
    return Choice(choice, ids, logprobs, reason, echoed)


def usage_of(where: str, reply: object) -> tuple[int | None, int | None]:
    """(prompt_tokens, completion_tokens) of a reply's usage, None where it has none."""
    usage = field(reply, "usage")
    return number_in(usage, "prompt_tokens", where), number_in(usage, "completion_tokens", where)


def _logprobs(where: str, choice: object) -> tuple[list[float], list[Any]]:
    """Log-probabilities and token texts, from a chat's or a completion's form."""
    logprobs = required(choice, "logprobs", where, _ASK_FOR_LOGPROBS)
    content = field(logprobs, "content")
    if content is not None:
        entries = list_in(logprobs, "content", where, _ASK_FOR_LOGPROBS)
        values = [field(entry, "logprob") for entry in entries]
        _check_present(where, "content", "logprob", values)
        return values, [field(entry, "token") for entry in entries]
    values = list_in(logprobs, "token_logprobs", where, _ASK_FOR_LOGPROBS)
    _check_present(where, "token_logprobs", "value", values)
    return list(values), list(field(logprobs, "tokens") or [])


def _check_present(where: str, name: str, part: str, values: Values) -> None:
    for position, value in enumerate(values):
        if value is None:
            raise refused(
                where,
                f"{part} of {name}[{position}] is missing; {_ASK_FOR_LOGPROBS}",
                field=name,
                position=position,
            )


def _ids_in_tokens(where: str, tokens: list[Any], name: str, advice: str) -> list[int]:
    """Ids that an engine wrote in place of token texts, as "token_id:17"."""
    prefix = "token_id:"
    numbers = [
        token.removeprefix(prefix)
        for token in tokens
        if isinstance(token, str) and token.startswith(prefix)
    ]
    if not numbers or len(numbers) != len(tokens) or not all(map(str.isdecimal, numbers)):
        raise refused(where, f"{name} is missing; {advice}", field=name)
    return [int(number) for number in numbers]
