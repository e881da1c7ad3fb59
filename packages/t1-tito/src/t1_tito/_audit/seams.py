"""How a later prompt repeats the end of an earlier turn: the same ids, others, or less text.

`old` is the end of T = p‖a of the earlier turn from where the ids differ, `new` what the later
prompt has there. With a byte table they are compared as symbols, so a re-spelling is proven; runs
are cut where both spellings have a token boundary. Without one, ids are all there is.

This is the auditor's own judgement. It shares no code with the ladder and is told nothing that the
ladder decided.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from t1_tito.token_bytes import SPECIAL, TokenBytes
from t1_tito.turn import Ids

Bools = npt.NDArray[np.bool_]

RESIDUAL = 128
"""So many ids behind a seam are looked at: a scaffold fits into them."""
_HEAD = 8
_SPACE = np.frombuffer(b" \t\n\r\v\f", np.uint8)


class Relation(StrEnum):
    """How a later prompt relates to prompt and completion of the turn before."""

    EXTENDS = "extends"
    """It repeats every id."""
    RESPELLED = "respelled"
    """It spells the same symbols, some of them in other ids."""
    DROPPED = "dropped"
    """It lacks the end of the generation prompt, or template tokens at the completion's end."""
    CHANGED = "changed"
    """It says something else, or nothing proves that it does not."""


@dataclass(frozen=True, eq=False)
class SeamView:
    """One seam between two turns, cut down to where they differ.

    Attributes:
        old: int32, end of the earlier turn.
        new: int32, what the later prompt has in its place.
        old_prompt: leading ids of `old` that belong to the earlier prompt.
        prompt_end: last ids of the later prompt, at least as many as `old_prompt` or all.
        residual: ids of the later prompt behind `new`, up to `RESIDUAL`.
    """

    old: Ids
    new: Ids
    old_prompt: int
    prompt_end: Ids
    residual: Ids


@dataclass(frozen=True, eq=False)
class SeamMatch:
    """What became of each token of `old`.

    Attributes:
        relation: how `new` relates to `old`.
        scaffold_dropped: s, ids of the earlier prompt's end that `new` lacks.
        tail_dropped: u, ids of the completion's end that `new` lacks.
        drifted: bool [old], the later prompt shows this token in other ids or not at all.
        first: int64 [new], first token of `old` that this token stands for.
        last: int64 [new], one past the last such token.
        problem: what is wrong, None where the seam is sound.
    """

    relation: Relation
    scaffold_dropped: int
    tail_dropped: int
    drifted: Bools
    first: npt.NDArray[np.int64]
    last: npt.NDArray[np.int64]
    problem: str | None = None


def match_seam(
    view: SeamView, token_bytes: TokenBytes | None, stop_ids: npt.NDArray[np.integer]
) -> SeamMatch:
    """Explain `new` by `old`, or say that nothing does. O(tokens and symbols of both).

    Args:
        view: the seam.
        token_bytes: the bytes behind every id; None compares ids.
        stop_ids: ids that a template may drop from a completion's end where bytes are not known.
    """
    table = token_bytes if _all_known(token_bytes, view.old, view.new) else None
    doubtful: SeamMatch | None = None
    for scaffold, tail in _drops(view, table, stop_ids):
        kept = np.ones(view.old.size, bool)
        kept[view.old_prompt - scaffold : view.old_prompt] = False
        kept[view.old.size - tail :] = False
        if _says_the_same(view.old[kept], view.new, table):
            match = _matched(view, kept, scaffold, tail, table)
            if match.problem is None:
                return match
            # what is dropped here may as well be missing elsewhere
            doubtful = doubtful or match
    return doubtful or _changed(view, known=table is not None)


def _all_known(token_bytes: TokenBytes | None, *parts: Ids) -> bool:
    return token_bytes is not None and all(token_bytes.first_unknown(ids) is None for ids in parts)


def _says_the_same(old: Ids, new: Ids, table: TokenBytes | None) -> bool:
    if table is None:
        return np.array_equal(old, new)
    return np.array_equal(table.symbols(old), table.symbols(new))


def _drops(
    view: SeamView, table: TokenBytes | None, stop_ids: npt.NDArray[np.integer]
) -> Iterator[tuple[int, int]]:
    """The pairs (s, u) that could make `old` as long as `new`, small u first."""
    sizes = np.ones(view.old.size, np.int64) if table is None else table.symbol_lengths(view.old)
    target = view.new.size if table is None else int(table.symbol_lengths(view.new).sum())
    surplus = int(sizes.sum()) - target
    # s ids dropped from the end of the earlier prompt are ends[s] units of text
    ends = np.cumsum(np.concatenate(([0], sizes[: view.old_prompt][::-1])))
    completion = view.old.size - view.old_prompt
    sampled = view.old[view.old_prompt :]
    ends_turn = np.isin(sampled, stop_ids)
    owned = ends_turn if table is None else _is_space(sampled, table) | ends_turn
    for tail in range(completion + 1):
        if tail and not owned[completion - tail]:
            return
        left = surplus - int(sizes[view.old.size - tail :].sum())
        if left < 0:
            return
        for scaffold in np.flatnonzero(ends == left).tolist():
            if not scaffold or (
                tail < completion and _is_scaffold(view, scaffold, table, stop_ids)
            ):
                yield scaffold, tail


