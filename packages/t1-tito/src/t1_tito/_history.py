"""History: T = p‖a of the last turn, as the harness knows it.

After a repaired boundary the stream that is trained differs from the prompts that the harness sends,
so boundaries are decided on the prompts. They are kept as a list of array pieces: a delta turn adds
two of them, a prompt given whole replaces them all, and nothing is copied for either.
"""

from bisect import bisect_right

import numpy as np

from .turn import Ids

_EMPTY = np.empty(0, np.int32)


def common_prefix(left: Ids, right: Ids) -> int:
    """Length of the longest common prefix of two id arrays."""
    shared = min(left.size, right.size)
    if not shared:
        return 0
    differs = left[:shared] != right[:shared]
    first = int(differs.argmax())
    return first if differs[first] else shared


class History:
    """An id sequence made of pieces, which can be cut at its end and extended."""

    def __init__(self, *pieces: Ids) -> None:
        self._pieces: list[Ids] = []
        self._starts: list[int] = []
        self.length = 0
        self.extend(*pieces)

    def copy(self) -> "History":
        """An independent history over the same arrays."""
        return History(*self._pieces)

    def truncate(self, length: int) -> None:
        """Keep the first `length` ids."""
        if length == self.length:
            return
        while self._starts and self._starts[-1] >= length:
            self._starts.pop()
            self._pieces.pop()
        if self._starts:
            self._pieces[-1] = self._pieces[-1][: length - self._starts[-1]]
        self.length = length

    def extend(self, *pieces: Ids) -> None:
        """Append ids; the arrays are kept, not copied."""
        for ids in pieces:
            if ids.size:
                self._starts.append(self.length)
                self._pieces.append(ids)
                self.length += ids.size

    def window(self, start: int, stop: int) -> Ids:
        """The ids [start:stop), in time of the pieces that it touches."""
        pieces: list[Ids] = []
        for number in range(max(bisect_right(self._starts, start) - 1, 0), len(self._pieces)):
            first = self._starts[number]
            if first >= stop:
                break
            pieces.append(self._pieces[number][max(start - first, 0) : stop - first])
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else _EMPTY

    def common_prefix(self, ids: Ids) -> int:
        """Length of the longest common prefix with an id array, in one comparison of both."""
        shared = 0
        for start, piece in zip(self._starts, self._pieces, strict=True):
            equal = common_prefix(piece, ids[start:])
            shared += equal
            if equal < piece.size:
                break
        return shared
