"""A fault for every invariant: proof that each check fires, and is silent without.

for fault in FAULTS:
    fault.run(planted=False)    # nothing happens
    fault.run(planted=True)     # raises FidelityError(fault.invariant, ...)
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from t1_tito.assembler import Assembler
from t1_tito.boundary import Boundary, BoundaryCase, Reason
from t1_tito.payload import Gathered, gather
from t1_tito.session import Session
from t1_tito.trial import Chunk, Kind, Trial
from t1_tito.turn import FinishReason, Turn

from .behaviour_invariants import (
    check_append,
    check_inert,
    check_roundtrip,
    check_rows,
    check_seam,
    check_stream,
    check_template,
    check_work,
)
from .byte_bpe import ByteBpe
from .byte_invariants import check_boundary, check_bytes, check_guard, check_ladder, check_nocopy
from .invariants import (
    check_bos,
    check_cond,
    check_drift_local,
    check_emit,
    check_idempotent,
    check_logp,
    check_once,
    check_split,
    check_synth,
)
from .reference import chunk_of_rows, reference_assemble, rows_of_chunk
from .simulator import Message
from .tiny_chat import TemplateQuirks, TinyChat

TOKENIZER = ByteBpe(merges=((b"a", b"b"), (b"\n", b"\n")))
"""Knows `ab` as a token of its own, id 256."""

_STOP = TOKENIZER.id_of("<|im_end|>")
_OPENS = TOKENIZER.id_of("<|im_start|>")


@dataclass(frozen=True)
class Fault:
    """A check on something sound, or with a fault planted in it.

    Attributes:
        invariant: the invariant that the fault breaks.
        planted: what the fault is.
        run: runs the check; with True the fault is planted.
    """

    invariant: str
    planted: str
    run: Callable[[bool], None]


def specimen() -> list[Turn]:
    """Five turns with a boundary of every case, a cut turn, and ids invented to close it."""
    stop, length = FinishReason.STOP, FinishReason.LENGTH
    logprobs = [-0.125, -0.25, -0.5]
    return [
        Turn([112, 113], [97, 98, _STOP], logprobs, 3, 3, stop),
        # history spells ab as one token
        Turn([112, 113, 256, _STOP, 111], [99, 10, _STOP], logprobs, 3, 3, stop),
        # history lacks the stop token
        Turn([112, 113, 256, _STOP, 111, 99, 10, _OPENS], [100, _STOP], logprobs[:2], 3, 3, stop),
        # another conversation
        Turn([115, 116], [101], logprobs[:1], 3, 3, length),
        Turn(
            [_STOP, 10, 118],
            [102, _STOP],
            logprobs[:2],
            3,
            3,
            stop,
            base_length=3,
            synthetic_length=2,
        ),
    ]


def with_arrays(trial: Trial, chunk: int, **arrays: Any) -> Trial:
    """The trial with some arrays of one chunk replaced."""
    chunks = list(trial.chunks)
    chunks[chunk] = replace(chunks[chunk], **arrays)
    return replace(trial, chunks=tuple(chunks))


def _sound() -> tuple[Trial, list[Turn]]:
    turns = specimen()
    return reference_assemble(turns, TOKENIZER.token_bytes), turns


def _changed(array: Any, position: int | slice, value: object) -> Any:
    changed = array.copy()
    changed[position] = value
    return changed


def _emit(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        # the id that history has in place of what was sampled
        trial = with_arrays(trial, 0, tokens=_changed(trial.chunks[0].tokens, 2, 256))
    check_emit(trial, turns)


def _once(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        trial = replace(trial, chunks=(*trial.chunks, trial.chunks[0]))
    check_once(trial, turns)


def _once_lost(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        mask = _changed(trial.chunks[0].loss_mask, 4, value=False)
        trial = with_arrays(trial, 0, loss_mask=mask)
    check_once(trial, turns)


def _logp(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        trial = with_arrays(trial, 0, logprobs=np.roll(trial.chunks[0].logprobs, 1))
    check_logp(trial, turns)


def _cond(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        rows = rows_of_chunk(trial.chunks[1])
        del rows[1]
        trial = replace(trial, chunks=(trial.chunks[0], chunk_of_rows(rows)))
    check_cond(trial, turns)


def _cond_reported(planted: bool) -> None:
    trial, turns = _sound()
    # of 11 sampled ids the 5 behind the repairs stand behind other ids than they were sampled under
    check_cond(trial, turns, reported=1.0 if planted else 6 / 11)


def _split(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        trial = with_arrays(trial, 1, loss_mask=_changed(trial.chunks[1].loss_mask, 0, value=True))
    check_split(trial, turns)


def _synth(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        trial = with_arrays(trial, 1, kind=_changed(trial.chunks[1].kind, 3, Kind.OBSERVATION))
    check_synth(trial, turns)


def _idempotent(planted: bool) -> None:
    turns = specimen()[:1]
    again = [112, 113, 97, 98, _STOP] if not planted else [112, 113, 97, 98]
    turns.append(Turn([*again, 114], [115], [-0.5], 3, 3, FinishReason.LENGTH))
    check_idempotent(reference_assemble(turns))


def _drift_local(planted: bool) -> None:
    turns = specimen()[:2]
    replayed = Turn(
        [112, 113, 97, 98, _STOP, 111], [99, 10, _STOP], [-0.125, -0.25, -0.5], 3, 3, "stop"
    )
    clean = reference_assemble([turns[0], replayed], TOKENIZER.token_bytes)
    drifted = reference_assemble(turns, TOKENIZER.token_bytes)
    if planted:
        mask = _changed(drifted.chunks[0].loss_mask, slice(2, 5), value=False)
        drifted = with_arrays(drifted, 0, loss_mask=mask)
    check_drift_local(clean, drifted, turn=1)


def _bos(planted: bool) -> None:
    bos = TOKENIZER.id_of("<s>")
    check_bos([bos, bos, 97] if planted else [bos, 97], bos)


def _with_context_from(trial: Trial, start: int, turns: list[Turn]) -> Trial:
    """The first two turns, the second of which adds its prompt from an index on."""
    rows = rows_of_chunk(reference_assemble(turns[:1]).chunks[0])
    later = rows_of_chunk(reference_assemble(turns[1:2]).chunks[0])[start:]
    rows += [replace(row, turn=1) for row in later]
    boundary = trial.boundaries[0]._replace(context_start=start)
    return replace(trial, chunks=(chunk_of_rows(rows),), boundaries=(boundary,))


def _nocopy(planted: bool) -> None:
    trial, turns = _sound()
    check_nocopy(
        _with_context_from(trial, 2 if planted else 4, turns), turns, TOKENIZER.token_bytes
    )


def _bytes(planted: bool) -> None:
    trial, turns = _sound()
    check_bytes(_with_context_from(trial, 5 if planted else 4, turns), turns, TOKENIZER.token_bytes)


def _ladder(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        worse = trial.boundaries[1]._replace(tail_dropped=2, context_start=6)
        trial = replace(trial, boundaries=(trial.boundaries[0], worse, *trial.boundaries[2:]))
    check_ladder(trial, turns, TOKENIZER.token_bytes)


def _guard(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        # the ladder as printed takes the whole completion for a dropped tail, and has it again
        shadow = _boundary(BoundaryCase.NORMALIZED, Reason.TAIL, tail_dropped=3, context_start=2)
        trial = replace(trial, boundaries=(shadow,))
    check_guard(trial, turns, TOKENIZER.token_bytes)


def _span(planted: bool) -> None:
    trial, turns = _sound()
    if planted:
        wrong = trial.boundaries[0]._replace(span=(2, 3), context_start=3)
        trial = replace(trial, boundaries=(wrong, *trial.boundaries[1:]))
    check_boundary(trial, turns, TOKENIZER.token_bytes)


def _boundary(
    case: BoundaryCase, reason: Reason, *, tail_dropped: int, context_start: int
) -> Boundary:
    return Boundary(1, case, reason, 0, tail_dropped, None, context_start, 3, 0, 0, "")


class _Overwriting(Assembler):
    """Takes the loss away from everything before the last turn where history was spelled otherwise."""

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks, the last one partly without loss."""
        *closed, last = super().chunks
        cut = int(np.argmax(last.source_turn == last.source_turn[-1]))
        kind = last.kind.copy()
        kind[:cut] = np.where(kind[:cut] == Kind.SAMPLED, Kind.OBSERVATION, kind[:cut])
        return (*closed, replace(last, kind=kind))


