"""A chunk under construction: flat arrays with room to grow.

Capacity doubles, so n tokens cost O(n) however many turns bring them. Positions are only ever added,
but for `cut`, by which a rewriting policy removes the end of a prompt and of its completion.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .trial import Chunk, Kind
from .turn import Floats, Ids

_SMALLEST = 1024


@dataclass(eq=False, slots=True)
class _Arrays:
    """Arrays of one capacity; positions without loss keep the log-probability 0 they start with."""

    tokens: Ids
    logprobs: Floats
    source_turn: Ids
    source_index: Ids
    kind: npt.NDArray[np.uint8]

    @classmethod
    def empty(cls, capacity: int) -> "_Arrays":
        return cls(
            tokens=np.zeros(capacity, np.int32),
            logprobs=np.zeros(capacity, np.float32),
            source_turn=np.zeros(capacity, np.int32),
            source_index=np.zeros(capacity, np.int32),
            kind=np.zeros(capacity, np.uint8),
        )

    def all(self) -> list[npt.NDArray[Any]]:
        return [getattr(self, field.name) for field in fields(self)]

    def resized(self, length: int, capacity: int) -> "_Arrays":
        """The first `length` positions in arrays of another capacity."""
        wider = _Arrays.empty(capacity)
        for source, target in zip(self.all(), wider.all(), strict=True):
            target[:length] = source[:length]
        return wider


class ChunkBuilder:
    """Growable arrays of one chunk."""

    def __init__(self, arrays: _Arrays | None = None, length: int = 0) -> None:
        self._arrays = arrays or _Arrays.empty(_SMALLEST)
        self.length = length

    def copy(self) -> "ChunkBuilder":
        """An independent builder with the same positions."""
        capacity = self._arrays.tokens.size
        return ChunkBuilder(self._arrays.resized(self.length, capacity), self.length)

    def append(
        self,
        turn: int,
        context: Ids,
        first_index: int,
        kind: Kind,
        synthetic: int,
        completion: Ids,
        logprobs: Floats,
    ) -> None:
        """Add one turn.

        Args:
            turn: its index.
            context: the ids that it adds to the stream before its completion.
            first_index: index of the first of them in the turn's prompt ‖ completion.
            kind: what they are.
            synthetic: how many of them, from the first, are of kind SYNTHETIC instead.
            completion: the sampled ids.
            logprobs: one per sampled id.
        """
        start = self.length
        seam = start + context.size
        stop = seam + completion.size
        if stop > self._arrays.tokens.size:
            self._grow(stop)
        arrays = self._arrays
        arrays.tokens[start:seam] = context
        arrays.tokens[seam:stop] = completion
        arrays.logprobs[seam:stop] = logprobs
        arrays.source_turn[start:stop] = turn
        arrays.source_index[start:stop] = np.arange(first_index, first_index + stop - start)
        arrays.kind[start:seam] = kind
        arrays.kind[seam:stop] = Kind.SAMPLED
        if synthetic:
            arrays.kind[start : start + synthetic] = Kind.SYNTHETIC
        self.length = stop

    def cut(self, scaffold: int, completion: int, tail: int) -> None:
        """Remove `scaffold` positions before the last `completion` ones, and `tail` at the end."""
        stop = self.length
        self.length = stop - scaffold - tail
        for array in self._arrays.all():
            moved = array[stop - completion : stop - tail]
            array[self.length - moved.size : self.length] = moved
        self._arrays.logprobs[self.length : stop] = 0

    def chunk(self) -> Chunk:
        """The positions so far, as arrays of their own."""
        exact = self._arrays.resized(self.length, self.length)
        loss_mask = exact.kind == Kind.SAMPLED
        for array in (*exact.all(), loss_mask):
            array.flags.writeable = False
        return Chunk(
            exact.tokens,
            loss_mask,
            exact.logprobs,
            exact.source_turn,
            exact.source_index,
            exact.kind,
        )

    def _grow(self, needed: int) -> None:
        capacity = self._arrays.tokens.size
        while capacity < needed:
            capacity *= 2
        self._arrays = self._arrays.resized(self.length, capacity)
