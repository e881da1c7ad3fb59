"""The assembler: turns in, chunks out, on the ids that were sampled.

Each turn is compared with the one before and continues its chunk or opens a new one. What enters a
chunk is copied from a turn, never encoded, decoded or guessed:

    continued   p'[context_start:] as context, then a' with loss
    split       the whole of p' as context, then a' with loss

so that under the default policy every sampled token stands once, with loss, behind the context that
its chunk had before it. A delta turn costs O(its new ids); a prompt given whole, one comparison.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np

from ._chunk_builder import ChunkBuilder
from ._history import History
from .boundary import Boundary, BoundaryCase, Policy, Reason
from .errors import TurnError, VersionError
from .ladder import Match, Seam, match, shared_prefix
from .split_reason import split_reason
from .token_bytes import TokenBytes
from .trial import Chunk, Kind, Trial, TurnRecord
from .turn import FinishReason, Ids, Turn

_DEFAULT_POLICY = Policy()


@dataclass
class _State:
    """What an assembler has taken in.

    Attributes:
        closed: chunks that no turn can continue.
        open: the chunk of the last turn.
        history: the last turn's prompt ‖ completion.
        completion: its completion.
        boundaries: one per turn after the first.
        records: one per turn.
    """

    closed: list[Chunk] = field(default_factory=list[Chunk])
    open: ChunkBuilder = field(default_factory=ChunkBuilder)
    history: History = field(default_factory=History)
    completion: Ids = field(default_factory=lambda: np.empty(0, np.int32))
    boundaries: list[Boundary] = field(default_factory=list[Boundary])
    records: list[TurnRecord] = field(default_factory=list[TurnRecord])

    def copy(self) -> "_State":
        """The same, independent of this one; arrays that nothing writes to are shared."""
        return _State(
            closed=self.closed.copy(),
            open=self.open.copy(),
            history=self.history.copy(),
            completion=self.completion,
            boundaries=self.boundaries.copy(),
            records=self.records.copy(),
        )

    def turn_ends(self) -> list[int]:
        """Lengths of history at which the turns of the open chunk ended, the last turn's last."""
        opened = len(self.records)
        while opened and self.records[opened - 1].chunk == len(self.closed):
            opened -= 1
        # where a later prompt went on is where it ended the turn before
        later = self.boundaries[opened:]
        return [*(boundary.context_start for boundary in later), self.history.length]


