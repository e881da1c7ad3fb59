"""Provenance of a sample that carries none: which turn each of its tokens came from.

A stretch with loss is one or more completions. Each is located among the turns, in this order:

    1. a turn whose prompt has the length of all that stands before it and ends in the same ids; of
       such a turn half of the completion may be damaged, it is still the one to compare with
    2. the next turn, then each turn behind it, then the earlier ones, if the ids are equal
    3. a turn that the stretch is the beginning of, then the next turn if half of the ids agree

Context is given to the prompt of the completion behind it as far as both end alike, and what a turn
without a completion added, to that turn.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ._audit.history import History, common_prefix
from .turn import Ids, Turn

_ENDING = 64
"""Ids compared at the end of a prompt; its length must fit as well."""


def recover(
    tokens: npt.ArrayLike,
    loss_mask: npt.ArrayLike,
    turns: Sequence[Turn],
    *,
    taken: Collection[int] = (),
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Locate the tokens of a sample in the turns it was made of.

    Args:
        tokens: ids [N].
        loss_mask: bool [N], True where a token was sampled.
        turns: the turns of the trial, in order.
        taken: turns that other samples of the trial hold already; of turns that fit equally, another
            one is preferred.

    Returns:
        (source_turn, source_index), int32 [N] each, -1 where no turn explains a token. In a sample
        whose prompts its tokens do not show, completions of equal ids cannot be told apart and go
        to the earliest turn that is still free.

    Raises:
        TurnError: something in `turns` is no `Turn`, or builds on more ids than the turn before it has.
    """
    ids = np.asarray(tokens, np.int32)
    mask = np.asarray(loss_mask, bool)
    search = _Search(ids, History(turns), frozenset(taken))
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    for start, stop in edges.reshape(-1, 2).tolist():
        search.stretch(start, stop)
    search.rest()
    return search.source_turn, search.source_index


