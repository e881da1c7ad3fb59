"""Invariants of an assembled trial against its raw turns: tokens, loss, log-probabilities, layout.

    emit         a position with loss holds the id that its own turn sampled
    once         every sampled token carries loss at exactly one position
    logp         a position with loss carries its turn's log-probability bit for bit, others 0
    cond         before a completion stands its prompt; behind a repaired boundary, the stream as it
                 was and the rest of its prompt
    split        a new chunk opens with its turn's whole prompt, without loss
    synth        exactly the ids that a renderer invented are of kind SYNTHETIC, without loss
    idempotent   a harness that replays ids leaves strict boundaries and one chunk
    drift_local  other spellings in history change nothing but the boundary where they appear
    bos          the token that opens a text stands at position 0 only

Each is one plain loop over the definition, slow and independent of the code it checks. All raise
`FidelityError` with the invariant's name and the first position that breaks it.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from t1_tito.boundary import BoundaryCase
from t1_tito.errors import FidelityError
from t1_tito.trial import Chunk, Kind, Trial
from t1_tito.turn import Turn

from .reference import whole_prompts

_REPAIRED = {BoundaryCase.NORMALIZED, BoundaryCase.RETOKENIZED}


def check_emit(trial: Trial, turns: Sequence[Turn]) -> None:
    """Every position with loss holds the id that its own turn sampled.

    Raises:
        FidelityError: "emit".
    """
    for c, chunk in enumerate(trial.chunks):
        for j in np.flatnonzero(chunk.loss_mask).tolist():
            turn, k = _sampled_source(chunk, j, turns)
            if turn is None or k is None:
                raise FidelityError("emit", c, j, "loss on a token that no completion is named for")
            if chunk.tokens[j] != turn.completion_ids[k]:
                raise FidelityError(
                    "emit",
                    c,
                    j,
                    f"holds {chunk.tokens[j]}, but its turn sampled {turn.completion_ids[k]}",
                )


def check_once(trial: Trial, turns: Sequence[Turn]) -> None:
    """Every sampled token carries loss at exactly one position over all chunks.

    Raises:
        FidelityError: "once"; with a position where a token is trained again.
    """
    seen: set[tuple[int, int]] = set()
    for c, chunk in enumerate(trial.chunks):
        for j in np.flatnonzero(chunk.loss_mask).tolist():
            source = (int(chunk.source_turn[j]), int(chunk.source_index[j]))
            if source in seen:
                raise FidelityError("once", c, j, f"{_name(source)} carries loss a second time")
            seen.add(source)
    for i, turn in enumerate(turns):
        for index in range(turn.prompt_length, turn.length):
            if (i, index) not in seen:
                raise FidelityError("once", None, None, f"{_name((i, index))} carries no loss")


def check_logp(trial: Trial, turns: Sequence[Turn]) -> None:
    """Log-probabilities are the turns' own bit for bit at loss positions, and 0 elsewhere.

    Raises:
        FidelityError: "logp".
    """
    for c, chunk in enumerate(trial.chunks):
        for j in range(len(chunk)):
            expected = np.float32(0)
            if chunk.loss_mask[j]:
                turn, k = _sampled_source(chunk, j, turns)
                if turn is None or k is None:
                    raise FidelityError("logp", c, j, "no turn is named to compare with")
                expected = turn.logprobs[k]
            if chunk.logprobs[j].tobytes() != expected.tobytes():
                raise FidelityError("logp", c, j, f"is {chunk.logprobs[j]}, should be {expected}")


def check_cond(trial: Trial, turns: Sequence[Turn], *, reported: float | None = None) -> None:
    """Every completion stands behind what it was sampled under.

    Args:
        trial: the assembled trial, nothing rewritten.
        turns: its turns.
        reported: share of loss tokens that a report calls conditioned exactly, if it is checked too.

    Raises:
        FidelityError: "cond".
    """
    prompts = whole_prompts(turns)
    exact = total = 0
    for c, chunk in enumerate(trial.chunks):
        repaired = False
        end = 0
        for i in _turns_of(chunk):
            first, last = _extent(chunk, i)
            if end and trial.boundaries[i - 1].case in _REPAIRED:
                repaired = True
            if first != end:
                raise FidelityError("cond", c, end, f"turn {i} starts at {first}, not at {end}")
            context = int(np.count_nonzero(~chunk.loss_mask[first:last]))
            rest = prompts[i][len(prompts[i]) - context :]
            if chunk.tokens[first : first + context].tolist() != rest:
                raise FidelityError(
                    "cond", c, first, f"context is not the end of turn {i}'s prompt"
                )
            before = chunk.tokens[: first + context].tolist()
            if not repaired and before != prompts[i]:
                raise FidelityError(
                    "cond", c, first, f"not the prompt that turn {i} was sampled under"
                )
            sampled = last - first - context
            exact, total = exact + sampled * (before == prompts[i]), total + sampled
            end = last
    share = exact / total if total else 1.0
    if reported is not None and abs(share - reported) > 1e-9:
        raise FidelityError(
            "cond", None, None, f"{share} of the loss is exact, reported {reported}"
        )


def check_split(trial: Trial, turns: Sequence[Turn]) -> None:
    """Every chunk opens with its first turn's whole prompt, without loss, in the order of turns.

    Raises:
        FidelityError: "split".
    """
    prompts = whole_prompts(turns)
    opening = [0] + [b.turn_index for b in trial.boundaries if b.case is BoundaryCase.SPLIT]
    if len(opening) != len(trial.chunks):
        raise FidelityError(
            "split", None, None, f"{len(trial.chunks)} chunks for {len(opening)} openings"
        )
    for c, (chunk, first) in enumerate(zip(trial.chunks, opening, strict=True)):
        kind = Kind.SHARED if c else Kind.PROMPT
        until = opening[c + 1] if c + 1 < len(opening) else len(turns)
        for j, token in enumerate(prompts[first]):
            if j >= len(chunk) or chunk.tokens[j] != token or chunk.loss_mask[j]:
                raise FidelityError("split", c, j, f"not the prompt of turn {first}, without loss")
            if chunk.kind[j] != kind:
                raise FidelityError("split", c, j, f"kind {chunk.kind[j]}, should be {kind}")
        for j, turn in enumerate(chunk.source_turn.tolist()):
            if not first <= turn < until:
                raise FidelityError("split", c, j, f"turn {turn} does not belong to this chunk")


def check_synth(trial: Trial, turns: Sequence[Turn]) -> None:
    """Ids that a renderer invented carry no loss and are of kind SYNTHETIC, and nothing else is.

    Raises:
        FidelityError: "synth".
    """
    opening = {0} | {b.turn_index for b in trial.boundaries if b.case is BoundaryCase.SPLIT}
    for c, chunk in enumerate(trial.chunks):
        for j in range(len(chunk)):
            i, index = int(chunk.source_turn[j]), int(chunk.source_index[j])
            base = turns[i].base_length
            invented = base <= index < base + turns[i].synthetic_length and i not in opening
            if invented and chunk.loss_mask[j]:
                raise FidelityError("synth", c, j, f"index {index} of turn {i} is invented")
            if invented != (chunk.kind[j] == Kind.SYNTHETIC):
                is_it = "is" if invented else "is not"
                raise FidelityError("synth", c, j, f"index {index} of turn {i} {is_it} invented")


def check_idempotent(trial: Trial) -> None:
    """The trial of a harness that replays every id has strict boundaries and one chunk.

    Raises:
        FidelityError: "idempotent".
    """
    for boundary in trial.boundaries:
        if boundary.case is not BoundaryCase.STRICT:
            raise FidelityError(
                "idempotent", None, None, f"turn {boundary.turn_index}: {boundary.reason}"
            )
    if len(trial.chunks) != 1:
        raise FidelityError("idempotent", None, None, f"{len(trial.chunks)} chunks")


def check_drift_local(clean: Trial, drifted: Trial, *, turn: int) -> None:
    """Spelling history otherwise from one turn on changes that turn's boundary and nothing else.

    Args:
        clean: the trial of a harness that replays ids.
        drifted: the trial of the same turns, where the prompts from `turn` on spell earlier tokens
            otherwise.
        turn: index of the first such turn.

    Raises:
        FidelityError: "drift_local".
    """
    for before, after in zip(clean.boundaries, drifted.boundaries, strict=True):
        if before.turn_index != turn and before.case is not after.case:
            raise FidelityError(
                "drift_local",
                None,
                None,
                f"turn {before.turn_index}, where nothing changed, went from {before.case} to "
                f"{after.case}",
            )
    lost = _trained(clean) - _trained(drifted)
    if lost:
        raise FidelityError("drift_local", None, None, f"{_name(min(lost))} lost its loss")
    if len(clean.chunks) != len(drifted.chunks):
        return
    for c, (before, after) in enumerate(zip(clean.chunks, drifted.chunks, strict=True)):
        for j in range(min(len(before), len(after))):
            if before.tokens[j] != after.tokens[j] or before.kind[j] != after.kind[j]:
                raise FidelityError("drift_local", c, j, "a kept position changed")


def check_bos(ids: Sequence[int], bos_id: int, *, chunk: int | None = None) -> None:
    """The token that opens a text stands at position 0 or nowhere.

    Raises:
        FidelityError: "bos".
    """
    for j, token in enumerate(ids):
        if token == bos_id and j:
            raise FidelityError("bos", chunk, j, f"id {bos_id} opens a text inside of one")


def _sampled_source(chunk: Chunk, j: int, turns: Sequence[Turn]) -> tuple[Turn | None, int | None]:
    """The turn that position j names and the index in its completion; None where there is none."""
    i = int(chunk.source_turn[j])
    if not 0 <= i < len(turns):
        return None, None
    k = int(chunk.source_index[j]) - turns[i].prompt_length
    return turns[i], k if 0 <= k < turns[i].completion_ids.size else None


def _turns_of(chunk: Chunk) -> list[int]:
    return list(dict.fromkeys(chunk.source_turn.tolist()))


def _extent(chunk: Chunk, turn: int) -> tuple[int, int]:
    places = np.flatnonzero(chunk.source_turn == turn)
    return int(places[0]), int(places[-1]) + 1


def _trained(trial: Trial) -> Counter[tuple[int, int]]:
    return Counter(
        (int(chunk.source_turn[j]), int(chunk.tokens[j]))
        for chunk in trial.chunks
        for j in np.flatnonzero(chunk.loss_mask)
    )


def _name(source: tuple[int, int]) -> str:
    return f"index {source[1]} of turn {source[0]}"
