"""Drawing the material of a task: names and values that belong to one split only.

A name is two or three syllables (consonant, vowel). Whether a name is a training or a held-out
name is a property of the name: the first byte of its BLAKE2b digest, modulo 4, is 0 for held-out
names. Values are split by value too: a number n is held out when n % 4 == 3, a file mode when its
place in the sorted list of modes is. So no name and no value ever occurs in both splits, whatever
the seeds.

Within one task no name is part of another, nor part of a phrase of the task language; otherwise
grep, sed and find would match more than they are meant to.
"""

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from t1_reward.stream import Stream

__all__ = ["MODES", "SYLLABLES", "Draw", "Split", "split_of_name", "split_of_number"]

Item = TypeVar("Item")

SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
_SYLLABLE_COUNTS = (2, 2, 3)

# the owner can always read; 644 is what a new file has anyway, so nothing would need doing
MODES = tuple(
    f"{owner}{group}{other}"
    for owner in range(4, 8)
    for group in range(8)
    for other in range(8)
    if (owner, group, other) != (6, 4, 4)
)

# words of instructions, commands and outputs that contain two syllables or more
_LANGUAGE = (
    "delete", "directory", "file", "lines", "make", "mode", "move", "named", "remove", "restore",
    "save", "size", "symbolic", "updated", "value",
)  # fmt: skip


class Split(StrEnum):
    """Which side of the train/held-out divide a task lies on."""

    TRAIN = "train"
    HELDOUT = "heldout"


def split_of_name(name: str) -> Split:
    """Returns the split a name belongs to."""
    digest = hashlib.blake2b(name.encode(), digest_size=1).digest()
    return Split.TRAIN if digest[0] % 4 else Split.HELDOUT


def split_of_number(number: int) -> Split:
    """Returns the split a number (a count, a column, a number to sort) belongs to."""
    return Split.HELDOUT if number % 4 == 3 else Split.TRAIN


_MODES_OF = {
    split: tuple(mode for place, mode in enumerate(MODES) if split_of_number(place) is split)
    for split in Split
}


class Draw:
    """Draws for one task; remembers the names it gave out.

    Args:
        stream: where the randomness comes from.
        split: which names and values may be used.
    """

    def __init__(self, stream: Stream, split: Split) -> None:
        self._stream = stream
        self._split = split
        self._taken: list[str] = list(_LANGUAGE)

    def name(self) -> str:
        """Returns a new name of the split."""
        while True:
            count = self._stream.choice(_SYLLABLE_COUNTS)
            name = "".join(self._stream.choice(SYLLABLES) for _ in range(count))
            fresh = not any(name in taken or taken in name for taken in self._taken)
            if fresh and split_of_name(name) is self._split:
                self._taken.append(name)
                return name

    def distinct_names(self, count: int) -> list[str]:
        """Returns `count` new names."""
        return [self.name() for _ in range(count)]

    def mode(self) -> str:
        """Returns a file mode as three octal digits; never 644."""
        return self._stream.choice(_MODES_OF[self._split])

    def two_modes(self) -> tuple[str, str]:
        """Returns two different modes."""
        first, second = self._stream.permutation(_MODES_OF[self._split])[:2]
        return first, second

    def number(self, low: int, high: int) -> int:
        """Returns a number in [low, high] that belongs to the split."""
        return self.numbers(low, high, 1)[0]

    def numbers(self, low: int, high: int, count: int) -> list[int]:
        """Returns `count` different numbers in [low, high] that belong to the split."""
        allowed = [n for n in range(low, high + 1) if split_of_number(n) is self._split]
        return self._stream.permutation(allowed)[:count]

    def size(self, low: int, high: int) -> int:
        """Returns how many of something to make: a size of the task, not a value in it."""
        return low + self._stream.below(high - low + 1)

    def choice(self, items: Sequence[Item]) -> Item:
        """Returns one of the items."""
        return self._stream.choice(items)

    def shuffled(self, items: Sequence[Item]) -> list[Item]:
        """Returns the items in random order."""
        return self._stream.permutation(items)
