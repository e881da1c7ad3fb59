"""Faults of inference engines, planted into the fields of a turn as an engine would report them.

A reply is a mapping of the fields of `Turn`. Every fault here contradicts itself or what was sent, so
that something along the way must refuse it: `Turn`, an `Assembler` that knows the stop ids, or a
comparison of the prompt that came back with the one that was sent.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from t1_tito.turn import Turn

Reply = Mapping[str, Any]


class EngineFault(StrEnum):
    """What an engine gets wrong in one reply."""

    STOP_TOKEN_HIDDEN = "stop_token_hidden"  # noqa: S105 - a fault, no secret
    """The stop token was sampled and is not reported, nor is its log-probability."""
    LOGPROB_MISSING = "logprob_missing"
    """One log-probability too few: those of the ids are off by one."""
    IDS_MISSING = "ids_missing"
    """Ids are dropped, as when a tool parser eats control tokens; log-probabilities remain."""
    ECHO_ALTERED = "echo_altered"
    """The prompt that the engine reports is not the one it was sent."""
    LOGPROB_NOT_FINITE = "logprob_not_finite"
    """A log-probability is NaN, as from a division by a temperature of 0."""


def reply_of(turn: Turn) -> dict[str, Any]:
    """The fields of a turn as plain lists and numbers; `Turn(**reply)` builds it again."""
    return {
        "prompt_ids": turn.prompt_ids.tolist(),
        "completion_ids": turn.completion_ids.tolist(),
        "logprobs": turn.logprobs.tolist(),
        "version_sent": turn.version_sent,
        "version_received": turn.version_received,
        "finish_reason": str(turn.finish_reason),
        "base_length": turn.base_length,
        "synthetic_length": turn.synthetic_length,
    }


def plant(fault: EngineFault, reply: Reply, place: int = 0) -> dict[str, Any]:
    """The reply with a fault in it.

    Args:
        fault: what goes wrong.
        reply: fields of a turn with at least one sampled id.
        place: where, modulo the length of the field concerned.
    """
    prompt, ids, logprobs = (
        list(reply[name]) for name in ("prompt_ids", "completion_ids", "logprobs")
    )
    at = place % len(ids)
    if fault is EngineFault.STOP_TOKEN_HIDDEN:
        ids, logprobs = ids[:-1], logprobs[:-1]
    elif fault is EngineFault.LOGPROB_MISSING:
        del logprobs[at]
    elif fault is EngineFault.IDS_MISSING:
        del ids[at]
    elif fault is EngineFault.LOGPROB_NOT_FINITE:
        logprobs[at] = float("nan")
    else:
        prompt[place % len(prompt)] ^= 1
    return {**reply, "prompt_ids": prompt, "completion_ids": ids, "logprobs": logprobs}
