"""Assembly: turns in, chunks out, on the ids that were sampled.

A chunk is a list of spans (turn, start, stop, sampled) over T = p‖a of each turn: the context a
turn adds, then its completion. The spans of a chunk, laid end to end, are the prompt and
completion of its last turn. Everything is copied from the turns; nothing is encoded, decoded or
repaired here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .boundary import BoundaryCase, classify
from .errors import TurnError, VersionError
from .trial import Chunk, Trial
from .turn import Ids, Turn


@dataclass(frozen=True)
class _Span:
    turn: int
    start: int
    stop: int
    sampled: bool


def assemble(turns: Sequence[Turn]) -> Trial:
    """Stitch the turns of one trial into chunks.

    Every boundary compares whole id arrays, so the cost is linear in the tokens of all prompts.

    Args:
        turns: the turns in the order they were taken, at least one.

    Returns:
        The trial: each sampled token exactly once with loss mask True, everything else as context.

    Raises:
        TurnError: there is no turn.
        VersionError: a turn was sent at one weight version and answered at another.
    """
    if not turns:
        raise TurnError("turns", None, "expected at least one turn, got none")
    for index, turn in enumerate(turns):
        if turn.version_sent != turn.version_received:
            raise VersionError(index, turn.version_sent, turn.version_received)
    boundaries = tuple(
        classify(index, turns[index - 1], turns[index]) for index in range(1, len(turns))
    )
    spans = [_turn_spans(0, turns[0], context_start=0)]
    for boundary in boundaries:
        index, turn = boundary.turn_index, turns[boundary.turn_index]
        new = _turn_spans(index, turn, turn.prompt_ids.size - boundary.context_length)
        if boundary.case is BoundaryCase.STRICT:
            spans[-1] += new
        else:
            spans.append(new)
    chunks = tuple(_chunk(of_chunk, turns) for of_chunk in spans)
    return Trial(chunks=chunks, boundaries=boundaries, turns=tuple(turns))


def _turn_spans(index: int, turn: Turn, context_start: int) -> list[_Span]:
    seam = turn.prompt_ids.size
    return [
        _Span(index, context_start, seam, sampled=False),
        _Span(index, seam, turn.length, sampled=True),
    ]


def _chunk(spans: list[_Span], turns: Sequence[Turn]) -> Chunk:
    lengths = [span.stop - span.start for span in spans]
    loss_mask = np.repeat([span.sampled for span in spans], lengths)
    logprobs = np.zeros(loss_mask.size, np.float32)
    logprobs[loss_mask] = np.concatenate(
        [turns[span.turn].logprobs for span in spans if span.sampled]
    )
    chunk = Chunk(
        tokens=np.concatenate([_span_ids(span, turns[span.turn]) for span in spans]),
        loss_mask=loss_mask,
        logprobs=logprobs,
        source_turn=np.repeat(np.array([span.turn for span in spans], np.int32), lengths),
        source_index=np.concatenate(
            [np.arange(span.start, span.stop, dtype=np.int32) for span in spans]
        ),
    )
    for array in vars(chunk).values():
        array.flags.writeable = False
    return chunk


def _span_ids(span: _Span, turn: Turn) -> Ids:
    return turn.completion_ids if span.sampled else turn.prompt_ids[span.start :]
