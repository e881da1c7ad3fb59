"""Per-token payloads: anything an engine returned per position of T, laid out like a chunk.

A payload of turn i has one row per index of T_i = prompt ‖ completion, from some first index on.
Provenance alone says which row belongs to which position, so values, teacher log-probabilities or
expert ids are gathered the same way. A position without a row is an error unless the caller says
what stands in for it (equation 14):

    a neighbour's row may be copied to j only where position j + 1 carries no loss

Engines return no row for the last token of T, which predicts nothing. Where the next turn repeats every
id, its payload has that row, and it is no placeholder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .boundary import Boundary, BoundaryCase
from .errors import PayloadError
from .trial import Chunk


@dataclass(frozen=True, eq=False, slots=True)
class Gathered:
    """A payload in the order of a chunk.

    Attributes:
        rows: [N, ...], one per token.
        placeholders: int64 [K], ascending positions whose row was filled or copied.
    """

    rows: npt.NDArray[Any]
    placeholders: npt.NDArray[np.int64]


def gather(
    chunk: Chunk,
    per_turn: Sequence[npt.NDArray[Any]],
    *,
    missing: Literal["raise", "fill", "neighbour"] = "raise",
    fill: npt.ArrayLike | None = None,
    first_index: Sequence[int] | None = None,
    boundaries: Sequence[Boundary] = (),
    budget: int | None = None,
) -> Gathered:
    """Collect payload rows in the order of a chunk's tokens, in O(N).

    Args:
        chunk: the chunk of N tokens.
        per_turn: for each turn of the trial, rows [R_i, ...]; trailing shape and dtype agree.
        missing: what happens where a position has no row. "raise" refuses; "fill" writes `fill`;
            "neighbour" copies the row before it (the one behind it at the start) where the next
            position carries no loss, and refuses elsewhere.
        fill: the value for "fill".
        first_index: for each turn, the index in T_i that row 0 belongs to; 0 where not given. Engines
            that return rows for new tokens only start at `base_length`.
        boundaries: of the trial. With them a row that a turn lacks is taken from the turn behind a
            STRICT one, which saw the same ids.
        budget: most positions that may be filled or copied; None for any number.

    Returns:
        Rows [N, ...], row j from `per_turn[source_turn[j]][source_index[j] - first_index]`.

    Raises:
        PayloadError: a payload is missing or differs in shape or dtype; a position has no row and
            may not go without; or the budget is exceeded.
    """
    if (missing == "fill") != (fill is not None):
        raise PayloadError(0, None, 'fill= and missing="fill" belong together')
    starts = _first_indices(per_turn, first_index)
    used = np.unique(chunk.source_turn)
    first = _payload(per_turn, int(used[0]))
    rows = np.zeros((len(chunk), *first.shape[1:]), first.dtype)
    present = np.zeros(len(chunk), bool)
    repeated = {b.turn_index - 1 for b in boundaries if b.case is BoundaryCase.STRICT}
    for start, stop in runs(chunk.source_turn):
        turn = int(chunk.source_turn[start])
        place = slice(start, stop)
        # the turn itself comes last: what both have is its own
        for source in (turn + 1, turn) if turn in repeated else (turn,):
            payload = _payload(per_turn, source)
            _require_like(first, payload, int(used[0]), source)
            index = chunk.source_index[place] - starts[source]
            here = (index >= 0) & (index < payload.shape[0])
            rows[place][here] = payload[index[here]]
            present[place] |= here
    placeholders = np.flatnonzero(~present)
    _require_allowed(chunk, placeholders, missing, budget)
    if fill is not None:
        _fill(rows, placeholders, fill)
    elif placeholders.size:
        rows[placeholders] = rows[_neighbours(chunk, present, placeholders)]
    return Gathered(rows, placeholders)


def _first_indices(
    per_turn: Sequence[npt.NDArray[Any]], first_index: Sequence[int] | None
) -> Sequence[int]:
    if first_index is None:
        return [0] * len(per_turn)
    if len(first_index) != len(per_turn):
        raise PayloadError(
            min(len(first_index), len(per_turn)),
            None,
            f"{len(first_index)} values of first_index for {len(per_turn)} payloads",
        )
    return first_index


def _fill(rows: npt.NDArray[Any], placeholders: npt.NDArray[np.int64], fill: npt.ArrayLike) -> None:
    try:
        rows[placeholders] = fill
    except ValueError as error:
        raise PayloadError(0, None, f"fill= is no row {rows.shape[1:]}: {error}") from error


def _payload(per_turn: Sequence[npt.NDArray[Any]], turn: int) -> npt.NDArray[Any]:
    if turn >= len(per_turn):
        raise PayloadError(turn, None, f"missing; {len(per_turn)} payloads were given")
    payload = np.asarray(per_turn[turn])
    if not payload.ndim:
        raise PayloadError(turn, None, f"expected rows, got the single value {payload}")
    return payload


def _require_like(
    first: npt.NDArray[Any], payload: npt.NDArray[Any], first_turn: int, turn: int
) -> None:
    if payload.shape[1:] != first.shape[1:] or payload.dtype != first.dtype:
        raise PayloadError(
            turn,
            None,
            f"expected rows {first.shape[1:]} of {first.dtype} as in turn {first_turn}, "
            f"got {payload.shape[1:]} of {payload.dtype}",
        )


def _require_allowed(
    chunk: Chunk, placeholders: npt.NDArray[np.int64], missing: str, budget: int | None
) -> None:
    if not placeholders.size:
        return
    refused = placeholders
    advice = 'say with missing= what stands in for it ("neighbour" is equation 14)'
    if missing == "fill":
        refused = placeholders[:0]
    elif missing == "neighbour":
        # the row of j predicts j + 1; the last one predicts nothing
        predicts_loss = np.append(chunk.loss_mask[1:], False)
        refused = placeholders[predicts_loss[placeholders]]
        advice = "the next position carries loss, so no other row may stand in; capture it"
    if refused.size:
        position = int(refused[0])
        raise PayloadError(
            int(chunk.source_turn[position]),
            position,
            f"no row for index {chunk.source_index[position]}; {advice}",
        )
    if budget is not None and placeholders.size > budget:
        position = int(placeholders[budget])
        raise PayloadError(
            int(chunk.source_turn[position]),
            position,
            f"{placeholders.size} positions have no row of their own, budget={budget} allows fewer",
        )


def _neighbours(
    chunk: Chunk, present: npt.NDArray[np.bool_], placeholders: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The nearest position before each placeholder that has a row, else the first that has one."""
    if not present.any():
        position = int(placeholders[0])
        raise PayloadError(int(chunk.source_turn[position]), position, "no position has a row")
    before = np.maximum.accumulate(np.where(present, np.arange(present.size), -1))[placeholders]
    return np.where(before < 0, int(present.argmax()), before)


def runs(source_turn: npt.NDArray[np.int32]) -> list[tuple[int, int]]:
    """Bounds (start, stop) of the maximal runs of equal values."""
    edges = np.flatnonzero(np.diff(source_turn)) + 1
    bounds = [0, *edges.tolist(), source_turn.size]
    return list(pairwise(bounds))
