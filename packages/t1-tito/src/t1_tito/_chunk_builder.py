"""A chunk under construction: flat arrays with room to grow.

Ids and log-probabilities are written when they come; capacity doubles, so n tokens cost O(n) however
many turns bring them. What else is said of a position (its turn, its index there, its kind) is the
same or counts up over a whole segment, so it is kept per segment and laid out when a chunk is asked
for. Positions are only ever added, but for `cut`, by which a rewriting policy removes the end of a
prompt and of its completion.
"""

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from .trial import Chunk, Kind
from .turn import Floats, Ids

_SMALLEST = 1024
_Scalar = TypeVar("_Scalar", bound=np.generic)


class _Segment(NamedTuple):
    """Consecutive positions of one turn and kind, `index` being the first one's in the turn."""

    turn: int
    kind: Kind
    index: int
    length: int


class ChunkBuilder:
    """Growable arrays of one chunk."""

    def __init__(self) -> None:
        self.length = 0
        self._tokens: Ids = np.empty(_SMALLEST, np.int32)
        # positions without loss are never written: they keep the 0 they start with
        self._logprobs: Floats = np.zeros(_SMALLEST, np.float32)
        self._segments: list[_Segment] = []

    def __copy__(self) -> "ChunkBuilder":
        """An independent builder with the same positions."""
        twin = type(self).__new__(type(self))
        vars(twin).update(
            length=self.length,
            _tokens=self._tokens.copy(),
            _logprobs=self._logprobs.copy(),
            _segments=self._segments.copy(),
        )
        return twin

    def append(self, turn: int, kind: Kind, index: int, ids: Ids) -> None:
        """Add context ids of one turn, the first of them at `index` of its prompt ‖ completion."""
        if not ids.size:
            return
        start, stop = self._room(ids.size)
        self._tokens[start:stop] = ids
        self._segments.append(_Segment(turn, kind, index, ids.size))

    def append_sampled(self, turn: int, index: int, ids: Ids, logprobs: Floats) -> None:
        """Add a completion, its first id at `index` of its turn."""
        if not ids.size:
            return
        start, stop = self._room(ids.size)
        self._tokens[start:stop] = ids
        self._logprobs[start:stop] = logprobs
        self._segments.append(_Segment(turn, Kind.SAMPLED, index, ids.size))

    def cut(self, scaffold: int, tail: int) -> None:
        """Remove `scaffold` positions before the last completion, and `tail` from its end."""
        *before, context, completion = self._segments
        stop = self.length
        self.length = stop - scaffold - tail
        for array in (self._tokens, self._logprobs):
            moved = array[stop - completion.length : stop - tail]
            array[self.length - moved.size : self.length] = moved
        self._logprobs[self.length : stop] = 0
        context = context._replace(length=context.length - scaffold)
        completion = completion._replace(length=completion.length - tail)
        self._segments = [*before, *(part for part in (context, completion) if part.length)]

    def chunk(self) -> Chunk:
        """The positions so far, as arrays of their own."""
        lengths = [segment.length for segment in self._segments]
        starts = np.cumsum(lengths) - lengths
        shifts = np.array([segment.index for segment in self._segments], np.int64) - starts
        index = np.arange(self.length, dtype=np.int32)
        index += np.repeat(shifts.astype(np.int32), lengths)
        turns = np.array([segment.turn for segment in self._segments], np.int32)
        kinds = np.array([segment.kind for segment in self._segments], np.uint8)
        kind = np.repeat(kinds, lengths)
        return Chunk(
            tokens=_frozen(self._tokens[: self.length].copy()),
            loss_mask=_frozen(kind == Kind.SAMPLED),
            logprobs=_frozen(self._logprobs[: self.length].copy()),
            source_turn=_frozen(np.repeat(turns, lengths)),
            source_index=_frozen(index),
            kind=_frozen(kind),
        )

    def _room(self, size: int) -> tuple[int, int]:
        """Make room for more positions; returns their bounds."""
        start = self.length
        stop = start + size
        if stop > self._tokens.size:
            capacity = max(stop, 2 * self._tokens.size)
            self._tokens = _widened(self._tokens, start, np.empty(capacity, np.int32))
            self._logprobs = _widened(self._logprobs, start, np.zeros(capacity, np.float32))
        self.length = stop
        return start, stop


def _widened(
    array: npt.NDArray[_Scalar], length: int, wider: npt.NDArray[_Scalar]
) -> npt.NDArray[_Scalar]:
    wider[:length] = array[:length]
    return wider


def _frozen(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.flags.writeable = False
    return array
