"""The assembler's naive twin: plain lists, every (s, u) tried, nothing clever.

It follows the definitions word by word and shares no code with the ladder or the assembler: what the
two of them agree on was derived twice. Quadratic in everything; for the small cases of tests.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from t1_tito.boundary import Boundary, BoundaryCase, Policy, Reason
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Chunk, Kind, Trial, TurnRecord
from t1_tito.turn import FinishReason, Turn


def whole_prompts(turns: Sequence[Turn], before: Sequence[int] = ()) -> list[list[int]]:
    """The whole prompt of every turn, those given as an addition included.

    Args:
        turns: the turns of a trial.
        before: for a trial that branches off another, the ids that its first turn may add to.
    """
    prompts: list[list[int]] = []
    before = list(before)
    for turn in turns:
        prompt = before[: turn.base_length] + turn.prompt_ids.tolist()
        prompts.append(prompt)
        before = prompt + turn.completion_ids.tolist()
    return prompts


@dataclass(frozen=True)
class Decision:
    """What the ladder says about one boundary; as in `Boundary`."""

    case: BoundaryCase
    scaffold_dropped: int = 0
    tail_dropped: int = 0
    span: tuple[int, int] | None = None
    context_start: int = 0


@dataclass(frozen=True)
class NaiveLadder:
    """The proven ladder by exhaustion.

    Attributes:
        token_bytes: the byte table, or None.
        policy: the bounds on s and u.
        stop_ids: all that may be dropped from a completion without a byte table.
    """

    token_bytes: TokenBytes | None = None
    policy: Policy = field(default_factory=Policy)
    stop_ids: Collection[int] = frozenset()
    _spelled: dict[int, list[int]] = field(default_factory=dict[int, list[int]], repr=False)

    def decide(
        self, p: list[int], a: list[int], later: list[int], *, stopped: bool = False
    ) -> Decision:
        """The first admissible case of a later prompt after the turn p ‖ a.

        Args:
            p: the earlier prompt.
            a: its completion.
            later: the later prompt.
            stopped: whether sampling stopped by itself, on the last id of a.
        """
        enders = {*self.stop_ids, *(a[-1:] if stopped else [])}
        if later[: len(p) + len(a)] == p + a:
            end = len(p) + len(a)
            return Decision(BoundaryCase.STRICT, 0, 0, (len(p), end), end)
        for search in (self._normalized, self._retokenized):
            found = [
                decision
                for s in range(min(self.policy.max_scaffold, len(p) - 1) + 1)
                if s == 0 or self._is_scaffold(p[-s:], later, enders)
                for decision in search(p, a, later, s, enders)
                if s <= len(later) - decision.context_start
            ]
            if found:
                # of equal sums the first is that of the smaller s
                return min(found, key=lambda d: d.scaffold_dropped + d.tail_dropped)
        return Decision(BoundaryCase.SPLIT)

    def _is_scaffold(self, dropped: list[int], later: list[int], enders: set[int]) -> bool:
        """Whether the ids end the later prompt, too, and none is text or ends a turn."""
        if self.token_bytes is None or later[-len(dropped) :] != dropped:
            return False
        owned = bool(self.token_bytes.template_owned(dropped).all())
        return owned and not enders & set(dropped)

    def _tails(self, a: list[int], s: int) -> range:
        """The u to try; behind a cut in the prompt some of the completion must be found."""
        return range(min(self.policy.max_tail, len(a) - (s > 0)) + 1)

    def _normalized(
        self, p: list[int], a: list[int], later: list[int], s: int, enders: set[int]
    ) -> list[Decision]:
        found: list[Decision] = []
        for u in self._tails(a, s):
            head = p[: len(p) - s] + a[: len(a) - u]
            if (
                s + u
                and later[: len(head)] == head
                and self._goes_on(a, u, later[len(head) :], enders)
            ):
                span = (len(p) - s, len(head))
                found.append(Decision(BoundaryCase.NORMALIZED, s, u, span, len(head)))
        return found

    def _retokenized(
        self, p: list[int], a: list[int], later: list[int], s: int, enders: set[int]
    ) -> list[Decision]:
        if self.token_bytes is None:
            return []
        found: list[Decision] = []
        for b in self._prompt_ends(p, later, s):
            for u in self._tails(a, s):
                found += [
                    Decision(BoundaryCase.RETOKENIZED, s, u, (b, e), e)
                    for e in self._ends(a[: len(a) - u], later, b)
                    if s + u == 0 or self._goes_on(a, u, later[e:], enders)
                ]
        return found

    def _prompt_ends(self, p: list[int], later: list[int], s: int) -> list[int]:
        """Where p without its last s ids may end in the later prompt."""
        if later[: len(p) - s] == p[: len(p) - s]:
            return [len(p) - s]
        if s:
            return []
        return self._ends(p, later, 0)

    def _ends(self, said: list[int], later: list[int], start: int) -> list[int]:
        """Where the ids that spell `said`, starting at an index of the later prompt, may end."""
        wanted, spelled = self._symbols(said), list[int]()
        ends: list[int] = []
        for end in range(start, len(later) + 1):
            if spelled == wanted:
                ends.append(end)
            if end == len(later) or len(spelled) > len(wanted):
                break
            spelled += self._symbols([later[end]])
        return ends

    def _goes_on(self, a: list[int], u: int, residual: list[int], enders: set[int]) -> bool:
        """Whether the u last ids of a may be dropped where the later prompt goes on like that."""
        dropped = a[len(a) - u :]
        if not dropped or not residual:
            return bool(residual)
        if self.token_bytes is None:
            return set(dropped) <= set(self.stop_ids) and residual[0] not in dropped
        special = self.token_bytes.special_text
        if not self.token_bytes.template_owned(dropped).all():
            return False
        if any(token in special and token not in enders for token in dropped):
            return False
        said, following = self._symbols(dropped), self._symbols(residual[:8])
        behind_space = [symbol for symbol in following if symbol not in set(b" \t\n\r\v\f")]
        return (
            following[:1] != []
            and following[0] not in said
            and behind_space[:1] != []
            and behind_space[0] > 255
            and behind_space[0] not in said
        )

    def _symbols(self, ids: list[int]) -> list[int]:
        assert self.token_bytes is not None, "symbols are asked for only with a byte table"
        return [symbol for token in ids for symbol in self._symbols_of(token)]

    def _symbols_of(self, token: int) -> list[int]:
        assert self.token_bytes is not None, "symbols are asked for only with a byte table"
        if token not in self._spelled:
            self._spelled[token] = self.token_bytes.symbols([token]).tolist()
        return self._spelled[token]


def decide_turns(
    ladder: NaiveLadder, earlier: Turn, prompt: list[int], later: list[int]
) -> Decision:
    """The ladder's decision between a turn with its whole prompt and the later whole prompt."""
    stopped = earlier.finish_reason is FinishReason.STOP
    return ladder.decide(prompt, earlier.completion_ids.tolist(), later, stopped=stopped)


