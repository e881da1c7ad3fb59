"""The assembled trial: chunks of aligned per-token arrays that share one index.

Position j of a chunk is one token, and every array of the chunk speaks of it at index j:

    tokens[j]                         its id
    loss_mask[j], logprobs[j]         True and the sampler's log-probability where it was sampled;
                                      False and 0 where it is context
    source_turn[j], source_index[j]   where it first appeared: T[source_index[j]] of that turn

These are plain containers; `t1_tito.fidelity` holds the checks of what they promise.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .boundary import Boundary
from .turn import Floats, Ids, Turn


@dataclass(frozen=True, eq=False)
class Chunk:
    """One contiguous training sample of N tokens.

    Attributes:
        tokens: int32 [N].
        loss_mask: bool [N], True exactly at sampled tokens.
        logprobs: float32 [N], natural log, 0 where `loss_mask` is False.
        source_turn: int32 [N], the turn that first contained the token.
        source_index: int32 [N], the token's index in that turn's prompt ‖ completion.
    """

    tokens: Ids
    loss_mask: npt.NDArray[np.bool_]
    logprobs: Floats
    source_turn: Ids
    source_index: Ids

    def __len__(self) -> int:
        return self.tokens.size


@dataclass(frozen=True, eq=False)
class Trial:
    """All chunks of one trial, in order, with the turns they came from.

    Attributes:
        chunks: at least one; a new one opens at every split.
        boundaries: one per turn after the first.
        turns: the turns as given to `assemble`.
    """

    chunks: tuple[Chunk, ...]
    boundaries: tuple[Boundary, ...]
    turns: tuple[Turn, ...]
