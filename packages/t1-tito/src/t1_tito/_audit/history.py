"""The ids behind every turn, read from the turns alone: any slice of T = p‖a without laying it out.

A prompt that is given as `base_length` and a suffix is spelled by the turns before it, so a slice is
collected by walking back until a turn gives the ids themselves. A slice near the end of T costs its
own length. Nothing here knows chunks.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from t1_tito.errors import TurnError
from t1_tito.turn import Ids, Turn

_BLOCK = 1 << 15
_NO_IDS: Ids = np.empty(0, np.int32)


def common_prefix(left: npt.NDArray[np.generic], right: npt.NDArray[np.generic]) -> int:
    """Length of the longest common prefix; stops at the block that holds the first difference."""
    length = min(left.size, right.size)
    for start in range(0, length, _BLOCK):
        stop = min(start + _BLOCK, length)
        different = left[start:stop] != right[start:stop]
        first = int(different.argmax())
        if different[first]:
            return start + first
    return length


def _turns(given: object) -> tuple[Turn, ...]:
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise TurnError("turns", None, f"expected a list of Turn, got {type(given).__name__}")
    turns = tuple(cast("Iterable[object]", given))
    for index, one in enumerate(turns):
        if not isinstance(one, Turn):
            problem = f"expected a Turn, got {type(one).__name__}; build one with Turn(...)"
            raise TurnError("turns", index, problem)
    return cast("tuple[Turn, ...]", turns)


class History:
    """Sizes and ids of n turns.

    Attributes:
        turns: the turns.
        prompt_lengths: int64 [n], P of each turn.
        lengths: int64 [n], |T| of each turn.
    """

    def __init__(self, turns: Sequence[Turn]) -> None:
        """Measure the turns.

        Raises:
            TurnError: something is no `Turn`, or builds on more ids than the turn before it has.
        """
        self.turns = _turns(turns)
        prompts = [turn.prompt_length for turn in self.turns]
        lengths = [turn.length for turn in self.turns]
        for index, turn in enumerate(self.turns):
            before = lengths[index - 1] if index else 0
            if turn.base_length > before:
                problem = f"{turn.base_length} leading ids of a turn before that has {before}"
                raise TurnError("base_length", None, problem, index)
        self.prompt_lengths = np.array(prompts, np.int64)
        self.lengths = np.array(lengths, np.int64)

    def __len__(self) -> int:
        return len(self.turns)

    def ids(self, turn: int, start: int, stop: int) -> Ids:
        """T of a turn from `start` to `stop`, both within [0, |T|]; a view where it can be one."""
        pieces: list[Ids] = []
        while start < stop:
            one = self.turns[turn]
            seam = one.prompt_length
            if stop > seam:
                pieces.append(one.completion_ids[max(start - seam, 0) : stop - seam])
                stop = max(start, seam)
            elif stop > one.base_length:
                base = one.base_length
                pieces.append(one.prompt_ids[max(start - base, 0) : stop - base])
                stop = max(start, base)
            else:
                turn -= 1
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces[::-1]) if pieces else _NO_IDS

    def shared(self, turn: int) -> int:
        """Length of the longest common prefix of the prompt of `turn` > 0 and T of the turn before.

        Ids that a turn takes over by its base length are shared by its own word and not read.
        """
        base = self.turns[turn].base_length
        prompt = self.turns[turn].prompt_ids
        earlier = self.turns[turn - 1]
        if base or earlier.base_length:
            stop = min(int(self.lengths[turn - 1]), base + prompt.size)
            return base + common_prefix(self.ids(turn - 1, base, stop), prompt)
        # two whole prompts are compared in place
        seam = earlier.prompt_ids.size
        length = common_prefix(earlier.prompt_ids, prompt)
        if length < seam:
            return length
        return seam + common_prefix(earlier.completion_ids, prompt[seam:])

    def agreement(self, stream: Ids, turn: int, start: int, stop: int) -> int:
        """First index >= `start` at which `stream` leaves T of `turn`, at most `stop`."""
        return start + common_prefix(stream[start:stop], self.ids(turn, start, stop))
