"""Where each id of a turn stands in the stream, once the two no longer run side by side."""

import numpy as np
import numpy.typing as npt

from t1_tito.turn import Ids


class PositionMap:
    """For each index of T of the turn placed last, the stream positions [low, high) it stands for.

    Rewritten from an index on, so a long history that stays the same costs nothing.
    """

    def __init__(self, length: int) -> None:
        """Start with `length` indices that stand for the position of the same number."""
        self._low = np.arange(length, dtype=np.int32)
        self._high = self._low + 1
        self.length = length

    def ranges(self, start: int, stop: int) -> tuple[Ids, Ids]:
        """`low` and `high` of the indices [start, stop), int32, copied."""
        return self._low[start:stop].copy(), self._high[start:stop].copy()

    def rewrite(self, start: int, low: npt.ArrayLike, high: npt.ArrayLike) -> None:
        """Replace everything from index `start` on."""
        lows, highs = np.asarray(low, np.int32), np.asarray(high, np.int32)
        stop = start + lows.size
        if stop > self._low.size:
            room = max(stop, 2 * self._low.size) - self._low.size
            empty = np.empty(room, np.int32)
            self._low = np.concatenate((self._low, empty))
            self._high = np.concatenate((self._high, empty))
        self._low[start:stop], self._high[start:stop] = lows, highs
        self.length = stop

    def append(self, start: int, stop: int) -> None:
        """Let the next indices stand for the positions [start, stop), one each."""
        positions = np.arange(start, stop, dtype=np.int32)
        self.rewrite(self.length, positions, positions + 1)
