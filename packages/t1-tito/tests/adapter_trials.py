"""Random trials for the tests of the adapters: several chunks, empty completions, any ids."""

import numpy as np
from hypothesis import strategies as st

from t1_tito import Chunk, FinishReason, Trial, Turn, assemble

IDS = st.integers(0, 9) | st.integers(0, 2**31 - 1)
LOGPROBS = st.floats(-40, 0, width=32)


@st.composite
def turns(draw, first_completion=1):
    """Turns of one trial; each continues the one before or starts afresh, and may sample nothing."""
    made, history = [], []
    for index in range(draw(st.integers(1, 6))):
        afresh = draw(st.integers(0, 3)) == 0
        start = [] if afresh else history
        prompt = start + draw(st.lists(IDS, min_size=1, max_size=4))
        smallest = first_completion if index == 0 else 0
        completion = draw(st.lists(IDS, min_size=smallest, max_size=4))
        reasons = list(FinishReason) if completion else [FinishReason.LENGTH, FinishReason.ABORT]
        version = draw(st.integers(0, 9))
        made.append(
            Turn(
                prompt,
                completion,
                draw(st.lists(LOGPROBS, min_size=len(completion), max_size=len(completion))),
                version,
                version,
                draw(st.sampled_from(reasons)),
            )
        )
        history = prompt + completion
    return made


def trials():
    """Assembled trials with at least one sampled token."""
    return turns().map(assemble)


def trained(trial: Trial) -> list[Chunk]:
    """The chunks that train something."""
    return [chunk for chunk in trial.chunks if chunk.loss_mask.any()]


def same(row, chunk):
    """Whether a row holds exactly the chunk's tokens, mask and log-probabilities."""
    return (
        np.array_equal(row.tokens, chunk.tokens)
        and np.array_equal(row.loss_mask, chunk.loss_mask)
        and np.array_equal(row.logprobs, chunk.logprobs)
    )


def two_chunks():
    """A trial of three turns, the last of which opens a second chunk."""
    return assemble(
        [
            Turn([1, 2], [3, 4], [-0.1, -0.2], 5, 5, "stop"),
            Turn([1, 2, 3, 4, 5], [6], [-0.3], 6, 6, "stop"),
            Turn([7, 8], [9], [-0.4], 6, 6, "length"),
        ]
    )


def one_chunk():
    """The first two turns of `two_chunks`."""
    return assemble(
        [
            Turn([1, 2], [3, 4], [-0.1, -0.2], 5, 5, "stop"),
            Turn([1, 2, 3, 4, 5], [6], [-0.3], 6, 6, "stop"),
        ]
    )
