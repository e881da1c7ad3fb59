"""Following one sample through the turns: is each completion under the prompt it was sampled with?

A track is at the end of the turn placed last. A next turn is compared with the turn before, which
takes one pass over its prompt, and from that follows how far the stream agrees with it:

    L = common prefix of p' and T        g = common prefix of the stream and T
    L < g  ->  the stream leaves p' at L      L > g  ->  at g      L = g  ->  compare on from there

Where p' does not repeat T id by id, the seam between the two is judged by `seams`, and the
positions of the stream that p' shows otherwise are marked. Later prompts of the same spelling add
nothing, so a seam costs what it changes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from t1_tito.audit_report import FindingKind
from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import FinishReason, Ids

from .checks import stretches
from .findings import Findings
from .history import History, common_prefix
from .positions import PositionMap
from .sample import Placement, Sample
from .seams import RESIDUAL, Relation, SeamMatch, SeamView, match_seam

_SCAFFOLD_WINDOW = 128
"""Ids before a difference in which the dropped end of a generation prompt is looked for."""

_SHOWN_BEFORE, _SHOWN = 8, 24
"""Ids that a report shows before and behind a boundary's first difference."""


@dataclass(frozen=True, slots=True)
class SeamRecord:
    """A boundary that is no plain continuation, for the report.

    `left` stands before it on both sides, then the stream has `held` and the later prompt `shown`.
    """

    turn: int
    chunk: int
    position: int
    relation: str
    drifted: int
    repeated: int
    left: Ids
    held: Ids
    shown: Ids


