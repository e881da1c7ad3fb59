"""A sample as the auditor reads it: one contiguous training sequence of any stack.

A sample is given as a `Chunk`, any object with its attributes, or a mapping with its keys. Only
`tokens` and `loss_mask` are required. Where it says nothing about the origin of its tokens, that is
recovered from the turns (`t1_tito.provenance`).

    run         consecutive positions that repeat consecutive indices of one turn
    placement   where a sample holds the completion of a turn
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from t1_tito.errors import FidelityError
from t1_tito.provenance import recover
from t1_tito.trial import Trial
from t1_tito.turn import Floats, Ids

from .history import History

_DTYPES: Mapping[str, Any] = {
    "tokens": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "source_turn": np.int32,
    "source_index": np.int32,
    "kind": np.uint8,
}
_REQUIRED = ("tokens", "loss_mask")


@dataclass(frozen=True, eq=False)
class Sample:
    """The arrays of one sample of N tokens.

    Attributes:
        tokens: int32 [N], N >= 1.
        loss_mask: bool [N].
        logprobs: float32 [N], None where the sample has none.
        source_turn: int32 [N], -1 where it is not known.
        source_index: int32 [N], -1 where it is not known.
        kind: uint8 [N], None where the sample has none.
        recovered: whether the source was recovered from the turns instead of given.
    """

    tokens: Ids
    loss_mask: npt.NDArray[np.bool_]
    logprobs: Floats | None
    source_turn: Ids
    source_index: Ids
    kind: npt.NDArray[np.uint8] | None
    recovered: bool


@dataclass(frozen=True, slots=True)
class Run:
    """Positions [start, stop) of a sample that repeat T[index:] of a turn."""

    chunk: int
    start: int
    stop: int
    turn: int
    index: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A sample holds the completion of a turn from position `start` on, up to `stop`.

    `start` is where the completion's first token belongs; `kept` is how much of T the run that ends
    at `stop` reaches.
    """

    chunk: int
    turn: int
    start: int
    stop: int
    kept: int


def read_sample(index: int, given: object, history: History, taken: set[int]) -> Sample:
    """Read one sample, converting lists to arrays.

    Args:
        index: index of the sample, for messages.
        given: the sample.
        history: the turns, to recover the source where it is not given.
        taken: turns that samples with recovered sources hold so far; extended.

    Raises:
        FidelityError: invariant "alignment": a required array is missing, or the arrays disagree in
            length or are not of their kind.
    """
    arrays = {name: _array(index, name, _get(given, name)) for name in _DTYPES}
    tokens, loss_mask = arrays["tokens"], arrays["loss_mask"]
    if tokens is None or loss_mask is None:
        missing = next(name for name in _REQUIRED if arrays[name] is None)
        raise FidelityError("alignment", index, None, f"the sample has no {missing}")
    if not tokens.size:
        raise FidelityError("alignment", index, None, "the sample holds no token")
    for name, array in arrays.items():
        if array is not None and array.size != tokens.size:
            problem = f"{name} has {array.size} entries for {tokens.size} tokens"
            raise FidelityError("alignment", index, None, problem)
    source_turn, source_index = arrays["source_turn"], arrays["source_index"]
    recovered = source_turn is None or source_index is None
    if source_turn is None or source_index is None:
        source_turn, source_index = recover(tokens, loss_mask, history.turns, taken=taken)
        taken.update(np.unique(source_turn[loss_mask]).tolist())
    return Sample(
        tokens,
        loss_mask,
        arrays["logprobs"],
        source_turn,
        source_index,
        arrays["kind"],
        recovered,
    )


def samples_in(given: object) -> list[object]:
    """The samples of a trial, or those of a list.

    Raises:
        FidelityError: invariant "alignment": it is neither.
    """
    if isinstance(given, Trial):
        return list(given.chunks)
    # one sample may be a mapping, which is a sequence of its own keys
    if isinstance(given, Mapping | str | bytes) or not isinstance(given, Iterable):
        problem = f"expected a Trial or a list of samples, got {type(given).__name__}"
        raise FidelityError("alignment", None, None, problem)
    return list(cast("Iterable[object]", given))


def _get(given: object, name: str) -> Any:
    if isinstance(given, Mapping):
        return given.get(name)
    return getattr(given, name, None)


def _array(index: int, name: str, values: Any) -> npt.NDArray[Any] | None:
    if values is None:
        return None
    dtype = np.dtype(_DTYPES[name])
    try:
        array = np.asarray(values)
    except ValueError as error:
        problem = f"{name} is no flat sequence: {error}"
        raise FidelityError("alignment", index, None, problem) from error
    if array.ndim != 1:
        raise FidelityError("alignment", index, None, f"{name} has shape {list(array.shape)}")
    if array.dtype == dtype:
        return array
    # masks also come as 0 and 1, log-probabilities as float64
    fits = array.dtype.kind in ("fiu" if dtype.kind == "f" else "iub") or not array.size
    if fits and dtype.kind == "b":
        fits = bool(np.isin(array, (0, 1)).all())
    elif fits and dtype.kind in "iu" and array.size:
        limits = np.iinfo(_DTYPES[name])
        fits = limits.min <= int(array.min()) and int(array.max()) <= limits.max
    if not fits:
        problem = f"{name} should hold {dtype} values, is {array.dtype}"
        raise FidelityError("alignment", index, None, problem)
    return array.astype(dtype)


def sources(sample: Sample, history: History) -> npt.NDArray[np.bool_]:
    """Bool [N], whether the source of each position exists in the turns."""
    turn, index = sample.source_turn, sample.source_index
    if not len(history):
        return np.zeros(turn.size, bool)
    known = (turn >= 0) & (turn < len(history)) & (index >= 0)
    known &= index < history.lengths[np.where(known, turn, 0)]
    return known


def runs_of(chunk: int, sample: Sample, known: npt.NDArray[np.bool_]) -> list[Run]:
    """The maximal runs of a sample, those of unknown source left out."""
    turn = np.where(known, sample.source_turn, -1)
    shift = np.where(known, sample.source_index - np.arange(turn.size, dtype=np.int32), 0)
    cuts = np.flatnonzero((turn[1:] != turn[:-1]) | (shift[1:] != shift[:-1])) + 1
    bounds = [0, *cuts.tolist(), turn.size]
    return [
        Run(chunk, start, stop, int(turn[start]), int(sample.source_index[start]))
        for start, stop in pairwise(bounds)
        if turn[start] >= 0
    ]


def placements_of(runs: Sequence[Run], history: History) -> list[Placement]:
    """Where the completions of the turns stand in one sample, in order of position.

    A turn that sampled nothing is placed at the end of its context. A completion with a hole is
    placed once if its parts keep their distance.
    """
    placed: dict[tuple[int, int], Placement] = {}
    for run in runs:
        seam = int(history.prompt_lengths[run.turn])
        kept = run.index + run.stop - run.start
        if kept > seam or kept == seam == history.lengths[run.turn]:
            start = run.start + seam - run.index
            placed[run.turn, start] = Placement(run.chunk, run.turn, start, run.stop, kept)
    return list(placed.values())
