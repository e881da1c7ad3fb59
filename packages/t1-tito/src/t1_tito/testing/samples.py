"""Samples of any stack: read from whatever a subject returns, and located in the turns.

A sample has `tokens`, `loss_mask` and `logprobs`, as attributes or keys, of equal length; it may name
each token's origin in `source_turn` and `source_index`. Where it does not, the stretches with loss
are taken apart into whole completions, and each is given to the turn that fits best: the one with its
log-probabilities, else the one whose prompt stands before it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from t1_tito.errors import FidelityError
from t1_tito.trial import Trial
from t1_tito.turn import Turn

from .reference import whole_prompts


@dataclass(frozen=True)
class Sample:
    """One training sample as plain lists; `source` is None where origins are not named."""

    tokens: list[int]
    loss_mask: list[bool]
    logprobs: list[float]
    source: list[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Placed:
    """A completion found in a sample: it starts at `start` of sample `sample`, and is `turn`'s."""

    sample: int
    start: int
    turn: int


def read_samples(returned: object) -> list[Sample]:
    """Read what a subject returned.

    Args:
        returned: a `Trial`, or an iterable of samples.

    Raises:
        FidelityError: "shape"; a field is missing, of the wrong kind, or of another length.
    """
    given = returned.chunks if isinstance(returned, Trial) else returned
    if not isinstance(given, Iterable) or isinstance(given, str | Mapping):
        raise FidelityError("shape", None, None, f"expected samples, got {type(given).__name__}")
    samples = [_sample(c, one) for c, one in enumerate(cast("Iterable[object]", given))]
    if not samples:
        raise FidelityError("shape", None, None, "no sample was returned")
    return samples


def _sample(c: int, given: object) -> Sample:
    tokens = _numbers(c, given, "tokens", int)
    mask = [bool(value) for value in _numbers(c, given, "loss_mask", int)]
    logprobs = _numbers(c, given, "logprobs", float)
    source = None
    if _get(given, "source_turn") is not None and _get(given, "source_index") is not None:
        pairs = (_numbers(c, given, name, int) for name in ("source_turn", "source_index"))
        source = list(zip(*pairs, strict=False))
    lengths = {
        "loss_mask": len(mask),
        "logprobs": len(logprobs),
        "source_turn": len(tokens if source is None else source),
    }
    for name, length in lengths.items():
        if length != len(tokens):
            raise FidelityError("shape", c, None, f"{name} has {length} of {len(tokens)} positions")
    return Sample(tokens, mask, logprobs, source)


def _get(given: object, name: str) -> Any:
    if isinstance(given, Mapping):
        return cast("Mapping[str, Any]", given).get(name)
    return getattr(given, name, None)


def _numbers(c: int, given: object, name: str, kind: type) -> list[Any]:
    value = _get(given, name)
    if value is None:
        raise FidelityError("shape", c, None, f"has no {name}")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise FidelityError("shape", c, None, f"{name} is no flat sequence: {error}") from error
    kinds = "iub" if kind is int else "iuf"
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise FidelityError("shape", c, None, f"{name} is {array.dtype} {list(array.shape)}")
    return [kind(number) for number in array.tolist()]


def place(samples: Sequence[Sample], turns: Sequence[Turn]) -> list[Placed]:
    """Find every completion in the samples.

    Returns:
        The completions in the order of samples and positions.

    Raises:
        FidelityError: "emit" where a stretch with loss holds ids that no completion has there; "once"
            where part of a completion, or one that stands elsewhere already, carries loss.
    """
    free = {i for i, turn in enumerate(turns) if turn.completion_ids.size}
    placed: list[Placed] = []
    prompts = whole_prompts(turns)
    for c, sample in enumerate(samples):
        for start, stop in _stretches(sample.loss_mask):
            for at, length in _completions_in(c, sample.tokens, start, stop, turns):
                ids = sample.tokens[at : at + length]
                fitting = [i for i in sorted(free) if turns[i].completion_ids.tolist() == ids]
                if not fitting:
                    raise FidelityError("once", c, at, f"a completion of {length} ids again")
                fit = [_fit(sample, at, turns[i], prompts[i]) for i in fitting]
                turn = fitting[fit.index(max(fit))]
                free.discard(turn)
                placed.append(Placed(c, at, turn))
    return placed


def _stretches(mask: Sequence[bool]) -> list[tuple[int, int]]:
    edges = [
        j
        for j in range(len(mask) + 1)
        if (mask[j - 1] if j else False) != (j < len(mask) and mask[j])
    ]
    return list(zip(edges[::2], edges[1::2], strict=True))


def _completions_in(
    c: int, tokens: list[int], start: int, stop: int, turns: Sequence[Turn]
) -> list[tuple[int, int]]:
    """The stretch as whole completions, (start, length) each."""
    known = sorted({tuple(turn.completion_ids.tolist()) for turn in turns} - {()}, key=len)
    # how far the stretch can be explained, and by which last completion
    reached: dict[int, int] = {start: 0}
    for at in range(start, stop):
        if at in reached:
            for ids in known:
                if tuple(tokens[at : at + len(ids)]) == ids and at + len(ids) <= stop:
                    reached.setdefault(at + len(ids), len(ids))
    if stop not in reached:
        at = max(reached)
        rest = tokens[at:stop]
        if any(_is_within(rest, list(ids)) for ids in known):
            raise FidelityError("once", c, at, f"part of a completion carries loss: {rest}")
        raise FidelityError("emit", c, at, f"no completion holds {rest} there")
    found: list[tuple[int, int]] = []
    at = stop
    while at > start:
        found.append((at - reached[at], reached[at]))
        at -= reached[at]
    return found[::-1]


def _is_within(part: list[int], whole: list[int]) -> bool:
    return any(whole[k : k + len(part)] == part for k in range(len(whole) - len(part) + 1))


def _fit(sample: Sample, at: int, turn: Turn, prompt: list[int]) -> tuple[bool, int]:
    """How well a turn fits at a place: same log-probabilities, length of the shared context."""
    given = np.array(sample.logprobs[at : at + turn.completion_ids.size], np.float32)
    shared = 0
    while shared < min(at, len(prompt)) and sample.tokens[at - 1 - shared] == prompt[-1 - shared]:
        shared += 1
    return given.tobytes() == turn.logprobs.tobytes(), shared
