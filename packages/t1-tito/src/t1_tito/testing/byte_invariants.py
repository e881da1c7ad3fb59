"""Invariants of the boundaries: what the bytes behind the ids say about every decision.

    nocopy     what a later prompt repeats of a completion does not enter the stream again
    bytes      a later prompt is the earlier turn, less what was dropped, and the new context: no text
               is lost or doubled
    ladder     case, s, u and span are what trying every pair gives
    guard      what was dropped from a completion is the template's, and is not said again
    boundary   a re-tokenized span has token boundaries and spells the completion in bytes

Bytes are compared as symbols (`TokenBytes.symbols`), never as decoded text.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from t1_tito.boundary import Boundary, BoundaryCase, Policy
from t1_tito.errors import FidelityError
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Trial
from t1_tito.turn import Turn

from .reference import NaiveLadder, decide_turns, whole_prompts


@dataclass(frozen=True)
class _Repeat:
    """A boundary without a split, with what stands on both sides.

    `kept` is the earlier turn less what was dropped, `later` the later prompt, `context` what of it
    entered the chunk from `position` on.
    """

    boundary: Boundary
    kept: list[int]
    later: list[int]
    chunk: int
    position: int
    context: list[int]


def check_nocopy(trial: Trial, turns: Sequence[Turn], token_bytes: TokenBytes) -> None:
    """What a later prompt repeats of a completion does not enter the stream again.

    Raises:
        FidelityError: "nocopy".
    """
    for repeat in _repeats(trial, turns):
        said = len(_symbols(token_bytes, repeat.kept)) + len(_symbols(token_bytes, repeat.context))
        doubled = said - len(_symbols(token_bytes, repeat.later))
        if doubled > 0:
            raise FidelityError(
                "nocopy",
                repeat.chunk,
                repeat.position,
                f"{doubled} bytes or control tokens of turn {repeat.boundary.turn_index - 1} again",
            )


def check_bytes(trial: Trial, turns: Sequence[Turn], token_bytes: TokenBytes) -> None:
    """No text is lost or doubled where a chunk goes on.

    Raises:
        FidelityError: "bytes".
    """
    for repeat in _repeats(trial, turns):
        stream = _symbols(token_bytes, repeat.kept + repeat.context)
        if stream != _symbols(token_bytes, repeat.later):
            raise FidelityError(
                "bytes",
                repeat.chunk,
                repeat.position,
                f"not what the prompt of turn {repeat.boundary.turn_index} says: "
                f"{token_bytes.text(repeat.later)[-80:]!r}",
            )


def check_ladder(
    trial: Trial,
    turns: Sequence[Turn],
    token_bytes: TokenBytes | None,
    *,
    policy: Policy | None = None,
    stop_ids: Collection[int] = frozenset(),
    forks: Collection[int] = frozenset(),
) -> None:
    """Every boundary is what trying all pairs of the grid gives.

    Args:
        trial: the assembled trial.
        turns: its turns.
        token_bytes: the byte table that it was assembled with.
        policy: the policy, "proven".
        stop_ids: the stop ids that it was assembled with.
        forks: indices of turns that the caller declared a new branch.

    Raises:
        FidelityError: "ladder".
    """
    ladder = NaiveLadder(token_bytes, policy or Policy(), stop_ids)
    prompts = whole_prompts(turns)
    for boundary in trial.boundaries:
        i = boundary.turn_index
        if i in forks:
            continue
        right = decide_turns(ladder, turns[i - 1], prompts[i - 1], prompts[i])
        given = (boundary.scaffold_dropped, boundary.tail_dropped, boundary.span)
        expected = (right.scaffold_dropped, right.tail_dropped, right.span)
        if boundary.case is not right.case or given != expected:
            raise FidelityError(
                "ladder",
                None,
                None,
                f"turn {i} is {right.case} with (s, u, span) {expected}, "
                f"not {boundary.case} with {given}",
            )
        if boundary.context_start != right.context_start:
            raise FidelityError(
                "ladder",
                None,
                None,
                f"turn {i} adds its prompt from {right.context_start} on, "
                f"not from {boundary.context_start}",
            )


def check_guard(
    trial: Trial,
    turns: Sequence[Turn],
    token_bytes: TokenBytes,
    *,
    stop_ids: Collection[int] = frozenset(),
) -> None:
    """What was dropped from a completion's end is whitespace or ends a turn, and is not said again.

    Args:
        trial: the assembled trial.
        turns: its turns.
        token_bytes: the byte table.
        stop_ids: ids that end a turn, besides the one that a turn stopped on.

    Raises:
        FidelityError: "guard"; the position is where the context begins.
    """
    for repeat in _repeats(trial, turns):
        u = repeat.boundary.tail_dropped
        if not u:
            continue
        earlier = turns[repeat.boundary.turn_index - 1]
        completion = earlier.completion_ids.tolist()
        dropped = completion[len(completion) - u :]
        enders = {*stop_ids, *(completion[-1:] if earlier.finish_reason == "stop" else [])}
        owned = token_bytes.template_owned(dropped).all() and all(
            token in enders for token in dropped if token in token_bytes.special_text
        )
        following = _symbols(token_bytes, repeat.later[repeat.boundary.context_start :])
        said = _symbols(token_bytes, dropped)
        text = [symbol for symbol in following if symbol not in set(b" \t\n\r\v\f")]
        again = not text or following[0] in said or text[0] in said or text[0] <= 255
        if not owned or again:
            raise FidelityError(
                "guard",
                repeat.chunk,
                repeat.position,
                f"{token_bytes.text(dropped)!r} was dropped "
                + ("and is said again" if owned else "and is not the template's"),
            )


def check_boundary(trial: Trial, turns: Sequence[Turn], token_bytes: TokenBytes) -> None:
    """Every re-tokenized span lies between token boundaries and spells the completion in bytes.

    Raises:
        FidelityError: "boundary".
    """
    for repeat in _repeats(trial, turns):
        boundary = repeat.boundary
        if boundary.case is not BoundaryCase.RETOKENIZED:
            continue
        b, e = boundary.span or (-1, -1)
        completion = turns[boundary.turn_index - 1].completion_ids.tolist()
        kept = completion[: len(completion) - boundary.tail_dropped]
        before = repeat.kept[: len(repeat.kept) - len(kept)]
        if not 0 <= b <= e <= len(repeat.later) or boundary.context_start != e:
            problem = f"span {boundary.span} and context from {boundary.context_start} on"
        elif _symbols(token_bytes, repeat.later[b:e]) != _symbols(token_bytes, kept):
            problem = f"{token_bytes.text(repeat.later[b:e])!r} is not {token_bytes.text(kept)!r}"
        elif _symbols(token_bytes, repeat.later[:b]) != _symbols(token_bytes, before):
            problem = f"what stands before {b} is not the earlier prompt"
        else:
            continue
        raise FidelityError("boundary", repeat.chunk, repeat.position, problem)


def _repeats(trial: Trial, turns: Sequence[Turn]) -> Iterator[_Repeat]:
    prompts = whole_prompts(turns)
    for boundary in trial.boundaries:
        if boundary.case is BoundaryCase.SPLIT:
            continue
        i = boundary.turn_index
        p, a = prompts[i - 1], turns[i - 1].completion_ids.tolist()
        kept = p[: len(p) - boundary.scaffold_dropped] + a[: len(a) - boundary.tail_dropped]
        yield _Repeat(boundary, kept, prompts[i], *_context_of(trial, i))


def _context_of(trial: Trial, turn: int) -> tuple[int, int, list[int]]:
    """Where a turn's context stands: chunk, first position, ids."""
    for c, chunk in enumerate(trial.chunks):
        places = np.flatnonzero((chunk.source_turn == turn) & ~chunk.loss_mask).tolist()
        if places:
            return c, places[0], [int(chunk.tokens[j]) for j in places]
        if (chunk.source_turn == turn).any():
            return c, int(np.argmax(chunk.source_turn == turn)), []
    return len(trial.chunks) - 1, 0, []


def _symbols(token_bytes: TokenBytes, ids: list[int]) -> list[int]:
    return token_bytes.symbols(ids).tolist()
