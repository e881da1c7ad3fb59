"""A chunk under construction: its segments, in order.

A segment is a run of positions of one turn and kind, with its ids as an array. Adding one costs the
same however long the chunk is; the flat arrays are laid out when a chunk is asked for, in O(tokens).
Segments are only ever added, but for `cut`, by which a rewriting policy removes the end of a prompt
and of its completion. Their arrays are never written to, so that a copy shares them.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .trial import Chunk, Kind
from .turn import Floats, Ids

_Scalar = TypeVar("_Scalar", bound=np.generic)
_NO_LOGPROBS = np.empty(0, np.float32)


class _Segment(NamedTuple):
    """Consecutive positions of one turn and kind.

    `first_index` is the first one's index in the turn; only sampled positions have log-probs.
    """

    turn: int
    kind: Kind
    first_index: int
    ids: Ids
    logprobs: Floats


class ChunkBuilder:
    """The growing chunk of the last turn."""

    def __init__(self) -> None:
        self.length = 0
        self._segments: list[_Segment] = []

    def copy(self) -> "ChunkBuilder":
        """An independent builder with the same segments, in O(turns)."""
        twin = ChunkBuilder()
        for segment in self._segments:
            twin.append(*segment)
        return twin

    def append(
        self,
        turn: int,
        kind: Kind,
        first_index: int,
        ids: Ids,
        logprobs: Floats = _NO_LOGPROBS,
    ) -> None:
        """Add ids of one turn, the first of them at `first_index` of its prompt ‖ completion."""
        if ids.size:
            self._segments.append(_Segment(turn, kind, first_index, ids, logprobs))
            self.length += ids.size

    def cut(self, scaffold: int, tail: int) -> None:
        """Remove `scaffold` positions before the last completion, and `tail` from its end."""
        *before, context, completion = self._segments
        kept = completion.ids.size - tail
        context = context._replace(ids=context.ids[: context.ids.size - scaffold])
        completion = completion._replace(
            ids=completion.ids[:kept], logprobs=completion.logprobs[:kept]
        )
        self._segments = [*before, *(part for part in (context, completion) if part.ids.size)]
        self.length -= scaffold + tail

    def chunk(self) -> Chunk:
        """The positions so far as arrays."""
        turns, kinds, first_indices, ids, logprobs = zip(*self._segments, strict=True)
        lengths = np.array([part.size for part in ids])
        shifts = np.array(first_indices) - (np.cumsum(lengths) - lengths)
        source_index = np.arange(self.length, dtype=np.int32)
        source_index += np.repeat(shifts.astype(np.int32), lengths)
        kind = np.repeat(np.array(kinds, np.uint8), lengths)
        loss_mask = kind == Kind.SAMPLED
        laid = np.zeros(self.length, np.float32)
        laid[loss_mask] = np.concatenate(logprobs)
        return Chunk(
            tokens=_frozen(np.concatenate(ids)),
            loss_mask=_frozen(loss_mask),
            logprobs=_frozen(laid),
            source_turn=_frozen(np.repeat(np.array(turns, np.int32), lengths)),
            source_index=_frozen(source_index),
            kind=_frozen(kind),
        )


def _frozen(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.flags.writeable = False
    return array