class Assembler:
    """Stitches the turns of one trial, one at a time.

    An error leaves it as it was: the trial is usable up to the last good turn.

    Args:
        token_bytes: the byte table of the tokenizer. Without it a prompt that spells history in
            other ids splits, and only `stop_ids` may be missing, at a completion's end.
        policy: bounds and kind of repair.
        stop_ids: ids that end a turn. Where given, a turn that stopped must end in one of them.
        vocabulary_size: ids must be smaller; with a byte table they must be in the table.
        metadata: handed on to the trial.
    """

    def __init__(
        self,
        token_bytes: TokenBytes | None = None,
        *,
        policy: Policy = _DEFAULT_POLICY,
        stop_ids: Iterable[int] = (),
        vocabulary_size: int | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        self._table = token_bytes
        self._policy = policy
        self._stop_ids = frozenset(stop_ids)
        self._vocabulary_size = vocabulary_size
        # ids below it need no second look; None where there is no vocabulary to look at
        bounds = [vocabulary_size, None if token_bytes is None else token_bytes.complete_below]
        self._known_below = min((bound for bound in bounds if bound is not None), default=None)
        self._metadata = dict(metadata or {})
        self._state = _State()

    @property
    def turn_count(self) -> int:
        """Number of turns added."""
        return len(self._state.records)

    @property
    def length(self) -> int:
        """Tokens of the last turn's prompt ‖ completion: `base_length` of a plain continuation."""
        return self._state.history.length

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks so far, the open one copied."""
        opened = (self._state.open.chunk(),) if self._state.open.length else ()
        return (*self._state.closed, *opened)

    def add(self, turn: Turn, *, fork: bool = False) -> Boundary | None:
        """Add the next turn.

        Args:
            turn: the turn, with its prompt whole or as a delta to the turn before.
            fork: open a new chunk, whatever the prompt says.

        Returns:
            How it continues the turn before; None for the first one.

        Raises:
            TurnError: an id is not in the vocabulary, the stop token is missing, or `base_length`
                reaches beyond the turn before; names turn and position.
            VersionError: it was sent at one weight version and answered at another.
        """
        state = self._state
        index = len(state.records)
        self._check(index, turn)
        if not index:
            self._check_ids(index, turn, 0)
            self._open_chunk(turn, Kind.SHARED if state.history.length else Kind.PROMPT)
            return None
        shared = shared_prefix(state.history, turn)
        self._check_ids(index, turn, shared - turn.base_length)
        if shared == state.history.length and not fork:
            boundary = self._extended(index, turn, shared)
        else:
            boundary = self._decide(index, turn, shared, fork=fork)
        state.boundaries.append(boundary)
        if boundary.case is BoundaryCase.SPLIT:
            state.closed.append(state.open.chunk())
            state.open = ChunkBuilder()
            self._open_chunk(turn, Kind.SHARED)
        else:
            self._repair(boundary)
            start = boundary.context_start
            self._append(turn, self._prompt_from(turn, start), start, Kind.OBSERVATION)
        return boundary

    def finish(self) -> Trial:
        """The trial so far; the assembler can go on.

        Raises:
            TurnError: no turn was added.
        """
        if not self._state.records:
            raise TurnError("turns", None, "expected at least one turn, got none")
        return Trial(
            self.chunks,
            tuple(self._state.boundaries),
            tuple(self._state.records),
            dict(self._metadata),
        )

    def snapshot(self) -> "Assembler":
        """An independent copy, in O(tokens of the open chunk)."""
        return self._twin(self._state.copy())

    def fork(self) -> "Assembler":
        """An assembler for a trial that branches off here and trains only what it adds.

        Its first turn may be a delta to the last turn here; all of that turn's prompt is context. An
        audit of the branch wants that prompt whole.
        """
        return self._twin(_State(history=self._state.history.copy()))

    def _twin(self, state: _State) -> "Assembler":
        twin = copy(self)
        twin._state = state  # noqa: SLF001 an object of this class
        return twin

    def _check(self, index: int, turn: Turn) -> None:
        if type(turn) is not Turn:
            raise TurnError("turn", None, f"expected a Turn, got {type(turn).__name__}", index)
        if turn.version_sent != turn.version_received:
            raise VersionError(index, turn.version_sent, turn.version_received)
        if turn.base_length > self._state.history.length:
            raise TurnError(
                "base_length",
                None,
                f"{turn.base_length} ids of a turn that has {self._state.history.length}; "
                "give the prompt whole with base_length=0",
                index,
            )
        if self._stop_ids and turn.finish_reason is FinishReason.STOP:
            self._check_stop(index, turn.completion_ids)

    def _check_stop(self, index: int, completion: Ids) -> None:
        if int(completion[-1]) not in self._stop_ids:
            raise TurnError(
                "completion_ids",
                completion.size - 1,
                f"sampling stopped, but {completion[-1]} is none of the stop ids "
                f"{sorted(self._stop_ids)}; ask the engine to return the stop token",
                index,
            )

    def _check_ids(self, index: int, turn: Turn, known: int) -> None:
        """Refuse ids outside of the vocabulary; the first `known` prompt ids were looked at."""
        if self._known_below is None or turn.largest_id < self._known_below:
            return
        fields = (
            ("prompt_ids", turn.prompt_ids, known),
            ("completion_ids", turn.completion_ids, 0),
        )
        for name, ids, start in fields:
            position = self._first_unknown(ids[start:])
            if position is not None:
                raise TurnError(
                    name,
                    start + position,
                    f"id {ids[start + position]} is not in the vocabulary; "
                    "is this the tokenizer of the model that sampled?",
                    index,
                )

    def _first_unknown(self, ids: Ids) -> int | None:
        if self._vocabulary_size is not None and ids.size and ids.max() >= self._vocabulary_size:
            return int(np.argmax(ids >= self._vocabulary_size))
        return self._table.first_unknown(ids) if self._table is not None else None

    def _decide(self, index: int, turn: Turn, shared: int, *, fork: bool) -> Boundary:
        earlier = self._state.records[-1]
        seam = Seam(
            earlier=self._state.history,
            prompt_length=earlier.prompt_length,
            completion=self._state.completion,
            finish=earlier.finish_reason,
            turn=turn,
            shared=shared,
            token_bytes=self._table,
            stop_ids=self._stop_ids,
            policy=self._policy,
        )
        found = None if fork else match(seam)
        if found is not None:
            return _continued(index, turn, seam, found)
        if fork:
            reason, detail = Reason.FORK, "the caller opened a new branch"
        else:
            reason, detail = split_reason(seam, self._state.turn_ends())
        length = turn.prompt_length
        return Boundary(
            index, BoundaryCase.SPLIT, reason, 0, 0, None, 0, length, 0, seam.cost, detail
        )

    def _extended(self, index: int, turn: Turn, shared: int) -> Boundary:
        """The strict boundary; nearly all are, so it is built without more ado."""
        return Boundary(
            index,
            BoundaryCase.STRICT,
            Reason.EXTENDS,
            0,
            0,
            (shared - self._state.completion.size, shared),
            shared,
            turn.prompt_length - shared,
            0,
            0,
            "the prompt repeats every id",
        )

    def _repair(self, boundary: Boundary) -> None:
        """Under the rewriting policy, make the stream what the later prompt shows of it."""
        if self._policy.repair == "keep" or boundary.case is not BoundaryCase.NORMALIZED:
            return
        s, u = boundary.scaffold_dropped, boundary.tail_dropped
        if s <= self._state.open.last_context_length:
            self._state.open.cut(s, u)
            record = self._state.records[-1]
            self._state.records[-1] = record._replace(start=record.start - s)

    def _open_chunk(self, turn: Turn, kind: Kind) -> None:
        self._append(turn, self._prompt_from(turn, 0), 0, kind)

    def _prompt_from(self, turn: Turn, start: int) -> Ids:
        """The ids of the turn's prompt from an index on."""
        if start == turn.base_length:
            return turn.prompt_ids
        if start > turn.base_length:
            return turn.prompt_ids[start - turn.base_length :]
        return np.concatenate(
            (self._state.history.window(start, turn.base_length), turn.prompt_ids)
        )

    def _append(self, turn: Turn, context: Ids, first_index: int, kind: Kind) -> None:
        state, completion = self._state, turn.completion_ids
        opened, prompt_length = state.open, turn.prompt_length
        if context.size < turn.prompt_ids.size:
            # a view would keep the whole prompt in memory
            context = context.copy()
        synthetic = 0
        if turn.synthetic_length and kind is Kind.OBSERVATION:
            # closers that the stream holds already do not enter again
            synthetic = max(turn.base_length + turn.synthetic_length - first_index, 0)
        opened.append(
            len(state.records),
            kind,
            first_index,
            synthetic,
            context,
            prompt_length,
            completion,
            turn.logprobs,
        )
        state.records.append(
            TurnRecord(
                prompt_length,
                completion.size,
                turn.version_sent,
                turn.version_received,
                turn.finish_reason,
                len(state.closed),
                opened.length - completion.size,
            )
        )
        if turn.base_length:
            state.history.truncate(turn.base_length)
            state.history.extend(turn.prompt_ids, completion)
        else:
            state.history = History(turn.prompt_ids, completion)
        state.completion = completion


def _continued(index: int, turn: Turn, seam: Seam, found: Match) -> Boundary:
    start = found.span[1]
    if found.case is BoundaryCase.NORMALIZED:
        detail = (
            f"the prompt lacks {found.scaffold} ids of the generation prompt and {found.tail} of the "
            "completion's end"
        )
    else:
        detail = (
            f"the prompt spells the same bytes at {found.span} in other ids, {found.drifted} of the "
            "stream's"
        )
    return Boundary(
        index,
        found.case,
        found.reason,
        found.scaffold,
        found.tail,
        found.span,
        start,
        turn.prompt_length - start,
        found.drifted,
        seam.cost,
        detail,
    )


def assemble(
    turns: Sequence[Turn],
    token_bytes: TokenBytes | None = None,
    *,
    policy: Policy = _DEFAULT_POLICY,
    stop_ids: Iterable[int] = (),
    vocabulary_size: int | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Trial:
    """Stitch all turns of one trial; see `Assembler` for the arguments.

    Raises:
        TurnError: there is no turn, or one does not fit; names turn and position.
        VersionError: a turn was sent at one weight version and answered at another.
    """
    assembler = Assembler(
        token_bytes,
        policy=policy,
        stop_ids=stop_ids,
        vocabulary_size=vocabulary_size,
        metadata=metadata,
    )
    for turn in turns:
        assembler.add(turn)
    return assembler.finish()
