"""Fidelity: what an assembled trial promises, checked against its turns alone.

    alignment     a trial has turns and chunks, a chunk has tokens, and its five arrays have one
                  length and their documented dtypes
    provenance    every (source_turn, source_index) exists; a token carries loss exactly if its
                  source lies in a completion
    emission      every loss position holds the id its own turn sampled
    context       every other position holds the id its own turn was prompted with
    logprob       loss positions carry their turn's log-probability bit for bit, others 0
    once          every sampled token is trained exactly once over all chunks
    conditioning  the tokens before a completion are exactly the prompt it was sampled under, and
                  each comes from its own index there

The checks read turns and arrays; they share no code with the assembly.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import FidelityError
from .payload import runs
from .trial import Chunk, Trial
from .turn import Floats, Ids, Turn

_DTYPES = {
    "tokens": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "source_turn": np.int32,
    "source_index": np.int32,
}


@dataclass(frozen=True)
class _Laid:
    """The T of all turns, at least one, laid end to end: what the arrays of a chunk must repeat."""

    starts: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]
    ids: Ids
    sampled: npt.NDArray[np.bool_]
    logprobs: Floats

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> "_Laid":
        lengths = np.array([turn.length for turn in turns])
        sizes = [(turn.prompt_ids.size, turn.completion_ids.size) for turn in turns]
        sampled = np.repeat(np.tile([False, True], len(turns)), np.ravel(sizes))
        logprobs = np.zeros(sampled.size, np.float32)
        logprobs[sampled] = np.concatenate([turn.logprobs for turn in turns])
        return cls(
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            ids=np.concatenate(
                [ids for turn in turns for ids in (turn.prompt_ids, turn.completion_ids)]
            ),
            sampled=sampled,
            logprobs=logprobs,
        )

    def position(self, chunk: Chunk) -> npt.NDArray[np.int64]:
        """Index of every token's source into the laid arrays; -1 where it does not exist."""
        known = (chunk.source_turn >= 0) & (chunk.source_turn < self.lengths.size)
        turn = np.where(known, chunk.source_turn, 0)
        known &= (chunk.source_index >= 0) & (chunk.source_index < self.lengths[turn])
        return np.where(known, self.starts[turn] + chunk.source_index, -1)


def emission_drift(trial: Trial) -> int:
    """Count loss positions whose token is not the id their own turn sampled there.

    Exactly 0 for every trial from `assemble`. A loss position whose source lies outside its turn's
    completion, or does not exist, counts as drift.
    """
    laid = _Laid.of(trial.turns)
    drift = 0
    for chunk in trial.chunks:
        source = laid.position(chunk)[chunk.loss_mask]
        kept = (
            (source >= 0)
            & laid.sampled[source]
            & (laid.ids[source] == chunk.tokens[chunk.loss_mask])
        )
        drift += int(np.count_nonzero(~kept))
    return drift


def check_trial(trial: Trial) -> None:
    """Verify every invariant of this module, in O(tokens of all turns).

    Raises:
        FidelityError: the first invariant broken, with chunk and position.
    """
    if not trial.turns or not trial.chunks:
        held = f"{len(trial.turns)} turns and {len(trial.chunks)} chunks"
        raise FidelityError("alignment", None, None, f"expected at least one of each, got {held}")
    laid = _Laid.of(trial.turns)
    for index, chunk in enumerate(trial.chunks):
        _check_alignment(index, chunk)
        _check_sources(index, chunk, laid)
    _check_once(trial, laid)
    for index, chunk in enumerate(trial.chunks):
        _check_conditioning(index, chunk, laid)


def _require(holds: npt.NDArray[np.bool_], invariant: str, chunk: int | None, problem: str) -> None:
    if not holds.all():
        raise FidelityError(invariant, chunk, int(np.argmin(holds)), problem)


def _check_alignment(index: int, chunk: Chunk) -> None:
    if not len(chunk):
        raise FidelityError("alignment", index, None, "the chunk holds no token")
    for name, dtype in _DTYPES.items():
        array = getattr(chunk, name)
        if array.shape != (len(chunk),) or array.dtype != dtype:
            raise FidelityError(
                "alignment",
                index,
                None,
                f"{name} should be {np.dtype(dtype)} [{len(chunk)}], "
                f"is {array.dtype} {list(array.shape)}",
            )


def _check_sources(index: int, chunk: Chunk, laid: _Laid) -> None:
    source, mask = laid.position(chunk), chunk.loss_mask
    _require(source >= 0, "provenance", index, "the source is outside of every turn")
    _require(
        mask == laid.sampled[source],
        "provenance",
        index,
        "loss_mask disagrees with the source, which is "
        "a completion where it should be True and a prompt where it should be False",
    )
    same = chunk.tokens == laid.ids[source]
    _require(same | ~mask, "emission", index, "the token is not the id its turn sampled")
    _require(same | mask, "context", index, "the token is not the id its turn was given")
    # compared as bits, so that NaN and the sign of zero count as differences
    same = chunk.logprobs.view(np.uint32) == laid.logprobs[source].view(np.uint32)
    _require(same, "logprob", index, "not the sampler's value (0 where the loss mask is False)")


def _check_once(trial: Trial, laid: _Laid) -> None:
    count = np.zeros(laid.sampled.size, np.int64)
    for chunk in trial.chunks:
        np.add.at(count, laid.position(chunk)[chunk.loss_mask], 1)
    wrong = np.flatnonzero(count != laid.sampled)
    if wrong.size:
        turn = int(np.searchsorted(laid.starts, wrong[0], side="right")) - 1
        raise FidelityError(
            "once",
            None,
            None,
            f"index {wrong[0] - laid.starts[turn]} of turn {turn} is trained {count[wrong[0]]} times",
        )


def _check_conditioning(index: int, chunk: Chunk, laid: _Laid) -> None:
    for start, stop in runs(chunk.source_turn):
        turn = int(chunk.source_turn[start])
        expected = laid.ids[laid.starts[turn] :][: laid.lengths[turn]]
        in_place = np.array_equal(chunk.source_index[start:stop], np.arange(start, stop))
        if not in_place or not np.array_equal(chunk.tokens[:stop], expected):
            raise FidelityError(
                "conditioning",
                index,
                start,
                f"the tokens up to {stop} are not the prompt and completion of turn {turn}",
            )