class _Sharing(Assembler):
    """Its snapshots are itself."""

    def snapshot(self) -> Assembler:
        """This very assembler."""
        return self


class _Copying(Assembler):
    """Copies all of its history for every turn."""

    def add(self, turn: Turn, *, fork: bool = False) -> Boundary | None:
        """Add a turn, at the cost of all before it."""
        np.concatenate([chunk.tokens for chunk in self.chunks] or [np.zeros(0)])
        return super().add(turn, fork=fork)


def _append(planted: bool) -> None:
    make = _Overwriting if planted else Assembler
    check_append(lambda: make(TOKENIZER.token_bytes), specimen())


def _stream(planted: bool) -> None:
    make = _Sharing if planted else Assembler
    check_stream(lambda: make(TOKENIZER.token_bytes), specimen())


def _work(planted: bool) -> None:
    turns = [Turn(np.arange(40), np.arange(40), np.zeros(40), 0, 0, FinishReason.LENGTH)]
    turns += [
        Turn(
            np.arange(40),
            np.arange(40),
            np.zeros(40),
            0,
            0,
            FinishReason.LENGTH,
            base_length=80 * n,
        )
        for n in range(1, 200)
    ]
    make = _Copying if planted else Assembler
    check_work(lambda: make(TOKENIZER.token_bytes), turns)


