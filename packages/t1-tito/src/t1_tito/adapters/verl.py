"""Trials as verl's agent loop outputs, and back. Follows verl 0.9 (`AgentLoopOutput`).

One output per chunk, as keywords: `AgentLoopOutput(**output)`.

    prompt_ids         ids before the first sampled one
    response_ids       R ids from there on
    response_mask      R numbers, 1 where the id was sampled
    response_logprobs  R numbers, 0.0 where the mask is 0

An agent loop of verl 0.9's `trainer.ppo.v1` may return a list of outputs, which share the reward of
the last one; elsewhere it returns one, so that a trial of several chunks has no place there.
"""

from typing import Any

from t1_tito.trial import Trial

from ._fields import field, list_in
from .rows import Row, responses_of, row_of_parts

__all__ = ["LOSSY", "from_agent_loop_output", "to_agent_loop_outputs"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("source_turn, source_index, kind", "no such fields; the audit recovers them from the turns"),
    ("boundaries", "no such field"),
    ("chunks without loss", "they train nothing and make no output"),
    ("finish_reason", "no such field"),
    ("version_sent, version_received", "no such fields"),
    ("num_turns", "verl counts messages; given are one prompt and one completion per turn"),
)
"""What of a trial an output does not hold, and why."""


def to_agent_loop_outputs(
    trial: Trial, *, reward_score: float | None = None
) -> list[dict[str, Any]]:
    """The outputs of a trial, one per chunk that has loss.

    Args:
        trial: the trial. Its responses must fit `response_length` of verl's configuration.
        reward_score: reward of the trial, given to every output; None lets verl compute it.

    Raises:
        AdapterError: the trial has no loss.
    """
    return [
        {
            "prompt_ids": response.prompt_ids,
            "response_ids": response.response_ids,
            "response_mask": response.response_mask,
            "response_logprobs": response.response_logprobs,
            "reward_score": reward_score,
            "num_turns": 2 * len(response.turns),
            "metrics": {},
            # verl reads all three from every output that comes with a reward
            "extra_fields": {"turn_scores": [], "tool_rewards": [], "reward_extra_info": {}},
        }
        for response in responses_of(trial)
    ]


def from_agent_loop_output(output: object) -> Row:
    """The row of an output, with its prompt in the mask.

    Raises:
        AdapterError: a list is missing, or those of the response differ in length.
    """
    where, advice = "agent loop output", "expected an AgentLoopOutput"
    logprobs = field(output, "response_logprobs")
    return row_of_parts(
        where,
        ("prompt_ids", list_in(output, "prompt_ids", where, advice)),
        ("response_ids", list_in(output, "response_ids", where, advice)),
        ("response_mask", list_in(output, "response_mask", where, advice)),
        None if logprobs is None else ("response_logprobs", logprobs),
    )
