"""One turn: the ids the engine was given, the ids it sampled, and their log-probabilities.

Written p for the prompt, a for `completion_ids` and T = p‖a for both. A prompt is given whole, or as
what it adds to the turn before:

    base_length = 0   p = prompt_ids
    base_length = B   p = T of the turn before [:B] ‖ prompt_ids

A turn is validated when it is built and read-only afterwards, so that everything behind it can trust
its shapes. It knows no text, no tokenizer and no neighbouring turn.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from .errors import TurnError

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_Scalar = TypeVar("_Scalar", bound=np.generic)

_LARGEST_ID = 2**31 - 1
_INT32 = np.dtype(np.int32)
_UINT32 = np.dtype(np.uint32)
_FLOAT32 = np.dtype(np.float32)


class FinishReason(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"
    """A stop token was sampled; it is the last completion id."""
    LENGTH = "length"
    """The token limit or the context ran out."""
    ABORT = "abort"
    """The request was cancelled; the completion is what had been sampled until then."""


_REASONS = {reason.value: reason for reason in FinishReason}


@dataclass(frozen=True, eq=False, init=False, slots=True)
class Turn:
    """What one engine request received and returned.

    Arrays that already have the right dtype are kept as read-only views, not copied: do not write
    into their base afterwards. Anything else array-like is converted.

    Attributes:
        prompt_ids: int32, the ids the engine was given after the first `base_length` ones; [P] with
            P >= 1 where `base_length` is 0, else [P - base_length].
        completion_ids: int32 [A], the ids it sampled. Empty only after LENGTH or ABORT.
        logprobs: float32 [A], natural log-probability of each sampled id under the sampler.
        version_sent: weight version when the request was sent.
        version_received: weight version when the answer arrived.
        finish_reason: why sampling ended.
        base_length: leading ids that the prompt shares with prompt and completion of the turn
            before, by whose word they are not repeated here; 0 for a prompt given whole.
        synthetic_length: leading ids of `prompt_ids` that a renderer made up to close a truncated
            turn.
        largest_id: the largest id of `prompt_ids` and `completion_ids`, -1 where both are empty.

    Raises:
        TurnError: naming the field and position that is malformed.
    """

    prompt_ids: Ids
    completion_ids: Ids
    logprobs: Floats
    version_sent: int
    version_received: int
    finish_reason: FinishReason
    base_length: int
    synthetic_length: int
    largest_id: int = field(init=False)

    def __init__(
        self,
        prompt_ids: npt.ArrayLike,
        completion_ids: npt.ArrayLike,
        logprobs: npt.ArrayLike,
        version_sent: int,
        version_received: int,
        finish_reason: FinishReason | str,
        *,
        base_length: int = 0,
        synthetic_length: int = 0,
    ) -> None:
        prompt, largest_prompted = _ids("prompt_ids", prompt_ids)
        completion, largest_sampled = _ids("completion_ids", completion_ids)
        reason = _finish_reason(finish_reason)
        base = _natural("base_length", base_length, "a number of ids")
        synthetic = _natural("synthetic_length", synthetic_length, "a number of ids")
        if not prompt.size and not base:
            raise TurnError("prompt_ids", None, "expected at least one id, got none")
        if synthetic > prompt.size:
            raise TurnError(
                "synthetic_length", None, f"{synthetic} of only {prompt.size} ids of prompt_ids"
            )
        if completion.size == 0 and reason is FinishReason.STOP:
            raise TurnError(
                "completion_ids",
                None,
                "empty although sampling stopped; ask the engine to return the stop token's id",
            )
        put = object.__setattr__
        put(self, "prompt_ids", prompt)
        put(self, "completion_ids", completion)
        put(self, "logprobs", _logprobs(logprobs, completion.size))
        put(self, "version_sent", _natural("version_sent", version_sent, "a weight version"))
        put(
            self,
            "version_received",
            _natural("version_received", version_received, "a weight version"),
        )
        put(self, "finish_reason", reason)
        put(self, "base_length", base)
        put(self, "synthetic_length", synthetic)
        put(self, "largest_id", max(largest_prompted, largest_sampled))

    def __reduce__(self) -> tuple[object, ...]:
        """A copy is validated and read-only as any turn is."""
        rebuild = partial(
            Turn, base_length=self.base_length, synthetic_length=self.synthetic_length
        )
        versions = self.version_sent, self.version_received
        sampled = self.completion_ids, self.logprobs
        return rebuild, (self.prompt_ids, *sampled, *versions, self.finish_reason)

    @property
    def prompt_length(self) -> int:
        """P, the tokens of the whole prompt."""
        return self.base_length + self.prompt_ids.size

    @property
    def length(self) -> int:
        """|T| in tokens."""
        return self.base_length + self.prompt_ids.size + self.completion_ids.size


def _vector(field: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        vector = np.asarray(values)
    except ValueError as error:
        raise TurnError(field, None, f"expected a flat sequence: {error}") from error
    if vector.ndim != 1:
        raise TurnError(field, None, f"expected one dimension, got shape {vector.shape}")
    return vector


def _ids(field: str, values: npt.ArrayLike) -> tuple[Ids, int]:
    """The ids as int32 and the largest of them, -1 where there are none."""
    given = values
    if isinstance(values, list) and values and not isinstance(values[0], bool):
        values = _uint32_list(values)
    vector = _vector(field, values)
    if not vector.size:
        return _read_only(vector.astype(_INT32)), -1
    if vector.dtype is not _INT32 and vector.dtype is not _UINT32:
        if vector.dtype.kind not in "iu":
            raise _type_error(field, given, "integer token ids", int | np.integer)
        vector = _as_int32(field, vector)
    # a reduction by itself: the methods of arrays go through Python first. As unsigned numbers
    # negative ids are the largest, so that one pass checks both ends
    unsigned = vector.view(_UINT32)
    largest = int(np.maximum.reduce(unsigned))
    if largest > _LARGEST_ID:
        position = int(np.argmax(unsigned > _LARGEST_ID))
        raise _id_error(field, position, int(vector[position]))
    return _read_only(vector if vector.dtype is _INT32 else vector.view(_INT32)), largest


def _as_int32(field: str, vector: npt.NDArray[Any]) -> Ids:
    wrong = (vector < 0) | (vector > _LARGEST_ID)
    if wrong.any():
        position = int(np.argmax(wrong))
        raise _id_error(field, position, int(vector[position]))
    return vector.astype(np.int32)


def _type_error(field: str, given: npt.ArrayLike, expected: str, wanted: Any) -> TurnError:
    """Names the first value of another type; of an array, which has one type, none in particular."""
    if isinstance(given, np.ndarray):
        return TurnError(field, None, f"expected {expected}, got dtype {given.dtype}")
    values = list(cast("Iterable[object]", given))
    wrong = [isinstance(value, bool) or not isinstance(value, wanted) for value in values]
    if not any(wrong):
        # integers beyond those of any dtype
        return TurnError(field, None, f"expected {expected}, got dtype {np.asarray(values).dtype}")
    position = wrong.index(True)
    return TurnError(field, position, f"expected {expected}, got {values[position]!r}")


def _id_error(field: str, position: int, found: int) -> TurnError:
    return TurnError(field, position, f"expected an id in [0, 2**31), got {found}")


def _uint32_list(values: list[Any]) -> npt.ArrayLike:
    """The list as uint32, several times faster than numpy; as it is where it holds anything else.

    Signed arrays parse each value as an argument of a call, which takes three times as long.
    """
    try:
        return np.frombuffer(array("I", values), _UINT32)
    except (TypeError, OverflowError):
        return values


def _float32_list(values: list[Any]) -> npt.ArrayLike:
    try:
        return np.frombuffer(array("f", values), _FLOAT32)
    except (TypeError, OverflowError):
        return values


def _logprobs(values: npt.ArrayLike, length: int) -> Floats:
    given = values
    if isinstance(values, list) and values and not isinstance(values[0], bool):
        values = _float32_list(values)
    vector = _vector("logprobs", values)
    if vector.size != length:
        raise TurnError(
            "logprobs",
            None,
            f"expected one per sampled id: {vector.size} log-probabilities for {length} ids",
        )
    if vector.dtype is not _FLOAT32:
        if vector.size and vector.dtype.kind not in "fiu":
            raise _type_error("logprobs", given, "floats", int | float | np.number)
        vector = vector.astype(np.float32)
    finite = np.isfinite(vector)
    if np.count_nonzero(finite) != finite.size:
        position = int(np.argmin(finite))
        raise TurnError("logprobs", position, f"expected a finite value, got {vector[position]}")
    return _read_only(vector)


def _natural(field: str, value: object, meaning: str) -> int:
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, np.integer) and value >= 0:
        return int(value)
    raise TurnError(field, None, f"expected {meaning}, an integer >= 0, got {value!r}")


def _finish_reason(value: object) -> FinishReason:
    reason = _REASONS.get(value) if isinstance(value, str) else None
    if reason is None:
        known = ", ".join(FinishReason)
        raise TurnError("finish_reason", None, f"expected one of {known}; got {value!r}")
    return reason


def _read_only(vector: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    view = vector.view()
    view.setflags(write=False)
    return view
