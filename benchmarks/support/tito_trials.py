"""Seeded trials: what a harness sends and an engine returns, turn by turn, without a tokenizer.

A conversation is kept in two spellings. The engine samples some tokens as two shorter ones; the
harness, which speaks text, sends them back as one. Written p for a prompt, a for a completion:

    p[0]      opening ‖ generation prompt
    a[i]      as it was sampled, with the stop token unless it was truncated
    p[i + 1]  p[i] ‖ a[i] as the harness spells it ‖ observation ‖ generation prompt

One compaction replaces the history by a summary, and one truncated completion is closed by the
template. Every sampled token has a log-probability of its own, so that it is found again in
whatever is made of the trial.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from t1_tito import TokenBytes

Ids = npt.NDArray[np.int32]

_BYTES = 256
_ORDINARY = 151_643
_SPECIAL_TEXT = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_, TURN_START, TURN_END = range(_ORDINARY, _ORDINARY + len(_SPECIAL_TEXT))
_NEWLINE, _USER, _ASSISTANT = 10, 1000, 1001
_PRINTABLE = (33, 127)
_LONGEST_TOKEN = 12
_SAMPLED_PER_TURN = 120
_SUMMARY = 500
_SPLITS_PER_TURN = 3
# float32 holds every one of so many multiples exactly
_LOGPROB_STEP = 2.0**-20


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary of the size that models have, where every longer token is two shorter ones.

    Attributes:
        token_bytes: the bytes behind every id.
        halves: int32 [V, 2], the two ids that spell the same; -1 where there are none.
    """

    token_bytes: TokenBytes
    halves: npt.NDArray[np.int32]


@cache
def vocabulary() -> Vocabulary:
    """Returns the vocabulary of all trials."""
    rng = np.random.default_rng(0)
    # pair k joins two earlier tokens: printable bytes first, then pairs before it
    share = rng.random((_ORDINARY - _BYTES, 2))
    low, high = _PRINTABLE
    pieces = [bytes([value]) for value in range(_BYTES)]
    halves = np.full((_ORDINARY + len(_SPECIAL_TEXT), 2), -1, np.int32)
    for token in range(_BYTES, _ORDINARY):
        choices = high - low + token - _BYTES
        pair = [int(part * choices) for part in share[token - _BYTES]]
        pair = [low + part if part < high - low else part - (high - low) + _BYTES for part in pair]
        # a token that would grow too long takes a single byte for its second half
        if len(pieces[pair[0]]) + len(pieces[pair[1]]) > _LONGEST_TOKEN:
            pair = [pair[0], low + token % (high - low)]
            if len(pieces[pair[0]]) == _LONGEST_TOKEN:
                pair[0] = low + token // (high - low) % (high - low)
        pieces.append(pieces[pair[0]] + pieces[pair[1]])
        halves[token] = pair
    special = dict(
        zip(range(_ORDINARY, _ORDINARY + len(_SPECIAL_TEXT)), _SPECIAL_TEXT, strict=True)
    )
    table = TokenBytes.from_tokens([*pieces, *([None] * len(_SPECIAL_TEXT))], special)
    return Vocabulary(table, halves)


@dataclass(frozen=True)
class Size:
    """How long a trial is.

    Attributes:
        turns: engine requests.
        tokens: tokens of prompt and completion of the last turn, had nothing been compacted.
    """

    turns: int
    tokens: int

    def __str__(self) -> str:
        """Names it as the figures do: 300x96k."""
        return f"{self.turns}x{self.tokens // 1000}k"


SIZES = (Size(30, 10_000), Size(100, 33_000), Size(300, 96_000), Size(1000, 300_000))


@dataclass(frozen=True)
class Mix:
    """What happens in a trial.

    Attributes:
        retokenized: share of the turns whose completion the harness spells in other ids.
        events: whether there is one compaction and one truncated completion.
    """

    retokenized: float
    events: bool

    def __str__(self) -> str:
        """Names it for a table."""
        if not self.retokenized and not self.events:
            return "clean"
        return f"{100 * self.retokenized:g} %" + ("" if self.events else " without events")


CLEAN = Mix(0.0, events=False)
MIXES = (CLEAN, Mix(0.0, events=True), Mix(0.01, events=True), Mix(0.1, events=True))


@dataclass(frozen=True)
class Step:
    """One turn, its prompt given as what it adds.

    Attributes:
        base_length: leading ids of the turn before that its prompt shares.
        added: int32, the rest of the prompt.
        completion: int32, the sampled ids.
        logprobs: float32, one per sampled id; no two of a trial are equal.
        finish_reason: "stop" or "length".
    """

    base_length: int
    added: Ids
    completion: Ids
    logprobs: npt.NDArray[np.float32]
    finish_reason: str

    def delta(self) -> dict[str, Any]:
        """Returns the fields of a `Turn` whose prompt is what it adds, as fresh lists."""
        added = self.added.tolist()
        return {**self._listed(), "prompt_ids": added, "base_length": self.base_length}

    def whole(self, prompt: Ids) -> dict[str, Any]:
        """Returns the fields of a `Turn` whose prompt is whole, as fresh lists.

        Every id is an object of its own, as `json.loads` would make them.
        """
        return {**self._listed(), "prompt_ids": prompt.tolist()}

    def delta_arrays(self) -> dict[str, Any]:
        """Returns the fields of a `Turn` whose prompt is what it adds, as arrays."""
        return {**self.arrays(self.added), "base_length": self.base_length}

    def arrays(self, prompt: Ids) -> dict[str, Any]:
        """Returns the fields of a `Turn` whose prompt is whole, as arrays."""
        return {
            "prompt_ids": prompt,
            "completion_ids": self.completion,
            "logprobs": self.logprobs,
            **self._rest(),
        }

    def _listed(self) -> dict[str, Any]:
        return {
            "completion_ids": self.completion.tolist(),
            "logprobs": self.logprobs.tolist(),
            **self._rest(),
        }

    def _rest(self) -> dict[str, Any]:
        return {"version_sent": 0, "version_received": 0, "finish_reason": self.finish_reason}


