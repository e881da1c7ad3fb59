"""Hypothesis strategies for turns, for tests of code that builds on this package.

Needs the extra `testing`. `conversations` draws trials as a harness would produce them: about
half of the prompts extend what came before, the others open a new stream.
"""

import numpy as np
from hypothesis import strategies as st

from .turn import FinishReason, Turn

_IDS = st.integers(0, 2**31 - 1) | st.integers(0, 3)
_LOGPROBS = st.floats(-50, 0, width=32)


@st.composite
def conversations(
    draw: st.DrawFn, *, max_turns: int = 6, splits: bool = True, version: int = 0
) -> list[Turn]:
    """Draw the turns of one trial.

    Args:
        draw: supplied by Hypothesis.
        max_turns: upper bound on the number of turns, >= 1.
        splits: whether a prompt may also leave the stream instead of extending it.
        version: weight version of every turn.
    """
    turns: list[Turn] = []
    for _ in range(draw(st.integers(1, max_turns))):
        context = draw(st.lists(_IDS, min_size=0 if turns else 1, max_size=6))
        extends = bool(turns) and not (splits and draw(st.booleans()))
        fresh = context or [draw(_IDS)]
        prompt = np.concatenate((turns[-1].ids, context)) if extends else np.array(fresh)
        finish = draw(st.sampled_from(FinishReason))
        least = 1 if finish is FinishReason.STOP else 0
        completion = draw(st.lists(_IDS, min_size=least, max_size=6))
        logprobs = draw(st.lists(_LOGPROBS, min_size=len(completion), max_size=len(completion)))
        turns.append(Turn(prompt.astype(np.int32), completion, logprobs, version, version, finish))
    return turns
