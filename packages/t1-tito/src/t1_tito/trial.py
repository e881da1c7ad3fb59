"""The assembled trial: chunks of aligned per-token arrays that share one index.

Position j of a chunk is one token, and every array of the chunk speaks of it at index j:

    tokens[j]                         its id
    loss_mask[j], logprobs[j]         True and the sampler's log-probability where it was sampled;
                                      False and 0 where it is context
    source_turn[j], source_index[j]   where it came from: T[source_index[j]] of that turn
    kind[j]                           what it is

These are plain containers; `t1_tito.audit` checks what they promise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .boundary import Boundary
from .turn import FinishReason, Floats, Ids


class Kind(IntEnum):
    """What a token of a chunk is."""

    PROMPT = 0
    """Of the prompt that opens the trial."""
    SAMPLED = 1
    """Sampled by the engine; the only kind with loss."""
    OBSERVATION = 2
    """Context that a later prompt added: observations, and the template's glue around them."""
    SHARED = 3
    """Of the prompt that opens a later chunk; it may repeat what an earlier chunk trains."""
    SYNTHETIC = 4
    """Made up by a renderer to close a truncated turn."""


@dataclass(frozen=True, eq=False, slots=True)
class Chunk:
    """One contiguous training sample of N tokens, 18 bytes per token.

    Attributes:
        tokens: int32 [N].
        loss_mask: bool [N], True exactly at sampled tokens.
        logprobs: float32 [N], natural log, 0 where `loss_mask` is False.
        source_turn: int32 [N], the turn that the token came with.
        source_index: int32 [N], the token's index in that turn's prompt ‖ completion.
        kind: uint8 [N], values of `Kind`.
    """

    tokens: Ids
    loss_mask: npt.NDArray[np.bool_]
    logprobs: Floats
    source_turn: Ids
    source_index: Ids
    kind: npt.NDArray[np.uint8]

    def __post_init__(self) -> None:
        """Make the arrays read-only views."""
        for name in self.__slots__:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    def __reduce__(self) -> tuple[type["Chunk"], tuple[object, ...]]:
        """A copy is made as any chunk is."""
        return Chunk, tuple(getattr(self, name) for name in self.__slots__)

    def __len__(self) -> int:
        return self.tokens.size


class TurnRecord(NamedTuple):
    """What remains of a turn in a trial: its sizes, versions and place, without its arrays.

    Attributes:
        prompt_length: P, tokens of its prompt.
        completion_length: A, tokens it sampled.
        version_sent: weight version when the request was sent.
        version_received: weight version when the answer arrived.
        finish_reason: why sampling ended.
        chunk: index of the chunk that holds its completion.
        start: position of the completion's first token there.
    """

    prompt_length: int
    completion_length: int
    version_sent: int
    version_received: int
    finish_reason: FinishReason
    chunk: int
    start: int

    @property
    def length(self) -> int:
        """P + A."""
        return self.prompt_length + self.completion_length


@dataclass(frozen=True, eq=False)
class Trial:
    """All chunks of one trial, in order.

    Attributes:
        chunks: at least one; a new one opens at every split.
        boundaries: one per turn after the first.
        turns: one record per turn, in the order they were added.
        metadata: whatever the caller wants to find again: a trial id, a task, a reward.
    """

    chunks: tuple[Chunk, ...]
    boundaries: tuple[Boundary, ...]
    turns: tuple[TurnRecord, ...]
    metadata: Mapping[str, object] = field(default_factory=dict[str, object])
