"""Fidelity: what an assembled trial promises, checked against its turns alone.

    alignment     the five arrays of a chunk have one length and their documented dtypes
    provenance    every (source_turn, source_index) exists; a token carries loss exactly if its
                  source lies in a completion
    emission      every loss position holds the id its own turn sampled
    context       every other position holds the id its own turn was prompted with
    logprob       loss positions carry their turn's log-probability bit for bit, others 0
    once          every sampled token is trained exactly once over all chunks
    conditioning  the tokens before a completion are exactly the prompt it was sampled under

The checks read turns and arrays; they share no code with the assembly.
"""

import numpy as np
import numpy.typing as npt

from .errors import FidelityError
from .payload import gather, runs
from .trial import Chunk, Trial
from .turn import Turn

_DTYPES = {
    "tokens": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "source_turn": np.int32,
    "source_index": np.int32,
}


def emission_drift(trial: Trial) -> int:
    """Count loss positions whose token is not the id their own turn sampled there.

    Exactly 0 for every trial from `assemble`. A loss position whose source lies outside its turn's
    completion counts as drift.
    """
    sampled = np.concatenate([turn.completion_ids for turn in trial.turns])
    drift = 0
    for chunk in trial.chunks:
        slots = _sampled_slots(chunk, trial.turns)[chunk.loss_mask]
        known = slots >= 0
        tokens = chunk.tokens[chunk.loss_mask]
        drift += int(np.count_nonzero(~known))
        drift += int(np.count_nonzero(sampled[slots[known]] != tokens[known]))
    return drift


def check_trial(trial: Trial) -> None:
    """Verify every invariant of this module, in O(tokens of all turns).

    Raises:
        FidelityError: the first invariant broken, with chunk and position.
    """
    for index, chunk in enumerate(trial.chunks):
        _check_alignment(index, chunk)
        _check_provenance(index, chunk, trial.turns)
        _check_tokens(index, chunk, trial.turns)
        _check_logprobs(index, chunk, trial.turns)
    _check_once(trial)
    for index, chunk in enumerate(trial.chunks):
        _check_conditioning(index, chunk, trial.turns)


def _sampled_slots(chunk: Chunk, turns: tuple[Turn, ...]) -> npt.NDArray[np.int64]:
    """Index of each position into all completions laid end to end; -1 outside of them."""
    prompts = np.array([turn.prompt_ids.size for turn in turns])
    completions = np.array([turn.completion_ids.size for turn in turns])
    starts = np.cumsum(completions) - completions
    offset = chunk.source_index - prompts[chunk.source_turn]
    inside = (offset >= 0) & (offset < completions[chunk.source_turn])
    return np.where(inside, starts[chunk.source_turn] + offset, -1)


def _require(holds: npt.NDArray[np.bool_], invariant: str, chunk: int | None, problem: str) -> None:
    if not holds.all():
        raise FidelityError(invariant, chunk, int(np.argmin(holds)), problem)


def _check_alignment(index: int, chunk: Chunk) -> None:
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


def _check_provenance(index: int, chunk: Chunk, turns: tuple[Turn, ...]) -> None:
    known = (chunk.source_turn >= 0) & (chunk.source_turn < len(turns))
    _require(known, "provenance", index, f"source_turn names none of the {len(turns)} turns")
    lengths = np.array([turn.length for turn in turns])
    inside = (chunk.source_index >= 0) & (chunk.source_index < lengths[chunk.source_turn])
    _require(inside, "provenance", index, "source_index lies outside its turn")
    completed = _sampled_slots(chunk, turns) >= 0
    _require(
        chunk.loss_mask == completed,
        "provenance",
        index,
        "loss_mask disagrees with the source, which is "
        "a completion where it should be True and a prompt where it should be False",
    )


def _check_tokens(index: int, chunk: Chunk, turns: tuple[Turn, ...]) -> None:
    same = chunk.tokens == gather(chunk, [turn.ids for turn in turns])
    _require(same | ~chunk.loss_mask, "emission", index, "the token is not the id its turn sampled")
    _require(same | chunk.loss_mask, "context", index, "the token is not the id its turn was given")


def _check_logprobs(index: int, chunk: Chunk, turns: tuple[Turn, ...]) -> None:
    expected = np.zeros(len(chunk), np.float32)
    sampled = np.concatenate([turn.logprobs for turn in turns])
    expected[chunk.loss_mask] = sampled[_sampled_slots(chunk, turns)[chunk.loss_mask]]
    # compared as bits, so that NaN and the sign of zero count as differences
    same = chunk.logprobs.view(np.uint32) == expected.view(np.uint32)
    _require(same, "logprob", index, "not the sampler's value (0 where the loss mask is False)")


def _check_once(trial: Trial) -> None:
    total = sum(turn.completion_ids.size for turn in trial.turns)
    slots = np.concatenate(
        [_sampled_slots(chunk, trial.turns)[chunk.loss_mask] for chunk in trial.chunks]
    )
    count = np.bincount(slots, minlength=total)
    wrong = np.flatnonzero(count != 1)
    if wrong.size:
        raise FidelityError(
            "once",
            None,
            None,
            f"sampled token {wrong[0]} of the trial's {total} is trained {count[wrong[0]]} times",
        )


def _check_conditioning(index: int, chunk: Chunk, turns: tuple[Turn, ...]) -> None:
    for start, stop in runs(chunk.source_turn):
        turn = int(chunk.source_turn[start])
        expected = turns[turn].ids
        if stop != expected.size or not np.array_equal(chunk.tokens[:stop], expected):
            raise FidelityError(
                "conditioning",
                index,
                start,
                f"the tokens up to {stop} are not the prompt and completion of turn {turn}",
            )