@dataclass(frozen=True)
class SyntheticTrial:
    """The turns of one trial.

    Attributes:
        steps: one per turn.
        retokenized: indices of the turns that the harness spells in other ids.
        compacted: index of the turn whose prompt is a summary, None where there is none.
        truncated: index of the turn that was cut, None where there is none.
    """

    steps: tuple[Step, ...]
    retokenized: frozenset[int]
    compacted: int | None
    truncated: int | None

    def prompts(self) -> Iterator[Ids]:
        """Yields the whole prompt of every turn, a fresh array each."""
        said = np.empty(0, np.int32)
        for step in self.steps:
            prompt = np.concatenate([said[: step.base_length], step.added])
            yield prompt
            said = np.concatenate([prompt, step.completion])

    @property
    def sampled(self) -> int:
        """Tokens sampled in all turns."""
        return sum(step.completion.size for step in self.steps)


def make_trial(size: Size, mix: Mix, seed: int = 0) -> SyntheticTrial:
    """Returns the trial of a size, a mix and a seed; equal arguments give equal trials."""
    return _Maker(size, mix, seed).trial()


class _Maker:
    def __init__(self, size: Size, mix: Mix, seed: int) -> None:
        self.size = size
        self.rng = np.random.default_rng([size.turns, size.tokens, seed])
        self.halves = vocabulary().halves
        self.opening = min(1000, size.tokens // 10)
        self.observed = (size.tokens - self.opening) // size.turns - _SAMPLED_PER_TURN
        self.truncated = size.turns * 3 // 10 if mix.events else None
        self.compacted = size.turns * 6 // 10 if mix.events else None
        self.retokenized = self._drawn(mix.retokenized)
        self.count = 0

    def _drawn(self, share: float) -> frozenset[int]:
        """Draws turns whose successor shows the drift: neither the last nor one before a summary."""
        if not share:
            return frozenset()
        ruled_out = {self.truncated, self.size.turns - 1}
        if self.compacted is not None:
            ruled_out.add(self.compacted - 1)
        fit = [turn for turn in range(self.size.turns) if turn not in ruled_out]
        count = max(1, round(share * self.size.turns))
        return frozenset(self.rng.choice(fit, count, replace=False).tolist())

    def trial(self) -> SyntheticTrial:
        added = self._text(self.opening, ends_turn=False)
        base, length, steps = 0, 0, list[Step]()
        for turn in range(self.size.turns):
            written = self._written(truncated=turn == self.truncated)
            sampled, first = written, written.size
            if turn in self.retokenized:
                # every other one drifts near its end only
                late = sorted(self.retokenized).index(turn) % 2 == 0
                sampled, first = self._split(written, 1 if late else _SPLITS_PER_TURN)
            finish = "length" if turn == self.truncated else "stop"
            steps.append(Step(base, added, sampled, self._logprobs(sampled.size), finish))
            length = base + added.size
            base, added = self._next_prompt(turn, length, sampled, written, first)
        return SyntheticTrial(tuple(steps), self.retokenized, self.compacted, self.truncated)

    def _next_prompt(
        self, turn: int, length: int, sampled: Ids, written: Ids, first: int
    ) -> tuple[int, Ids]:
        """Returns what the prompt after `turn`, whose own has `length` ids, shares and adds."""
        if turn + 1 == self.compacted:
            return 0, self._text(self.opening + _SUMMARY, ends_turn=False)
        closed = [TURN_END] if turn == self.truncated else []
        observed = self._text(self.observed - len(closed), ends_turn=True)
        base = length + first if turn in self.retokenized else length + sampled.size
        return base, np.concatenate([written[first:], np.array(closed, np.int32), observed])

    def _text(self, length: int, *, ends_turn: bool) -> Ids:
        """Returns a user message of `length` ids, with all that the template puts around it."""
        before = [_NEWLINE] if ends_turn else []
        before += [TURN_START, _USER, _NEWLINE]
        after = [TURN_END, _NEWLINE, TURN_START, _ASSISTANT, _NEWLINE]
        words = self._words(length - len(before) - len(after))
        return np.array([*before, *words, *after], np.int32)

    def _words(self, length: int) -> list[int]:
        return self.rng.integers(_BYTES, _ORDINARY, length).tolist()

    def _written(self, *, truncated: bool) -> Ids:
        """Returns a completion as the harness spells it."""
        words = self._words(_SAMPLED_PER_TURN - 1)
        return np.array(words + ([] if truncated else [TURN_END]), np.int32)

    def _split(self, written: Ids, count: int) -> tuple[Ids, int]:
        """Returns it as it was sampled, some ids as two; and the index of the first of them."""
        last = written.size - 2
        # one of them so near the end that an allowance for dropped stop tokens would reach it
        places = sorted(
            {
                int(self.rng.integers(last - 6, last + 1)),
                *self.rng.integers(0, last - 6, count - 1).tolist(),
            }
        )
        parts = [
            self.halves[token] if place in places else [token]
            for place, token in enumerate(written.tolist())
        ]
        return np.concatenate(parts).astype(np.int32), places[0]

    def _logprobs(self, length: int) -> npt.NDArray[np.float32]:
        first = self.count + 1
        self.count += length
        return (-_LOGPROB_STEP * np.arange(first, first + length)).astype(np.float32)
