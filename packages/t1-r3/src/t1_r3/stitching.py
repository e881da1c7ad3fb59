"""Stitching: the records of a trial's turns, laid out along its stitched token stream.

Row j of the result holds the experts used while token j was the input, so it predicts token j + 1
and N tokens have N - 1 rows. The stream is described by where each token came from: token j is
index `source_index[j]` of prompt ‖ completion (T) of turn `source_turn[j]`, the first turn that
contained it. Two rules place every row:

* first write wins: row j comes from the turn that first contained token j, never from a later turn
  that computed the same token again;
* a turn's last token was not an input yet. Its row is the next turn's, if that turn continues the
  stream there.

A position that neither rule serves is missing. It may borrow its left neighbour's row only if the
token it predicts carries no loss (equation 14), and only within a budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .errors import MissingRouting, RoutingError
from .record import ExpertIds, RoutingRecord

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class StitchedRouting:
    """Routing rows of one stream of N tokens.

    Attributes:
        rows: uint8 or uint16 [N - 1, layers, top_k].
        origin: int32 [N - 1], the turn whose record supplied the row, -1 where it is borrowed.
    """

    rows: ExpertIds
    origin: npt.NDArray[np.int32]

    @property
    def substituted(self) -> int:
        """Number of rows borrowed from their left neighbour."""
        return int(np.count_nonzero(self.origin < 0))


def stitch(
    records: Sequence[RoutingRecord | None],
    lengths: Sequence[int],
    source_turn: npt.ArrayLike,
    source_index: npt.ArrayLike,
    loss_mask: npt.ArrayLike,
    *,
    substitution_budget: int = 0,
) -> StitchedRouting:
    """Lay the records of a trial out along one of its token streams.

    Args:
        records: one per turn, None where nothing was captured. A capture covers the indices
            [start, |T| - 1) of its turn; start is 0, or |T| of the turn before minus 1.
        lengths: |T| of every turn, in tokens.
        source_turn: integers [N], the turn that first contained each token.
        source_index: integers [N], the token's index in that turn's T.
        loss_mask: bool [N], True at tokens that carry loss.
        substitution_budget: how many rows may be borrowed.

    Returns:
        N - 1 rows and the turn each came from.

    Raises:
        RoutingError: a record is malformed or does not end at |T| - 1, or the arrays
            disagree or are not of integers.
        MissingRouting: a row is missing whose target carries loss or that has no left neighbour,
            or more rows are missing than the budget allows.
    """
    if len(records) != len(lengths):
        raise RoutingError(
            f"expected one record (or None) per turn, got {len(records)} for {len(lengths)} turns"
        )
    turn_lengths = _offsets("lengths", lengths)
    turns, indices, mask = _stream(turn_lengths, source_turn, source_index, loss_mask)
    for turn, record in enumerate(records):
        _check_record(turn, record, lengths[turn])
    supplier, index = _suppliers(turns, indices, turn_lengths)
    rows, present = _collect(records, supplier, index)
    missing = np.flatnonzero(~present)
    if missing.size:
        _check_missing(missing, records, supplier, mask, substitution_budget)
        # equation 14 from left to right: a run of missing rows repeats the row before it
        rows = rows[np.maximum.accumulate(np.where(present, np.arange(present.size), 0))]
    origin = np.where(present, supplier, -1).astype(np.int32)
    return StitchedRouting(rows=rows, origin=origin)


def _stream(
    lengths: _Ints,
    source_turn: npt.ArrayLike,
    source_index: npt.ArrayLike,
    loss_mask: npt.ArrayLike,
) -> tuple[_Ints, _Ints, npt.NDArray[np.bool_]]:
    turns, indices = _offsets("source_turn", source_turn), _offsets("source_index", source_index)
    mask = np.asarray(loss_mask, np.bool_)
    if not (turns.shape == indices.shape == mask.shape == (mask.size,)) or not mask.size:
        raise RoutingError(
            "expected source_turn, source_index and loss_mask of one length N >= 1, got shapes "
            f"{turns.shape}, {indices.shape}, {mask.shape}"
        )
    known = (turns >= 0) & (turns < lengths.size)
    known[known] = (indices[known] >= 0) & (indices[known] < lengths[turns[known]])
    if not known.all():
        position = int(np.argmin(known))
        raise RoutingError(
            f"position {position} comes from index {indices[position]} of turn {turns[position]}, "
            f"which does not exist among {lengths.size} turns of their given lengths"
        )
    return turns, indices, mask


def _offsets(name: str, values: npt.ArrayLike) -> _Ints:
    array = np.asarray(values)
    # an empty list becomes an array of floats; that it is empty is for the caller to judge
    if array.size and array.dtype.kind not in "iu":
        raise RoutingError(f"{name}: expected integers, got dtype {array.dtype}")
    # signed, since differences and the mark -1 are made of them
    return array.astype(np.int64, copy=False)


def _check_record(turn: int, record: RoutingRecord | None, length: int) -> None:
    if record is None:
        return
    record.validate(turn=turn)
    if record.stop != length - 1:
        raise RoutingError(
            f"expected rows for indices [{record.start}, {length - 1}) of {length} tokens, "
            f"got {record.rows.shape[0]} rows, up to {record.stop}",
            turn=turn,
        )


def _suppliers(turns: _Ints, indices: _Ints, lengths: _Ints) -> tuple[_Ints, _Ints]:
    """The turn, and the index in its T, that row j is to be read from; index -1 where none is."""
    supplier, index = turns[:-1].copy(), indices[:-1].copy()
    last = index == lengths[supplier] - 1
    continued = indices[1:] == index + 1
    supplier[last & continued] = turns[1:][last & continued]
    index[last & ~continued] = -1
    return supplier, index


def _collect(
    records: Sequence[RoutingRecord | None], supplier: _Ints, index: _Ints
) -> tuple[ExpertIds, npt.NDArray[np.bool_]]:
    captured = [record for record in records if record is not None]
    if not captured:
        raise MissingRouting(0, 0, "no turn has a record; was the capture switched on?")
    spec = captured[0].spec
    rows = np.zeros((index.size, len(spec.moe_layers), spec.top_k), spec.dtype)
    present = np.zeros(index.size, np.bool_)
    edges = (np.flatnonzero(np.diff(supplier)) + 1).tolist()
    bounds = [0, *edges, index.size] if index.size else []
    for first, end in pairwise(bounds):
        turn = int(supplier[first])
        record = records[turn]
        if record is None:
            continue
        if record.spec != spec:
            raise RoutingError(f"expected {spec} as before, got {record.spec}", turn=turn)
        of_run = index[first:end]
        # a record ends where its turn does, so that only its start can leave an index out
        covered = of_run >= record.start
        rows[first:end][covered] = record.rows[of_run[covered] - record.start]
        present[first:end] = covered
    return rows, present


def _check_missing(
    missing: npt.NDArray[np.intp],
    records: Sequence[RoutingRecord | None],
    supplier: _Ints,
    mask: npt.NDArray[np.bool_],
    budget: int,
) -> None:
    """Refuse every gap that equation 14 does not allow to fill."""
    needed = missing[mask[missing + 1] | (missing == 0)]
    if needed.size or missing.size > budget:
        position = int(needed[0] if needed.size else missing[budget])
        turn = int(supplier[position])
        raise MissingRouting(position, turn, _cause(position, records[turn], missing, mask, budget))


def _cause(
    position: int,
    record: RoutingRecord | None,
    missing: npt.NDArray[np.intp],
    mask: npt.NDArray[np.bool_],
    budget: int,
) -> str:
    source = (
        "the turn has no record"
        if record is None
        else f"the turn's record covers the indices [{record.start}, {record.stop})"
    )
    if mask[position + 1]:
        return f"{source}, and the token it predicts carries loss"
    if position == 0:
        return f"{source}, and there is no left neighbour to borrow from"
    return f"{source}, and {missing.size} rows are missing with a substitution budget of {budget}"
