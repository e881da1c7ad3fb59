"""How others merge turns into samples, by what they document, on lists as JSON gives them.

Each takes turns one by one and returns samples. They are written anew from the behaviour described,
to be timed on equal terms: the same input, no log lines, no fields beyond the four that matter.

    GreedyPrefixMerge  as SkyRL merges step-wise samples: a turn joins the sample before it while
                       that sample's tokens begin its prompt, and opens a new one where they do not.
                       Each step builds both lists anew.
    RealigningBuilder  as slime builds samples: an exact continuation is appended. A difference
                       within the last completion is overwritten by the prompt's spelling, without
                       loss, unless the new completion is long. Any other opens a new sample.
    PairwiseMerge      as miles merges samples: two at a time, on full copies of both, and an error
                       where the earlier one does not begin the later one.
"""

import copy
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Sample:
    """One training sample; all lists have one entry per token."""

    tokens: list[int]
    loss_mask: list[int]
    logprobs: list[float]


class Merger(Protocol):
    """Anything that makes samples of turns."""

    def add(self, prompt: list[int], completion: list[int], logprobs: list[float]) -> None:
        """Takes the next turn."""
        ...

    def finish(self) -> list[Sample]:
        """Returns all samples."""
        ...


class GreedyPrefixMerge:
    """Merges while the sample so far begins the next prompt."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._prompt: list[int] = []
        self._response: list[int] = []
        self._mask: list[int] = []
        self._logprobs: list[float] = []

    def add(self, prompt: list[int], completion: list[int], logprobs: list[float]) -> None:
        """Takes the next turn."""
        seen = self._prompt + self._response
        if seen and prompt[: len(seen)] == seen:
            observed = prompt[len(seen) :]
            self._response = self._response + observed + completion
            self._mask = self._mask + [0] * len(observed) + [1] * len(completion)
            self._logprobs = self._logprobs + [0.0] * len(observed) + logprobs
            return
        self._flush()
        self._prompt, self._response = list(prompt), list(completion)
        self._mask, self._logprobs = [1] * len(completion), list(logprobs)

    def finish(self) -> list[Sample]:
        """Returns all samples."""
        self._flush()
        return self._samples

    def _flush(self) -> None:
        if self._prompt:
            context = len(self._prompt)
            self._samples.append(
                Sample(
                    self._prompt + self._response,
                    [0] * context + self._mask,
                    [0.0] * context + self._logprobs,
                )
            )


class RealigningBuilder:
    """Appends, overwrites the last completion, or opens a new sample."""

    LONG = 1024
    _BLOCK = 4096

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._last = 0

    def add(self, prompt: list[int], completion: list[int], logprobs: list[float]) -> None:
        """Takes the next turn."""
        sample = self._samples[-1] if self._samples else None
        if sample is None:
            sample = self._open()
        else:
            common = self._common(sample.tokens, prompt)
            if common < len(sample.tokens):
                if common >= self._last and len(completion) < self.LONG:
                    for values in (sample.tokens, sample.loss_mask, sample.logprobs):
                        del values[self._last :]
                else:
                    sample = self._open()
        self._extend(sample, prompt[len(sample.tokens) :], None)
        self._last = len(sample.tokens)
        self._extend(sample, completion, logprobs)

    def finish(self) -> list[Sample]:
        """Returns all samples."""
        return self._samples

    def _open(self) -> Sample:
        self._samples.append(Sample([], [], []))
        return self._samples[-1]

    @staticmethod
    def _extend(sample: Sample, ids: list[int], logprobs: list[float] | None) -> None:
        sample.tokens.extend(ids)
        sample.loss_mask.extend([0 if logprobs is None else 1] * len(ids))
        sample.logprobs.extend([0.0] * len(ids) if logprobs is None else logprobs)

    def _common(self, held: list[int], prompt: list[int]) -> int:
        """Length of the common prefix, a block at a time and then an id at a time."""
        limit = min(len(held), len(prompt))
        for start in range(0, limit, self._BLOCK):
            stop = min(start + self._BLOCK, limit)
            if held[start:stop] != prompt[start:stop]:
                return next(i for i in range(start, stop) if held[i] != prompt[i])
        return limit


@dataclass
class _Turn:
    tokens: list[int]
    response_length: int
    loss_mask: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class PairwiseMerge:
    """Merges two at a time, on full copies; raises where one does not continue the other.

    Raises:
        AssertionError: from `add`, where the turns so far do not begin the turn.
    """

    def __init__(self) -> None:
        self._merged: _Turn | None = None

    def add(self, prompt: list[int], completion: list[int], logprobs: list[float]) -> None:
        """Takes the next turn."""
        turn = _Turn(prompt + completion, len(completion), [1] * len(completion), list(logprobs))
        self._merged = turn if self._merged is None else self._pair(self._merged, turn)

    def finish(self) -> list[Sample]:
        """Returns the one sample."""
        assert self._merged is not None
        context = len(self._merged.tokens) - self._merged.response_length
        return [
            Sample(
                self._merged.tokens,
                [0] * context + self._merged.loss_mask,
                [0.0] * context + self._merged.logprobs,
            )
        ]

    @staticmethod
    def _pair(earlier: _Turn, later: _Turn) -> _Turn:
        earlier, later = copy.deepcopy(earlier), copy.deepcopy(later)
        if later.tokens[: len(earlier.tokens)] != earlier.tokens:
            raise AssertionError("the later turn does not begin with the earlier one's tokens")
        observed = len(later.tokens) - len(earlier.tokens) - later.response_length
        return _Turn(
            later.tokens,
            earlier.response_length + observed + later.response_length,
            earlier.loss_mask + [0] * observed + later.loss_mask,
            earlier.logprobs + [0.0] * observed + later.logprobs,
        )


LIST_MERGERS: dict[str, type[Merger]] = {
    "SkyRL: greedy prefix merge": GreedyPrefixMerge,
    "slime: clean/realign/fork": RealigningBuilder,
    "miles: pairwise merge": PairwiseMerge,
}
