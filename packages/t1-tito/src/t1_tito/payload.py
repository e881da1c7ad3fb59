"""Per-token payloads: anything an engine returned per position of T, laid out like a chunk.

A payload of turn i has one row per index of T_i = prompt ‖ completion (or fewer, where the tail
has none). Provenance alone says which row belongs to which position, so values, teacher
log-probabilities or expert ids are gathered the same way.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import PayloadError
from .trial import Chunk


def gather(
    chunk: Chunk, per_turn: Sequence[npt.NDArray[Any]], *, fill: npt.ArrayLike | None = None
) -> npt.NDArray[Any]:
    """Collect payload rows in the order of a chunk's tokens.

    Args:
        chunk: the chunk of N tokens.
        per_turn: for each turn of the trial, rows [R_i, ...] with R_i <= |T_i|; trailing shape and
            dtype agree over the turns.
        fill: value for positions that have no row; None means there must be none.

    Returns:
        [N, ...] with row j taken from `per_turn[source_turn[j]][source_index[j]]`.

    Raises:
        PayloadError: a payload is missing, differs in shape or dtype, or is short and no fill is
            given.
    """
    used = np.unique(chunk.source_turn)
    first = _payload(per_turn, int(used[0]))
    rows = np.empty((len(chunk), *first.shape[1:]), first.dtype)
    for start, stop in runs(chunk.source_turn):
        turn = int(chunk.source_turn[start])
        payload = _payload(per_turn, turn)
        if payload.shape[1:] != first.shape[1:] or payload.dtype != first.dtype:
            raise PayloadError(
                turn,
                None,
                f"expected rows {first.shape[1:]} of {first.dtype} as in turn {used[0]}, "
                f"got {payload.shape[1:]} of {payload.dtype}",
            )
        index = chunk.source_index[start:stop]
        present = index < payload.shape[0]
        if fill is None and not present.all():
            missing = int(np.flatnonzero(~present)[0])
            raise PayloadError(
                turn,
                start + missing,
                f"no row {index[missing]} among {payload.shape[0]}; pass fill= if that is expected",
            )
        target = rows[start:stop]
        target[present] = payload[index[present]]
        if fill is not None:
            target[~present] = fill
    return rows


def _payload(per_turn: Sequence[npt.NDArray[Any]], turn: int) -> npt.NDArray[Any]:
    if turn >= len(per_turn):
        raise PayloadError(turn, None, f"missing; {len(per_turn)} payloads were given")
    return per_turn[turn]


def runs(source_turn: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
    """Bounds (start, stop) of the maximal runs of equal values."""
    edges = np.flatnonzero(np.diff(source_turn)) + 1
    bounds = [0, *edges.tolist(), source_turn.size]
    return list(pairwise(bounds))
