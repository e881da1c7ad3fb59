"""Invariants of the samples of any stack, against the raw turns: what holds without our data model.

    shape   tokens, mask and log-probabilities are of one length
    emit    what carries loss was sampled, id for id
    once    every sampled token carries loss exactly once
    logp    with its own log-probability; 0 elsewhere
    cond    behind its prompt; where a sample goes on after a repair, behind the end of its prompt
    bytes   where a sample goes on, no text is lost or doubled
    append  more turns leave the samples of fewer turns as beginnings

All raise `FidelityError`.
"""

from collections.abc import Sequence

import numpy as np

from t1_tito.errors import FidelityError
from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import Turn

from .reference import whole_prompts
from .samples import Placed, Sample, place

_WHITESPACE = frozenset(b" \t\n\r\v\f")
_LARGEST_SCAFFOLD = 96


def check_sample_emit(samples: Sequence[Sample], turns: Sequence[Turn]) -> None:
    """What carries loss was sampled, id for id; where origins are named, by that turn at that index.

    Raises:
        FidelityError: "emit".
    """
    _placed(samples, turns, "emit")
    for c, sample in enumerate(samples):
        for j, source in enumerate(sample.source or ()):
            if not sample.loss_mask[j]:
                continue
            i, index = source
            turn = turns[i] if 0 <= i < len(turns) else None
            k = index - turn.prompt_length if turn is not None else -1
            if turn is None or not 0 <= k < turn.completion_ids.size:
                raise FidelityError("emit", c, j, f"index {index} of turn {i} was not sampled")
            if turn.completion_ids[k] != sample.tokens[j]:
                raise FidelityError("emit", c, j, f"index {index} of turn {i} is another id")


def check_sample_once(samples: Sequence[Sample], turns: Sequence[Turn]) -> None:
    """Every sampled token carries loss exactly once over all samples.

    Raises:
        FidelityError: "once".
    """
    try:
        found = {one.turn for one in place(samples, turns)}
    except FidelityError as error:
        if error.invariant == "once":
            raise
        return
    for i, turn in enumerate(turns):
        if turn.completion_ids.size and i not in found:
            size = turn.completion_ids.size
            raise FidelityError("once", None, None, f"the {size} ids of turn {i} carry no loss")


def check_sample_logp(samples: Sequence[Sample], turns: Sequence[Turn]) -> None:
    """Log-probabilities are the turns' own as float32, and 0 without loss.

    Raises:
        FidelityError: "logp".
    """
    for c, sample in enumerate(samples):
        for j, (loss, logprob) in enumerate(zip(sample.loss_mask, sample.logprobs, strict=True)):
            if not loss and logprob != 0:
                raise FidelityError("logp", c, j, f"{logprob} without loss")
    for one in _placed(samples, turns, "logp"):
        expected = turns[one.turn].logprobs
        given = np.array(samples[one.sample].logprobs[one.start :][: expected.size], np.float32)
        wrong = np.flatnonzero(given.view(np.uint32) != expected.view(np.uint32))
        if wrong.size:
            j = one.start + int(wrong[0])
            raise FidelityError(
                "logp", one.sample, j, f"{given[wrong[0]]}, was {expected[wrong[0]]}"
            )


def check_sample_cond(samples: Sequence[Sample], turns: Sequence[Turn]) -> None:
    """Every completion stands behind its prompt.

    Where a sample goes on from an earlier turn that the later prompt does not repeat id for id, the
    end of that prompt must stand between the two instead.

    Raises:
        FidelityError: "cond".
    """
    prompts = whole_prompts(turns)
    repaired: set[int] = set()
    for one, before in _with_predecessors(_placed(samples, turns, "cond")):
        sample, prompt = samples[one.sample], prompts[one.turn]
        if sample.tokens[: one.start] == prompt:
            continue
        problem = f"not the prompt that turn {one.turn} was sampled under"
        if before is None:
            raise FidelityError("cond", one.sample, one.start, problem)
        spoken = prompts[before.turn] + turns[before.turn].completion_ids.tolist()
        if prompt[: len(spoken)] == spoken and one.sample not in repaired:
            raise FidelityError("cond", one.sample, one.start, problem)
        repaired.add(one.sample)
        end = before.start + turns[before.turn].completion_ids.size
        added = sample.tokens[end : one.start]
        if prompt[len(prompt) - len(added) :] != added:
            raise FidelityError("cond", one.sample, end, "what follows ends no prompt")


def check_sample_bytes(
    samples: Sequence[Sample], turns: Sequence[Turn], token_bytes: TokenBytes
) -> None:
    """Where a sample goes on from one turn to the next, no text is lost or doubled.

    Text is what is neither whitespace nor a control token; those belong to templates.

    Raises:
        FidelityError: "bytes".
    """
    prompts = whole_prompts(turns)
    for one, before in _with_predecessors(_placed(samples, turns, "bytes")):
        sample, prompt = samples[one.sample], prompts[one.turn]
        if before is None or before.turn + 1 != one.turn:
            continue
        p, a = prompts[before.turn], turns[before.turn].completion_ids.tolist()
        end = before.start + len(a)
        added = sample.tokens[end : one.start]
        wanted = _text(token_bytes, prompt)
        largest = min(_LARGEST_SCAFFOLD, len(p) - 1)
        # what every prompt ends with may be missing in history
        drops = [s for s in range(largest + 1) if s == 0 or prompt[-s:] == p[-s:]]
        if not any(_text(token_bytes, p[: len(p) - s] + a + added) == wanted for s in drops):
            said = token_bytes.text(sample.tokens[: one.start])[-80:]
            raise FidelityError(
                "bytes", one.sample, end, f"turn {one.turn} was asked otherwise than {said!r}"
            )


def check_sample_append(fewer: Sequence[Sample], more: Sequence[Sample]) -> None:
    """More turns leave the samples of fewer turns as beginnings.

    Raises:
        FidelityError: "append".
    """
    for c, sample in enumerate(fewer):
        size = len(sample.tokens)
        if not any(
            (other.tokens[:size], other.loss_mask[:size], other.logprobs[:size])
            == (sample.tokens, sample.loss_mask, sample.logprobs)
            for other in more
        ):
            raise FidelityError("append", c, None, "the sample changed when a turn was added")


def _placed(samples: Sequence[Sample], turns: Sequence[Turn], wanted: str) -> list[Placed]:
    """The completions in the samples; empty where another invariant says why there are none."""
    try:
        return place(samples, turns)
    except FidelityError as error:
        if error.invariant == wanted:
            raise
        return []


def _with_predecessors(placed: Sequence[Placed]) -> list[tuple[Placed, Placed | None]]:
    """Each completion with the one before it in the same sample."""
    pairs: list[tuple[Placed, Placed | None]] = []
    for number, one in enumerate(placed):
        before = placed[number - 1] if number else None
        same = before is not None and before.sample == one.sample
        pairs.append((one, before if same else None))
    return pairs


def _text(token_bytes: TokenBytes, ids: Sequence[int]) -> list[int]:
    symbols = token_bytes.symbols(list(ids)).tolist()
    return [symbol for symbol in symbols if symbol < 256 and symbol not in _WHITESPACE]
