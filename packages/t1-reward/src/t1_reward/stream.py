"""Seeded uniform draws that are the same on every Python version and machine.

Block number c (from 0) of a stream is BLAKE2b-512 of the UTF-8 text `key/c`, where `key` is the
stream's parts joined by `/`; a block is read as eight little-endian 64-bit words. Every draw is
defined on these words alone, so a seed fixes a task, a pool and a training order for good.

The stream knows nothing of what is drawn from it.
"""

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

__all__ = ["Stream"]

Item = TypeVar("Item")

_WORDS = struct.Struct("<8Q")
_WORD_RANGE = 1 << 64


class Stream:
    """An endless sequence of 64-bit words named by its key.

    Args:
        *key: parts that name the stream, for example a purpose and a seed. Equal parts give equal
            streams; parts are compared by their text.
    """

    def __init__(self, *key: str | int) -> None:
        self._key = "/".join(map(str, key))
        self._block = 0
        self._words: list[int] = []

    def word(self) -> int:
        """Returns the next 64-bit word."""
        if not self._words:
            block = hashlib.blake2b(f"{self._key}/{self._block}".encode()).digest()
            self._block += 1
            self._words = list(reversed(_WORDS.unpack(block)))
        return self._words.pop()

    def random(self) -> float:
        """Returns a float in [0, 1) with 53 random bits."""
        return (self.word() >> 11) * 2.0**-53

    def below(self, bound: int) -> int:
        """Returns an integer in [0, bound), every value equally likely.

        Raises:
            ValueError: bound is not in 1 .. 2**64.
        """
        if not 0 < bound <= _WORD_RANGE:
            raise ValueError(f"bound: expected 1 .. 2**64, got {bound}")
        # words of the last, incomplete run of `bound` values would favour small results
        limit = _WORD_RANGE - _WORD_RANGE % bound
        while (word := self.word()) >= limit:
            pass
        return word % bound

    def choice(self, items: Sequence[Item]) -> Item:
        """Returns one of the items."""
        return items[self.below(len(items))]

    def weighted(self, weights: Sequence[int]) -> int:
        """Returns an index, drawn with the given integer weights."""
        ends = list(accumulate(weights))
        return bisect_right(ends, self.below(ends[-1]))

    def permutation(self, items: Sequence[Item]) -> list[Item]:
        """Returns the items in random order (Fisher-Yates from the end)."""
        shuffled = list(items)
        for last in range(len(shuffled) - 1, 0, -1):
            other = self.below(last + 1)
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled
