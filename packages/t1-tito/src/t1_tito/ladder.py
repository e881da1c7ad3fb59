"""The ladder: decide how a later prompt continues the turn before it.

Written P and A for the lengths of the earlier prompt p and its completion a, p' for the later prompt,
and L for the common prefix of p‖a and p' in ids. The grid of equation 7 is never scanned: for a given
s the smallest u is A less the common prefix of a and p'[P-s:], and only s >= P-L can match at all.

A drop is admitted where it is proven that the stream, which keeps p and a as they were sampled,
neither loses nor doubles text:

    s > 0   the dropped ids are special or whitespace and end no turn; p' ends in the same ids, behind
            where it goes on: they are the scaffold that every prompt ends with; and some of a is
            matched behind the cut
    u > 0   each dropped token is whitespace or ends a turn, and p' goes on, whitespace aside, with
            another special token, so that nothing dropped is said again

Without a byte table s is 0, and only `stop_ids` are dropped, with another id behind them.

It reads ids and, through a byte table, symbols. It changes nothing.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ._history import History, common_prefix
from .boundary import BoundaryCase, Policy, Reason
from .token_bytes import SPECIAL, TokenBytes
from .turn import FinishReason, Ids, Turn

# enough tokens to see what follows whitespace, even if some spell nothing
_HEAD = 8
_SPACE = frozenset(b" \t\n\r\v\f")
# mismatches show early; a first look at so many tokens spares reading a long history
_FIRST_LOOK = 64


@dataclass(eq=False)
class Seam:
    """What a decision may read: the end of the earlier turn and the later prompt.

    Attributes:
        earlier: T of the earlier turn.
        prompt_length: P.
        completion: int32 [A], a.
        finish: why its sampling ended.
        turn: the later turn.
        shared: L.
        token_bytes: the byte table, or None.
        stop_ids: ids that are known to end a turn.
        policy: bounds and ladder.
        cost: ids and symbols read so far.
    """

    earlier: History
    prompt_length: int
    completion: Ids
    finish: FinishReason
    turn: Turn
    shared: int
    token_bytes: TokenBytes | None
    stop_ids: frozenset[int]
    policy: Policy
    cost: int = field(default=0, init=False)

    @property
    def later_length(self) -> int:
        """|p'|."""
        return self.turn.prompt_length

    @property
    def turn_enders(self) -> frozenset[int]:
        """Ids that end a turn: those known, and the one that the earlier turn stopped on."""
        if self.finish is not FinishReason.STOP:
            return self.stop_ids
        return self.stop_ids | {int(self.completion[-1])}

    def before(self, start: int, stop: int) -> Ids:
        """Ids [start:stop) of p‖a."""
        ids = self.earlier.window(start, min(stop, self.earlier.length))
        self.cost += ids.size
        return ids

    def after(self, start: int, stop: int) -> Ids:
        """Ids [start:stop) of p'."""
        base, suffix = self.turn.base_length, self.turn.prompt_ids
        if start >= base:
            ids = suffix[start - base : max(stop - base, 0)]
        else:
            kept = self.earlier.window(start, min(stop, base))
            ids = np.concatenate((kept, suffix[: max(stop - base, 0)]))
        self.cost += ids.size
        return ids

    def spelled(self, ids: Ids) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The symbols of ids, and where each id's end; only with a byte table."""
        assert self.token_bytes is not None, "symbols are asked for only with a byte table"
        symbols, ends = self.token_bytes.spelled(ids)
        self.cost += symbols.size
        return symbols, ends

    def symbols(self, ids: Ids) -> npt.NDArray[np.int32]:
        """The symbols of ids; only with a byte table."""
        return self.spelled(ids)[0]


class Match(NamedTuple):
    """Where the ladder found the earlier turn in the later prompt.

    Attributes:
        case: the first admissible case.
        reason: why.
        scaffold: s.
        tail: u.
        span: (b, e), ids of p' that stand for the completion.
        drifted: ids of p‖a that p' lacks or spells in other ids.
    """

    case: BoundaryCase
    reason: Reason
    scaffold: int
    tail: int
    span: tuple[int, int]
    drifted: int


def shared_prefix(earlier: History, turn: Turn) -> int:
    """L: common prefix of p‖a and the turn's prompt, in time of what the turn repeats."""
    if not turn.base_length:
        return earlier.common_prefix(turn.prompt_ids)
    if turn.base_length == earlier.length:
        return earlier.length
    behind = earlier.window(turn.base_length, turn.prompt_length)
    return turn.base_length + common_prefix(behind, turn.prompt_ids)


def match(seam: Seam) -> Match | None:
    """The first case of the ladder below STRICT that holds; None for a split."""
    if seam.policy.ladder == "paper":
        return as_printed(seam)
    return normalized(seam) or retokenized(seam)