def _is_space(ids: Ids, table: TokenBytes) -> Bools:
    special = np.fromiter(table.special_text, np.int64, len(table.special_text))
    return table.template_owned(ids) & ~np.isin(ids, special)


def _is_scaffold(
    view: SeamView, scaffold: int, table: TokenBytes | None, stop_ids: npt.NDArray[np.integer]
) -> bool:
    """Whether history may lack that end of the earlier prompt.

    The later prompt ends in the same ids, all of them new there; none is text or ends a turn.
    """
    dropped = view.old[view.old_prompt - scaffold : view.old_prompt]
    if table is None or view.residual.size < scaffold:
        return False
    if not table.template_owned(dropped).all() or np.isin(dropped, stop_ids).any():
        return False
    return np.array_equal(view.prompt_end[-scaffold:], dropped)


def _matched(
    view: SeamView, kept: Bools, scaffold: int, tail: int, table: TokenBytes | None
) -> SeamMatch:
    old = np.flatnonzero(kept)
    same, first, last = _runs(view.old[kept], view.new, table)
    drifted = np.ones(view.old.size, bool)
    drifted[old] = ~same
    relation = Relation.DROPPED if scaffold or tail else Relation.RESPELLED
    # positions among the kept tokens become positions in `old`
    bounds = np.append(old, old[-1] + 1 if old.size else 0)
    return SeamMatch(
        relation,
        scaffold,
        tail,
        drifted,
        bounds[first],
        bounds[np.maximum(last, first + 1) - 1] + (last > first),
        _repeated_tail(view, tail, table),
    )


def _runs(
    old: Ids, new: Ids, table: TokenBytes | None
) -> tuple[Bools, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For equal symbols: which old tokens are unchanged, and the old tokens of each new one."""
    if table is None or np.array_equal(old, new):
        index = np.arange(new.size, dtype=np.int64)
        return np.ones(old.size, bool), index, index + 1
    old_ends = np.cumsum(table.symbol_lengths(old), dtype=np.int64)
    new_ends = np.cumsum(table.symbol_lengths(new), dtype=np.int64)
    # both end alike; a token without any symbol may stand alone on one side
    ending = np.concatenate((old_ends[-1:], new_ends[-1:]))
    cuts = np.union1d(np.intersect1d(old_ends, new_ends), ending)
    # a run reaches up to and including the tokens that end at its cut
    old_run, new_run = np.searchsorted(cuts, old_ends), np.searchsorted(cuts, new_ends)
    first = np.searchsorted(old_run, new_run, side="left")
    last = np.searchsorted(old_run, new_run, side="right")
    single = np.bincount(old_run, minlength=cuts.size) == 1
    single &= np.bincount(new_run, minlength=cuts.size) == 1
    partner = np.searchsorted(new_run, old_run, side="left")
    same = single[old_run]
    same[same] = old[same] == new[partner[same]]
    return same, first, last


def _repeated_tail(view: SeamView, tail: int, table: TokenBytes | None) -> str | None:
    """Dropped tokens must be gone: the text behind them goes on with another special token."""
    if not tail or not view.residual.size:
        return None
    dropped = view.old[view.old.size - tail :]
    if table is None:
        gone = not np.isin(view.residual[:1], dropped).any()
    else:
        said = table.symbols(dropped)
        following = table.symbols(view.residual[:_HEAD])
        text = following[~np.isin(following, _SPACE)]
        gone = (
            not np.isin(following[:1], said).any()
            and text[:1].size > 0
            and text[0] >= SPECIAL
            and text[0] not in said
        )
    if gone:
        return None
    return f"the last {tail} ids of the completion may be said again by what follows them"


def _changed(view: SeamView, *, known: bool) -> SeamMatch:
    """No explanation: all of `old` but a common end counts as one run of other text."""
    ending = common_suffix(view.old, view.new)
    old_stop, new_stop = view.old.size - ending, view.new.size - ending
    drifted = np.zeros(view.old.size, bool)
    drifted[:old_stop] = True
    index = np.arange(view.new.size, dtype=np.int64) + (old_stop - new_stop)
    inside = np.arange(view.new.size) < new_stop
    why = (
        "the later prompt says something else there"
        if known
        else "the ids differ, and without their bytes nothing proves that they say the same"
    )
    return SeamMatch(
        Relation.CHANGED,
        0,
        0,
        drifted,
        np.where(inside, 0, index),
        np.where(inside, old_stop, index + 1),
        why,
    )


def common_suffix(left: Ids, right: Ids) -> int:
    """Length of the longest common suffix."""
    length = min(left.size, right.size)
    different = left[left.size - length :][::-1] != right[right.size - length :][::-1]
    return int(different.argmax()) if different.any() else length