@dataclass(frozen=True)
class Row:
    """One token of a chunk and all that is said of it."""

    token: int
    logprob: float
    turn: int
    index: int
    kind: Kind


def reference_rows(
    turns: Sequence[Turn],
    decisions: Sequence[Decision],
    *,
    repair: str = "keep",
    before: Sequence[int] = (),
) -> list[list[Row]]:
    """The chunks that the decisions lead to, as lists of rows.

    Args:
        turns: the turns of a trial.
        decisions: one per turn after the first; a fork is a split.
        repair: as in `Policy`.
        before: as in `whole_prompts`.
    """
    chunks: list[list[Row]] = []
    for index, (turn, prompt) in enumerate(zip(turns, whole_prompts(turns, before), strict=True)):
        opens = index == 0 or decisions[index - 1].case is BoundaryCase.SPLIT
        context_start = 0 if opens else decisions[index - 1].context_start
        opening = Kind.SHARED if index or before else Kind.PROMPT
        kind = opening if opens else Kind.OBSERVATION
        if opens:
            chunks.append([])
        elif repair == "rewrite":
            chunks[-1] = _rewritten(chunks[-1], index - 1, decisions[index - 1])
        synthetic = range(turn.base_length, turn.base_length + turn.synthetic_length)
        # in a chunk that it opens, the whole prompt is context that was there before
        synthetic = range(0) if opens else synthetic
        for j in range(context_start, len(prompt)):
            is_synthetic = Kind.SYNTHETIC if j in synthetic else kind
            chunks[-1].append(Row(prompt[j], 0.0, index, j, is_synthetic))
        sampled = zip(turn.completion_ids.tolist(), turn.logprobs.tolist(), strict=True)
        for k, (token, logprob) in enumerate(sampled):
            chunks[-1].append(Row(token, logprob, index, len(prompt) + k, Kind.SAMPLED))
    return chunks


def _rewritten(rows: list[Row], last: int, decision: Decision) -> list[Row]:
    """The rows without what a later prompt lacks of the last turn, if that turn added all of it."""
    s, u = decision.scaffold_dropped, decision.tail_dropped
    if decision.case is not BoundaryCase.NORMALIZED:
        return rows
    said = [row for row in rows if row.turn == last and row.kind is Kind.SAMPLED]
    shown = [row for row in rows if row.turn == last and row.kind is not Kind.SAMPLED]
    if s > len(shown):
        return rows
    earlier = [row for row in rows if row.turn != last]
    return earlier + shown[: len(shown) - s] + said[: len(said) - u]