@dataclass
class _Search:
    """Fills the two arrays from left to right."""

    tokens: Ids
    history: History
    taken: frozenset[int]
    turn: int = -1
    end: int = 0
    used: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.source_turn = np.full(self.tokens.size, -1, np.int32)
        self.source_index = np.full(self.tokens.size, -1, np.int32)
        self.by_prompt_length: dict[int, list[int]] = {}
        for index, length in enumerate(self.history.prompt_lengths.tolist()):
            self.by_prompt_length.setdefault(length, []).append(index)

    def stretch(self, start: int, stop: int) -> None:
        """Locate the completions of one stretch with loss."""
        if start < self.end:
            # a hole in the loss mask of the completion located last
            start = min(self.end, stop)
        while start < stop:
            turn = self._locate(start, stop)
            if turn is None:
                return
            self._opening(turn, start)
            self._empty_turns(turn, start)
            self._context(turn, start)
            length = self._extent(turn, start, stop)
            self._assign(turn, start, int(self.history.prompt_lengths[turn]), length)
            self.turn, self.end = turn, start + length
            self.used.add(turn)
            start = self.end

    def rest(self) -> None:
        """Give the context behind the last completion to turns that sampled nothing."""
        self._empty_turns(len(self.history), self.tokens.size)

    def _completion(self, turn: int) -> Ids:
        return self.history.turns[turn].completion_ids

    def _extent(self, turn: int, start: int, stop: int) -> int:
        """Tokens of a completion from `start` on: all with loss, behind it as far as ids agree."""
        completion = self._completion(turn)
        with_loss = min(completion.size, stop - start)
        rest = self.tokens[start + with_loss :]
        return with_loss + common_prefix(rest, completion[with_loss:])

    def _fitting(self, start: int) -> list[int]:
        """Turns whose prompt is as long as the sample before `start` and ends alike."""
        least = max(0, start - _ENDING)
        ending = self.tokens[least:start]
        return [
            turn
            for turn in self.by_prompt_length.get(start, ())
            if self._free(turn) and np.array_equal(self.history.ids(turn, least, start), ending)
        ]

    def _free(self, turn: int) -> bool:
        return turn not in self.used and self._completion(turn).size > 0

    def _locate(self, start: int, stop: int) -> int | None:
        fitting = [(self._fit(turn, start, stop), turn) for turn in self._fitting(start)]
        if fitting and 2 * max(fitting)[0][1] >= 1:
            return max(fitting, key=lambda pair: pair[0])[1]
        begun: int | None = None
        order = [*range(self.turn + 1, len(self.history)), *range(self.turn + 1)]
        # a stable sort: turns that no other sample holds first, each part in its order
        order.sort(key=self.taken.__contains__)
        for turn in order:
            if not self._free(turn) or self._agreement(turn, start, stop) < 1:
                continue
            if self._completion(turn).size <= stop - start:
                return turn
            begun = turn if begun is None else begun
        following = self.turn + 1
        if begun is not None or following >= len(self.history) or not self._free(following):
            return begun
        return following if 2 * self._agreement(following, start, stop) >= 1 else None

    def _fit(self, turn: int, start: int, stop: int) -> tuple[bool, float, int, bool]:
        """Whole completions before beginnings and damaged ones, long ones before short ones."""
        agreement, size = self._agreement(turn, start, stop), self._completion(turn).size
        whole = agreement == 1 and size <= stop - start
        return whole, agreement, size, turn not in self.taken

    def _agreement(self, turn: int, start: int, stop: int) -> float:
        """Share of equal ids, over the shorter of the completion and the stretch."""
        completion = self._completion(turn)
        length = min(completion.size, stop - start)
        equal = self.tokens[start : start + length] == completion[:length]
        return float(np.count_nonzero(equal)) / length

    def _context(self, turn: int, start: int) -> None:
        """The tokens before `start` that the prompt of `turn` ends with."""
        seam = int(self.history.prompt_lengths[turn])
        length = min(start - self.end, seam)
        prompt = self.history.ids(turn, seam - length, seam)
        length = common_prefix(self.tokens[start - length : start][::-1], prompt[::-1])
        self._assign(turn, start - length, seam - length, length)

    def _opening(self, turn: int, start: int) -> None:
        """A sample may open with the prompt of a turn that sampled nothing, which `turn` re-spells."""
        seam = int(self.history.prompt_lengths[turn])
        if self.end or (seam == start and self._begins_with(turn)):
            return
        for empty in range(turn - 1, -1, -1):
            seam = int(self.history.prompt_lengths[empty])
            if self._completion(empty).size:
                return
            if seam <= start and self._begins_with(empty):
                self._assign(empty, 0, 0, seam)
                self.turn, self.end = empty, seam
                return

    def _begins_with(self, turn: int) -> bool:
        """Whether the sample begins with the whole prompt of a turn."""
        seam = int(self.history.prompt_lengths[turn])
        return np.array_equal(self.history.ids(turn, 0, seam), self.tokens[:seam])

    def _empty_turns(self, before: int, stop: int) -> None:
        """Turns without a completion that lie between the last located turn and `before`."""
        for turn in range(self.turn + 1, before):
            if self._completion(turn).size or self.end >= stop or self.turn != turn - 1:
                return
            seam = int(self.history.prompt_lengths[turn])
            added = self._added(turn, before, stop)
            place = self.end + added
            if not 0 < added <= seam or place > stop:
                return
            prompt = self.history.ids(turn, seam - added, seam)
            if not np.array_equal(prompt, self.tokens[self.end : place]):
                return
            self._assign(turn, self.end, seam - added, added)
            self.turn, self.end = turn, place

    def _added(self, turn: int, before: int, stop: int) -> int:
        """Ids of context that a turn without a completion added to the sample."""
        seam = int(self.history.prompt_lengths[turn])
        if (
            turn == before - 1
            and before < len(self.history)
            and self.history.shared(before) == seam
        ):
            # the completion at `stop` extends it, and what lies between is the context of both
            return stop - self.end - (int(self.history.prompt_lengths[before]) - seam)
        return seam - int(self.history.lengths[turn - 1]) if turn else seam

    def _assign(self, turn: int, start: int, index: int, length: int) -> None:
        self.source_turn[start : start + length] = turn
        self.source_index[start : start + length] = np.arange(index, index + length)