def normalized(seam: Seam) -> Match | None:
    """Equation 7 with its guard: the admissible (s, u) of least s+u, the smaller s on a tie."""
    best: tuple[int, int] | None = None
    P, a = seam.prompt_length, seam.completion
    for s in _scaffolds(seam, first_ids=True):
        if best is not None and s >= sum(best):
            break
        if s:
            u = a.size - common_prefix(a, seam.after(P - s, P - s + a.size))
        else:
            u = P + a.size - seam.shared
        better = best is None or s + u < sum(best)
        if better and drop_is_proven(seam, s, u, behind=P - s + a.size - u):
            best = s, u
    if best is None:
        return None
    return _normalized_match(seam, *best)


def retokenized(seam: Seam) -> Match | None:
    """Equation 8 in bytes: p' spells the completion between two of its token boundaries.

    As in `normalized`, history may lack s ids of scaffold and u ids of tail around it. For s = 0
    the drift may also begin before the completion.
    """
    if seam.token_bytes is None:
        return None
    whole = whole_respelled(seam)
    if whole is not None:
        return whole
    best = respelled(seam, 0).match
    for s in _scaffolds(seam, first_ids=False):
        if s and (best is None or s < best.scaffold + best.tail):
            found = respelled(seam, s).match
            if found and (best is None or s + found.tail < best.scaffold + best.tail):
                best = found
    return best


def whole_respelled(seam: Seam) -> Match | None:
    """The common kind of equation 8: nothing dropped, the drift inside the completion.

    Offsets alone tell where the completion would end, so that each side is read once. None says only
    that `respelled` must look.
    """
    P, A, start = seam.prompt_length, seam.completion.size, seam.shared
    table = seam.token_bytes
    if start < P or table is None:
        return None
    ours = seam.before(start, P + A)
    theirs = seam.after(start, start + ours.size + _HEAD)
    our_symbols, our_ends = seam.spelled(ours)
    their_symbols, their_ends = seam.spelled(theirs)
    count = _token_at(their_ends, our_symbols.size)
    if count is None or not (our_symbols == their_symbols[: our_symbols.size]).all():
        return None
    drifted = ours.size - _aligned(ours, our_ends, theirs[:count], their_ends[:count])
    return Match(BoundaryCase.RETOKENIZED, Reason.SAME_BYTES, 0, 0, (P, start + count), drifted)


@dataclass(frozen=True, slots=True)
class Respelling:
    """What `respelled` found.

    Attributes:
        match: the match, or None.
        straddled: whether the bytes are there, but an id of p' reaches across an edge of them.
    """

    match: Match | None
    straddled: bool = False


def respelled(seam: Seam, s: int) -> Respelling:
    """Look for the completion's symbols behind p without its last s ids."""
    P, A = seam.prompt_length, seam.completion.size
    # before the first differing id nothing needs to be read
    start = P - s if s else seam.shared
    read_from = P if s else start
    if not _looks_alike(seam, read_from, start):
        return Respelling(None)
    earlier = seam.before(read_from, P + A)
    symbols, ends_before = seam.spelled(earlier)
    later = seam.after(start, start + symbols.size + _HEAD)
    later_symbols, ends_after = seam.spelled(later)
    matched = common_prefix(symbols, later_symbols)
    edge = max(P - read_from, 0)  # tokens of `earlier` that belong to the prompt
    prompt_end = int(ends_before[edge - 1]) if edge else 0
    u = int(np.count_nonzero(ends_before > matched))
    if matched < prompt_end or u > A or (s > 0 and u == A):
        return Respelling(None)
    completion_end = int(ends_before[earlier.size - u - 1]) if earlier.size > u else 0
    b, e = _token_at(ends_after, prompt_end), _token_at(ends_after, completion_end)
    if b is None or e is None:
        return Respelling(None, straddled=u == 0)
    if not drop_is_proven(seam, s, u, behind=start + e):
        return Respelling(None)
    # a completion that was partly shared starts where the prompt ends
    begins = start + b if edge or s else P
    kept = earlier[: earlier.size - u]
    drifted = s + u + kept.size - _aligned(kept, ends_before, later, ends_after)
    span = (begins, start + e)
    return Respelling(Match(BoundaryCase.RETOKENIZED, Reason.SAME_BYTES, s, u, span, drifted))


def drop_is_proven(seam: Seam, s: int, u: int, behind: int) -> bool:
    """Whether s and u ids may be dropped, given where p' goes on; s is one of `_scaffolds`."""
    if s and seam.later_length - behind < s:
        # the scaffold that ends p' would be part of what was matched
        return False
    if u == 0:
        return True
    a, table = seam.completion, seam.token_bytes
    if u > min(seam.policy.max_tail, a.size) or (s > 0 and u == a.size):
        return False
    dropped = a[a.size - u :]
    # drift inside of a text is no dropped tail, and most drift is there
    if table is not None and not table.owned[dropped[0]]:
        return False
    following = seam.after(behind, behind + _HEAD)
    if table is None:
        known = seam.stop_ids.issuperset(dropped.tolist())
        return known and following.size > 0 and following[0] not in dropped
    return _is_owned_tail(seam, dropped) and _goes_on(
        seam.symbols(following), seam.symbols(dropped)
    )


