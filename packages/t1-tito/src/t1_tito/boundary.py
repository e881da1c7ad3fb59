"""The boundary between two turns: how the next prompt continues what is already in the stream.

With T = p‖a of the earlier turn and p' the later prompt, the first case that holds decides:

    STRICT  (equation 6)  T is a prefix of p'; the rest of p' is appended as context.
    SPLIT   (equation 9)  it is not; a new chunk opens with the whole of p' as context.

The decision reads token ids alone. It knows no text, so a prompt that says the same in other ids
splits; nothing sampled is ever replaced by a re-encoding.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from .turn import Ids, Turn


class BoundaryCase(StrEnum):
    """Which case of the ladder a boundary falls under."""

    STRICT = "strict"
    """The later prompt starts with every id of the earlier turn."""
    SPLIT = "split"
    """It does not; the trial goes on in a new chunk."""


@dataclass(frozen=True)
class Boundary:
    """The decision taken between turn `turn_index - 1` and turn `turn_index`.

    Attributes:
        turn_index: index of the later turn, >= 1.
        case: the case of the ladder that holds.
        context_length: tokens of the later prompt that enter with loss mask 0.
        reason: one sentence for people; for a split, where the prompt leaves the stream.
    """

    turn_index: int
    case: BoundaryCase
    context_length: int
    reason: str


def classify(turn_index: int, earlier: Turn, later: Turn) -> Boundary:
    """Decide the boundary between two consecutive turns in O(|T|)."""
    prompt = later.prompt_ids
    if _starts_with(prompt, earlier):
        return Boundary(
            turn_index,
            BoundaryCase.STRICT,
            prompt.size - earlier.length,
            "the prompt extends the stream",
        )
    return Boundary(turn_index, BoundaryCase.SPLIT, prompt.size, _split_reason(prompt, earlier))


def _starts_with(prompt: Ids, turn: Turn) -> bool:
    seam = turn.prompt_ids.size
    # a prompt that is too short leaves a slice of another size
    return np.array_equal(prompt[:seam], turn.prompt_ids) and np.array_equal(
        prompt[seam : turn.length], turn.completion_ids
    )


def _split_reason(prompt: Ids, earlier: Turn) -> str:
    stream = earlier.ids
    shared = min(prompt.size, stream.size)
    different = np.flatnonzero(prompt[:shared] != stream[:shared])
    if not different.size:
        return f"the prompt ends at index {prompt.size} of a stream of {stream.size} tokens"
    first = int(different[0])
    owner = "prompt" if first < earlier.prompt_ids.size else "completion"
    return (
        f"the prompt differs from the stream at index {first}, in the earlier turn's {owner}: "
        f"{prompt[first]} instead of {stream[first]}"
    )
