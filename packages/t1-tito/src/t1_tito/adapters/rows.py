"""Rows of training data: a chunk in the two parts that trainers want, and a foreign row in one.

Trainers split a sample into a prompt, which has no loss mask, and a response, which has one. The
split is one rule, `response_start`: the response starts at the first sampled token. All before it is
context of the first sampled token, whatever it consists of, and loses nothing by losing its mask.

    chunk  tokens      p p p p | a a a o o a a
           loss_mask   0 0 0 0 | 1 1 1 0 0 1 1
                    prompt_ids | response_ids, response_mask, response_logprobs

A chunk without loss trains nothing and makes no row.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from t1_tito.errors import AdapterError
from t1_tito.trial import Chunk, Trial, TurnRecord
from t1_tito.turn import FinishReason, Floats, Ids

from ._fields import Values, floats_array, ids_array, mask_array, refused, same_lengths

Named = tuple[str, Values]
"""A list, after the name that its format has for it."""


@dataclass(frozen=True, eq=False, slots=True)
class Row:
    """A row of a trainer, back in the form of a chunk: what the audit takes as a sample.

    Attributes:
        tokens: int32 [N].
        loss_mask: bool [N], False throughout the prompt.
        logprobs: float32 [N], 0 where `loss_mask` is False; None where the row has none.
    """

    tokens: Ids
    loss_mask: npt.NDArray[np.bool_]
    logprobs: Floats | None


@dataclass(frozen=True, eq=False, slots=True)
class Response:
    """One chunk in two parts, as plain lists.

    Attributes:
        chunk: index of the chunk in its trial.
        prompt_ids: ids before the first sampled token.
        response_ids: ids from there on, R of them.
        response_mask: 1 where the id was sampled, R of them, starting with 1.
        response_logprobs: the sampler's log-probability, 0.0 where the mask is 0, R of them.
        turns: the turns whose completions the chunk holds.
    """

    chunk: int
    prompt_ids: list[int]
    response_ids: list[int]
    response_mask: list[int]
    response_logprobs: list[float]
    turns: tuple[TurnRecord, ...]

    @property
    def finish_reason(self) -> FinishReason:
        """Why the last turn ended."""
        return self.turns[-1].finish_reason


def response_start(loss_mask: npt.NDArray[np.bool_]) -> int:
    """Position of the first sampled token, which starts the response; N where there is none."""
    return int(np.argmax(loss_mask)) if loss_mask.any() else int(loss_mask.size)


def responses_of(trial: Trial) -> list[Response]:
    """Every chunk that has loss, in two parts.

    Raises:
        AdapterError: the arrays of a chunk differ in length, a chunk with loss holds no turn, or no
            chunk has loss, so that the trial trains nothing and has to be left out by its owner.
    """
    responses = [
        _response(index, chunk, trial)
        for index, chunk in enumerate(trial.chunks)
        if chunk.loss_mask.any()
    ]
    if not responses:
        raise AdapterError(
            f"the trial of {len(trial.turns)} turns holds no sampled token, so it makes no row; "
            "leave it out"
        )
    return responses


def _response(index: int, chunk: Chunk, trial: Trial) -> Response:
    where = f"chunk {index}"
    names = ("tokens", "loss_mask", "logprobs")
    same_lengths(where, {name: getattr(chunk, name) for name in names})
    turns = tuple(turn for turn in trial.turns if turn.chunk == index)
    if not turns:
        raise refused(
            where, "has loss, but no turn of the trial says that it is there", field="turns"
        )
    start = response_start(chunk.loss_mask)
    return Response(
        index,
        chunk.tokens[:start].tolist(),
        chunk.tokens[start:].tolist(),
        chunk.loss_mask[start:].astype(int).tolist(),
        chunk.logprobs[start:].tolist(),
        turns,
    )


def row_of_parts(
    where: str, prompt: Named, response: Named, mask: Named, logprobs: Named | None
) -> Row:
    """A row from its two parts; the prompt gets mask False and log-probability 0.

    Raises:
        AdapterError: the lists of the response differ in length, or hold what they cannot.
    """
    prompt_ids = ids_array(where, *prompt)
    tail = row_of_whole(where, response, mask, logprobs)
    floats = None
    if tail.logprobs is not None:
        floats = np.concatenate([np.zeros(prompt_ids.size, np.float32), tail.logprobs])
    return Row(
        np.concatenate([prompt_ids, tail.tokens]),
        np.concatenate([np.zeros(prompt_ids.size, bool), tail.loss_mask]),
        floats,
    )


def row_of_whole(where: str, tokens: Named, mask: Named, logprobs: Named | None) -> Row:
    """A row from lists that cover prompt and response alike.

    Raises:
        AdapterError: the lists differ in length, or hold what they cannot.
    """
    same_lengths(where, dict([tokens, mask] if logprobs is None else [tokens, mask, logprobs]))
    floats = None if logprobs is None else floats_array(where, *logprobs)
    return Row(ids_array(where, *tokens), mask_array(where, *mask), floats)