def reference_assemble(
    turns: Sequence[Turn],
    token_bytes: TokenBytes | None = None,
    *,
    policy: Policy | None = None,
    stop_ids: Collection[int] = frozenset(),
    forks: Collection[int] = frozenset(),
    before: Sequence[int] = (),
) -> Trial:
    """What `t1_tito.assemble` returns with the ladder "proven", derived naively.

    The boundaries' reason, drift and cost are not derived: reasons are coarse, drift and cost 0.

    Args:
        turns: valid turns, at least one.
        token_bytes: the byte table, or None.
        policy: bounds on s and u, and the repair; its ladder is not read.
        stop_ids: all that may be dropped from a completion without a byte table.
        forks: indices of turns that open a new branch.
        before: for a trial that `Assembler.fork` branched off, all ids of the turn it branched off
            from.
    """
    policy = policy or Policy()
    ladder = NaiveLadder(token_bytes, policy, stop_ids)
    prompts = whole_prompts(turns, before)
    decisions = [
        decide_turns(ladder, turns[i - 1], prompts[i - 1], prompts[i])
        if i not in forks
        else Decision(BoundaryCase.SPLIT)
        for i in range(1, len(turns))
    ]
    rows = reference_rows(turns, decisions, repair=policy.repair, before=before)
    boundaries = [
        _boundary(i, decision, len(prompts[i]), i in forks)
        for i, decision in enumerate(decisions, start=1)
    ]
    return Trial(
        chunks=tuple(map(chunk_of_rows, rows)),
        boundaries=tuple(boundaries),
        turns=tuple(_record(i, turns[i], prompts[i], rows) for i in range(len(turns))),
    )


def chunk_of_rows(rows: Sequence[Row]) -> Chunk:
    """Rows as a chunk."""
    return Chunk(
        tokens=np.array([row.token for row in rows], np.int32),
        loss_mask=np.array([row.kind is Kind.SAMPLED for row in rows], np.bool_),
        logprobs=np.array([row.logprob for row in rows], np.float32),
        source_turn=np.array([row.turn for row in rows], np.int32),
        source_index=np.array([row.index for row in rows], np.int32),
        kind=np.array([row.kind for row in rows], np.uint8),
    )


def rows_of_chunk(chunk: Chunk) -> list[Row]:
    """A chunk as rows; the loss mask must agree with the kinds."""
    columns = (chunk.tokens, chunk.logprobs, chunk.source_turn, chunk.source_index, chunk.kind)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Row(token, lp, turn, index, Kind(kind)) for token, lp, turn, index, kind in rows]


_REASONS = {
    BoundaryCase.STRICT: Reason.EXTENDS,
    BoundaryCase.RETOKENIZED: Reason.SAME_BYTES,
    BoundaryCase.SPLIT: Reason.TEXT_CHANGED,
}


def _boundary(index: int, decision: Decision, prompt_length: int, is_fork: bool) -> Boundary:
    reason = _REASONS.get(decision.case, Reason.SCAFFOLD_AND_TAIL)
    if decision.case is BoundaryCase.NORMALIZED and not decision.tail_dropped:
        reason = Reason.SCAFFOLD
    if decision.case is BoundaryCase.NORMALIZED and not decision.scaffold_dropped:
        reason = Reason.TAIL
    return Boundary(
        turn_index=index,
        case=decision.case,
        reason=Reason.FORK if is_fork else reason,
        scaffold_dropped=decision.scaffold_dropped,
        tail_dropped=decision.tail_dropped,
        span=decision.span,
        context_start=decision.context_start,
        context_length=prompt_length - decision.context_start,
        drifted=0,
        cost=0,
        detail="",
    )


def _record(index: int, turn: Turn, prompt: list[int], chunks: list[list[Row]]) -> TurnRecord:
    places = [(c, j, row) for c, rows in enumerate(chunks) for j, row in enumerate(rows)]
    starts = [(c, j) for c, j, row in places if row.turn == index and row.kind is Kind.SAMPLED]
    # where nothing of the completion stands, it ends what stands before it
    ends = [(c, j + 1) for c, j, row in places if row.turn <= index]
    chunk, start = starts[0] if starts else ends[-1]
    return TurnRecord(
        prompt_length=len(prompt),
        completion_length=turn.completion_ids.size,
        version_sent=turn.version_sent,
        version_received=turn.version_received,
        finish_reason=turn.finish_reason,
        chunk=chunk,
        start=start,
    )