class Track:
    """One sample, followed turn by turn.

    Attributes:
        drifted: bool [N], positions that a later turn of this sample was shown otherwise.
        rowless: bool [N], positions whose per-token row no capture holds.
        exact_loss: loss tokens whose whole stream prefix is what they were sampled under.
        last_turn: index of the turn placed last, -1 before the first.
    """

    def __init__(
        self,
        chunk: int,
        sample: Sample,
        history: History,
        findings: Findings,
        token_bytes: TokenBytes | None,
        stop_ids: npt.NDArray[np.integer],
    ) -> None:
        self._chunk = chunk
        self._sample = sample
        self._tokens = sample.tokens
        self._history = history
        self._findings = findings
        self._token_bytes = token_bytes
        self._stop_ids = stop_ids
        self.drifted = np.zeros(sample.tokens.size, bool)
        self.rowless = np.zeros(sample.tokens.size, bool)
        self.seams: list[SeamRecord] = []
        self.relations: list[str] = []
        self.exact_loss = 0
        self.last_turn = -1
        self._end = 0
        # ids of the last turn's T that stand before _end, and how many of them the stream repeats
        self._kept = 0
        self._agree = 0
        # None while index and position are the same
        self._map: PositionMap | None = None

    def place(self, placement: Placement, shared: int | None) -> None:
        """Take in the next turn that this sample holds.

        Args:
            placement: where it holds it.
            shared: common prefix of its prompt and T of the turn before it in the trial; None for
                the first turn of all.
        """
        turn, added = placement.turn, placement.start - self._end
        if not 0 <= self.last_turn < turn or not 0 <= added <= self._history.prompt_lengths[turn]:
            self._open(placement, shared)
        elif shared is not None and self.last_turn == turn - 1:
            self._continue(placement, shared)
        else:
            # the turns between left nothing in this sample
            earlier = self._history.ids(self.last_turn, 0, self._kept)
            prompt = self._history.ids(turn, 0, int(self._history.prompt_lengths[turn]))
            self._continue(placement, common_prefix(earlier, prompt))

    def place_empty(self, turn: int, shared: int) -> None:
        """Take in a turn that sampled nothing and added nothing, if this sample goes on with it."""
        seam = int(self._history.prompt_lengths[turn])
        match, _ = self._judge(turn, min(shared, seam, self._kept), seam)
        if match.relation is not Relation.CHANGED:
            self.place(Placement(self._chunk, turn, self._end, self._end, seam), shared)

    def finish(self) -> None:
        """Mark the row that is missing behind the last placed turn."""
        if 0 < self._end < self._tokens.size:
            self.rowless[self._end - 1] = True

    def _open(self, placement: Placement, shared: int | None) -> None:
        turn, start = placement.turn, placement.start
        seam = int(self._history.prompt_lengths[turn])
        stop = max(0, min(start, seam))
        agree = self._history.agreement(self._tokens, turn, 0, stop)
        if shared is not None:
            earlier = self._history.ids(turn - 1, shared, int(self._history.lengths[turn - 1]))
            new = self._history.ids(turn, shared, seam)
            self._record(turn, "new_chunk", 0, start, shared, earlier, new)
        if not agree == start == seam:
            self._report(
                FindingKind.CONDITIONING,
                turn,
                (agree, max(agree + 1, start)),
                f"the {start} tokens before the completion are not its prompt of {seam} ids: "
                f"they agree up to {agree}",
            )
            self._kept = self._end = max(start, 0)
            self._map = PositionMap(self._end)
            prompt = self._history.ids(turn, agree, seam)
            view = SeamView(self._tokens[agree : self._end], prompt, 0, prompt, prompt[:0])
            self._drift(agree, match_seam(view, self._token_bytes, self._stop_ids))
            if self._end:
                self.rowless[self._end - 1] = True
        self._arrive(placement, agree, exact=agree == start == seam)

    def _continue(self, placement: Placement, shared: int) -> None:
        turn, start = placement.turn, placement.start
        seam = int(self._history.prompt_lengths[turn])
        agree = self._agreement(turn, start, seam, shared)
        if agree == start == seam:
            self._map = None
            self._arrive(placement, agree, exact=True)
            return
        head = seam - (start - self._end)
        self._check_residual(turn, head, seam)
        same = min(shared, head, self._kept)
        if same == head == self._kept:
            self.relations.append(Relation.EXTENDS)
        else:
            self._repair(turn, same, head)
        self._arrive(placement, agree, exact=False)

    def _agreement(self, turn: int, start: int, seam: int, shared: int) -> int:
        """How far the stream before `start` repeats the prompt of `turn`."""
        if shared < self._agree:
            return min(shared, start)
        if shared > self._agree and self._agree < self._end:
            return self._agree
        stop = min(start, seam)
        return self._history.agreement(self._tokens, turn, min(self._agree, stop), stop)

    def _check_residual(self, turn: int, head: int, seam: int) -> None:
        added = self._history.ids(turn, head, seam)
        stream = self._tokens[self._end : self._end + added.size]
        same = common_prefix(stream, added)
        if same < added.size:
            position = self._end + same
            self._report(
                FindingKind.CONDITIONING,
                turn,
                (position, self._end + added.size),
                "the context before the completion is not the end of its prompt",
            )

    def _judge(self, turn: int, same: int, head: int) -> tuple[SeamMatch, int]:
        """The match between T of the turn placed last and the first `head` ids of p', and its start."""
        earlier = self.last_turn
        seam = int(self._history.prompt_lengths[turn])
        boundary = int(self._history.prompt_lengths[earlier])
        match, tight = None, same
        for begin in (same, max(0, min(same, boundary) - _SCAFFOLD_WINDOW)):
            old = self._history.ids(earlier, begin, self._kept)
            before = min(max(0, boundary - begin), old.size)
            view = SeamView(
                old=old,
                new=self._history.ids(turn, begin, head),
                old_prompt=before,
                prompt_end=self._history.ids(turn, max(0, seam - before), seam),
                residual=self._history.ids(turn, head, min(head + RESIDUAL, seam)),
            )
            found = match_seam(view, self._token_bytes, self._enders(earlier))
            if match is None or found.problem is None:
                match, tight = found, begin
            if match.problem is None or begin == 0:
                break
        assert match is not None
        return match, tight

    def _enders(self, turn: int) -> npt.NDArray[np.integer]:
        """Ids that are known to end a turn, and the one that this turn stopped on."""
        taken = self._history.turns[turn]
        if taken.finish_reason is not FinishReason.STOP:
            return self._stop_ids
        return np.append(self._stop_ids, taken.completion_ids[-1])

    def _repair(self, turn: int, same: int, head: int) -> None:
        match, begin = self._judge(turn, same, head)
        if self._map is None:
            self._map = PositionMap(self._kept)
        marked = np.flatnonzero(match.drifted)
        lows, highs = self._map.ranges(begin, self._kept)
        self._drift(begin, match)
        if self._end:
            self.rowless[self._end - 1] = True
        if match.problem is not None:
            kind = FindingKind.CONDITIONING if self._token_bytes is None else FindingKind.BYTES
            first = int(lows[marked[0]]) if marked.size else self._end
            last = int(highs[marked[-1]]) if marked.size else first
            self._report(kind, turn, (first, max(last, first)), match.problem)
        held = self._history.ids(self.last_turn, begin, self._kept)
        shown = self._history.ids(turn, begin, int(self._history.prompt_lengths[turn]))
        self._record(turn, match.relation, int(marked.size), 0, begin, held, shown)

    def _drift(self, begin: int, match: SeamMatch) -> None:
        """Mark what the later prompt shows otherwise, and map its ids to the stream."""
        assert self._map is not None
        lows, highs = self._map.ranges(begin, self._kept)
        for first, stop in stretches(match.drifted):
            self.drifted[lows[first] : highs[stop - 1]] = True
        lows = np.append(lows, np.int32(self._end))
        low = lows[match.first]
        filled = match.last > match.first
        high = low.copy()
        high[filled] = highs[match.last[filled] - 1]
        self._map.rewrite(begin, low, high)

    def _arrive(self, placement: Placement, agree: int, *, exact: bool) -> None:
        turn, start, stop = placement.turn, placement.start, placement.stop
        if exact:
            agree = self._history.agreement(self._tokens, turn, start, stop)
            self._map = None
            counted = self._sample.loss_mask[start : min(stop, agree + 1)]
            self.exact_loss += int(np.count_nonzero(counted))
        elif self._map is not None or start != self._history.prompt_lengths[turn]:
            if self._map is None:
                self._map = PositionMap(self._kept)
            self._map.append(self._end, stop)
        self.last_turn, self._end = turn, stop
        self._kept, self._agree = placement.kept, agree

    def _report(self, kind: FindingKind, turn: int, span: tuple[int, int], why: str) -> None:
        self._findings.add(kind, why, turn=turn, chunk=self._chunk, span=span, tokens=self._tokens)

    def _record(
        self,
        turn: int,
        relation: str,
        drifted: int,
        repeated: int,
        index: int,
        held: Ids,
        shown: Ids,
    ) -> None:
        left = self._history.ids(turn, max(0, index - _SHOWN_BEFORE), index)
        self.relations.append(relation)
        self.seams.append(
            SeamRecord(
                turn,
                self._chunk,
                self._end,
                relation,
                drifted,
                repeated,
                left,
                held[:_SHOWN],
                shown[:_SHOWN],
            )
        )