def _rows(planted: bool) -> None:
    trial, turns = _sound()
    # an engine returns no row for the last id: it predicts nothing
    rows = [np.arange(turn.length - 1)[:, None] + 100 * i for i, turn in enumerate(turns)]
    gathered = gather(trial.chunks[0], rows, missing="neighbour")
    if planted:
        gathered = Gathered(np.roll(gathered.rows, 1, axis=0), gathered.placeholders)
    check_rows(trial.chunks[0], rows, gathered)


def _rows_predict_loss(planted: bool) -> None:
    turns = specimen()[:1]
    (chunk,) = reference_assemble(turns).chunks
    rows = np.arange(5)[:, None]
    placeholders = np.array([1] if planted else [], np.int64)
    # without a row for index 1, the row of index 0 stands in and predicts a sampled id
    short = [rows[:1] if planted else rows]
    check_rows(chunk, short, Gathered(rows, np.array([*placeholders, 2, 3, 4][: 4 * planted])))


_ASKED: Message = {"role": "user", "content": "q"}
_SAID: Message = {"role": "assistant", "content": "ab", "reasoning_content": "a"}


def _template(planted: bool) -> None:
    chat = TinyChat(TOKENIZER, TemplateQuirks(prune_reasoning=planted))
    check_template(chat, [_ASKED, _SAID, _ASKED, _SAID])


def _seam(planted: bool) -> None:
    chat = TinyChat(TOKENIZER)
    stored = chat.encode("xa" if planted else "x<|im_end|>")
    # the suffix alone, whatever stands before it
    check_seam(lambda ids, text: chat.encode(text), chat, stored, "b")


def _inert(planted: bool) -> None:
    chat = TinyChat(TOKENIZER)
    session = Session(chat, token_bytes=chat.token_bytes)

    def rendered(said: str) -> list[int]:
        asked = [{"role": "user", "content": said}]
        return chat.apply_chat_template(asked, tokenize=True, add_generation_prompt=True)

    def by_session(said: str) -> list[int]:
        return session.prompt([{"role": "user", "content": said}]).ids.tolist()

    check_inert(rendered if planted else by_session, chat.token_bytes, "x<|im_end|>y")


def _roundtrip(planted: bool) -> None:
    def back(sample: Mapping[str, Any]) -> Mapping[str, Any]:
        return {key: value for key, value in sample.items() if not planted or key != "logprobs"}

    check_roundtrip(back, back, {"tokens": [1, 2], "logprobs": [0.0, -1.0], "note": "x"})


FAULTS = (
    Fault("emit", "a position with loss holds the id that history has", _emit),
    Fault("once", "a chunk is there twice", _once),
    Fault("once", "a sampled token has no loss", _once_lost),
    Fault("logp", "log-probabilities are shifted by one", _logp),
    Fault("cond", "an id of a prompt is missing", _cond),
    Fault("cond", "a report calls all of the loss conditioned exactly", _cond_reported),
    Fault("split", "a shared prompt carries loss", _split),
    Fault("synth", "an invented id is called an observation", _synth),
    Fault("idempotent", "the stop token is not replayed", _idempotent),
    Fault("drift_local", "a re-tokenized completion loses its loss", _drift_local),
    Fault("bos", "two tokens open the text", _bos),
    Fault("nocopy", "the re-encoded completion enters as context", _nocopy),
    Fault("bytes", "an id of context is missing", _bytes),
    Fault("ladder", "one id too many is dropped", _ladder),
    Fault("guard", "a dropped tail is said again", _guard),
    Fault("boundary", "a span ends an id too early", _span),
    Fault("append", "earlier turns lose their loss", _append),
    Fault("stream", "a snapshot shares its state", _stream),
    Fault("work", "history is copied for every turn", _work),
    Fault("rows", "rows are shifted by one", _rows),
    Fault("rows", "a neighbour's row predicts a sampled token", _rows_predict_loss),
    Fault("template", "reasoning is dropped from history", _template),
    Fault("seam", "a suffix is encoded alone where a token reaches across", _seam),
    Fault("inert", "an observation ends the turn", _inert),
    Fault("roundtrip", "log-probabilities are lost", _roundtrip),
)
"""At least one fault for every invariant."""