def _is_owned_tail(seam: Seam, dropped: Ids) -> bool:
    """Whether each token is whitespace or ends a turn."""
    assert seam.token_bytes is not None, "tokens are looked at only with a byte table"
    enders = seam.turn_enders
    special = seam.token_bytes.special_text
    return bool(seam.token_bytes.owned[dropped].all()) and all(
        token in enders for token in dropped.tolist() if token in special
    )


def _goes_on(following: npt.NDArray[np.int32], dropped: npt.NDArray[np.int32]) -> bool:
    """Whether what follows starts with nothing that was dropped and comes to another special token."""
    said = set(dropped.tolist())
    symbols = following.tolist()
    if not symbols or symbols[0] in said:
        return False
    behind_space = next((symbol for symbol in symbols if symbol not in _SPACE), 0)
    return behind_space >= SPECIAL and behind_space not in said


def as_printed(seam: Seam) -> Match | None:
    """Equations 7 and 8 as the paper prints them, without a proof that nothing is lost or doubled."""
    P, a, bounds = seam.prompt_length, seam.completion, seam.policy
    best: tuple[int, int] | None = None
    for s in range(max(0, P - seam.shared), min(bounds.max_scaffold, P) + 1):
        u = a.size - common_prefix(a, seam.after(P - s, P - s + a.size))
        if u <= bounds.max_tail and (best is None or s + u < sum(best)):
            best = s, u
    if best is not None:
        s, u = best
        return _normalized_match(seam, s, u)
    if seam.token_bytes is None or seam.shared < P:
        return None
    text = seam.token_bytes.text(a)
    for e in range(P, min(P + 4 * len(text) + _HEAD, seam.later_length) + 1):
        respelling = seam.after(P, e)
        if seam.token_bytes.text(respelling) == text:
            drifted = a.size - common_prefix(a, respelling)
            return Match(BoundaryCase.RETOKENIZED, Reason.SAME_BYTES, 0, 0, (P, e), drifted)
    return None


def _normalized_match(seam: Seam, s: int, u: int) -> Match:
    names = {(True, False): Reason.SCAFFOLD, (False, True): Reason.TAIL}
    reason = names.get((s > 0, u > 0), Reason.SCAFFOLD_AND_TAIL)
    begins = seam.prompt_length - s
    span = (begins, begins + seam.completion.size - u)
    return Match(BoundaryCase.NORMALIZED, reason, s, u, span, s + u)


def _scaffolds(seam: Seam, *, first_ids: bool) -> list[int]:
    """The s that can hold, ascending; with `first_ids` only those behind which a begins in ids."""
    P, A, L = seam.prompt_length, seam.completion.size, seam.shared
    found = [0] if L >= P else []
    largest = min(seam.policy.max_scaffold, P - 1, seam.later_length)
    if largest < 1 or not A:
        return found
    if seam.token_bytes is None:
        return found
    ours = seam.before(P - largest, P)[::-1]
    if first_ids and L >= P and not (ours == seam.completion[0]).any():
        return found
    # the scaffold is special or whitespace, and nothing that ends a turn
    owned = seam.token_bytes.owned[ours] & ~np.isin(ours, list(seam.turn_enders))
    largest = ours.size if owned.all() else int(owned.argmin())
    ours = ours[:largest]
    # the dropped ids end both prompts
    theirs = seam.after(seam.later_length - largest, seam.later_length)[::-1]
    largest = common_prefix(ours, theirs)
    # behind the cut there must be something of p'
    smallest = max(1, P - L, P - seam.later_length + 1)
    if largest < smallest:
        return found
    candidates = np.arange(smallest, largest + 1)
    if first_ids:
        begins = seam.after(P - largest, P - smallest + 1)
        candidates = candidates[begins[::-1][: candidates.size] == seam.completion[0]]
    return found + candidates.tolist()


def _looks_alike(seam: Seam, read_from: int, start: int) -> bool:
    """Whether the first symbols agree, or only droppable ids are left; most candidates end here."""
    ids = seam.before(read_from, read_from + _FIRST_LOOK)
    ours, ends = seam.spelled(ids)
    theirs = seam.symbols(seam.after(start, start + _FIRST_LOOK))
    matched = common_prefix(ours, theirs)
    if matched == min(ours.size, theirs.size):
        return True
    whole = int(np.count_nonzero(ends <= matched))
    remaining = seam.prompt_length + seam.completion.size - read_from - whole
    return remaining <= seam.policy.max_tail


def _token_at(ends: npt.NDArray[np.int64], offset: int) -> int | None:
    """How many tokens end at or before a symbol offset; None if it falls inside one."""
    if offset == 0:
        return 0
    index = int(ends.searchsorted(offset))
    return index + 1 if index < ends.size and ends[index] == offset else None


def _aligned(
    ours: Ids, our_ends: npt.NDArray[np.int64], theirs: Ids, their_ends: npt.NDArray[np.int64]
) -> int:
    """Tokens that stand at the same symbols with the same id on both sides."""
    if not theirs.size:
        return 0
    # ends rise, but for tokens that spell nothing
    place = np.minimum(their_ends.searchsorted(our_ends[: ours.size]), theirs.size - 1)
    same = (their_ends[place] == our_ends[: ours.size]) & (theirs[place] == ours)
    return int(np.count_nonzero(same))
