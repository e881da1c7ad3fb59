"""One turn: the ids the engine was given, the ids it sampled, and their log-probabilities.

Written p for `prompt_ids`, a for `completion_ids` and T = p‖a for both. A turn is validated when
it is built and read-only afterwards, so that everything behind it can trust its shapes. It knows
no text, no tokenizer and no neighbouring turn.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from .errors import TurnError

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_Scalar = TypeVar("_Scalar", bound=np.generic)

_LARGEST_ID = np.iinfo(np.int32).max


class FinishReason(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"
    """A stop token was sampled; it is the last completion id."""
    LENGTH = "length"
    """The token limit or the context ran out."""
    ABORT = "abort"
    """The request was cancelled; the completion is what had been sampled until then."""


@dataclass(frozen=True, eq=False, init=False)
class Turn:
    """What one engine request received and returned.

    Arrays that already have the right dtype are kept as read-only views, not copied: do not write
    into their base afterwards. Anything else array-like is converted.

    Attributes:
        prompt_ids: int32 [P], P >= 1, the ids the engine was given.
        completion_ids: int32 [A], the ids it sampled. Empty only after LENGTH or ABORT.
        logprobs: float32 [A], natural log-probability of each sampled id under the sampler.
        version_sent: weight version when the request was sent.
        version_received: weight version when the answer arrived.
        finish_reason: why sampling ended.

    Raises:
        TurnError: naming the field and position that is malformed.
    """

    prompt_ids: Ids
    completion_ids: Ids
    logprobs: Floats
    version_sent: int
    version_received: int
    finish_reason: FinishReason

    def __init__(
        self,
        prompt_ids: npt.ArrayLike,
        completion_ids: npt.ArrayLike,
        logprobs: npt.ArrayLike,
        version_sent: int,
        version_received: int,
        finish_reason: FinishReason,
    ) -> None:
        prompt = _ids("prompt_ids", prompt_ids)
        completion = _ids("completion_ids", completion_ids)
        reason = _finish_reason(finish_reason)
        if prompt.size == 0:
            raise TurnError("prompt_ids", None, "expected at least one id, got none")
        if completion.size == 0 and reason is FinishReason.STOP:
            raise TurnError(
                "completion_ids",
                None,
                "empty although sampling stopped; ask the engine to return the stop token's id",
            )
        values = {
            "prompt_ids": prompt,
            "completion_ids": completion,
            "logprobs": _logprobs(logprobs, completion.size),
            "version_sent": _version("version_sent", version_sent),
            "version_received": _version("version_received", version_received),
            "finish_reason": reason,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def ids(self) -> Ids:
        """T = prompt ‖ completion, int32 [P + A], a fresh array."""
        return np.concatenate((self.prompt_ids, self.completion_ids))

    @property
    def length(self) -> int:
        """|T| in tokens."""
        return self.prompt_ids.size + self.completion_ids.size


def _vector(field: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise TurnError(field, None, f"expected a flat sequence: {error}") from error
    if array.ndim != 1:
        raise TurnError(field, None, f"expected one dimension, got shape {array.shape}")
    return array


def _ids(field: str, values: npt.ArrayLike) -> Ids:
    array = _vector(field, values)
    if array.size and array.dtype.kind not in "iu":
        raise TurnError(field, None, f"expected integer token ids, got dtype {array.dtype}")
    bad = np.flatnonzero((array < 0) | (array > _LARGEST_ID)) if array.size else array
    if bad.size:
        position = int(bad[0])
        raise TurnError(field, position, f"expected an id in [0, 2**31), got {array[position]}")
    return _read_only(array.astype(np.int32, copy=False))


def _logprobs(values: npt.ArrayLike, length: int) -> Floats:
    array = _vector("logprobs", values)
    if array.size != length:
        raise TurnError(
            "logprobs",
            None,
            f"expected one per sampled id: {array.size} log-probabilities for {length} ids",
        )
    if array.size and array.dtype.kind not in "fiu":
        raise TurnError("logprobs", None, f"expected floats, got dtype {array.dtype}")
    floats = array.astype(np.float32, copy=False)
    bad = np.flatnonzero(~np.isfinite(floats))
    if bad.size:
        position = int(bad[0])
        raise TurnError("logprobs", position, f"expected a finite value, got {floats[position]}")
    return _read_only(floats)


def _version(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise TurnError(field, None, f"expected an integer weight version >= 0, got {value!r}")
    return int(value)


def _finish_reason(value: str) -> FinishReason:
    try:
        return FinishReason(value)
    except ValueError as error:
        known = ", ".join(FinishReason)
        raise TurnError("finish_reason", None, f"expected one of {known}; got {value!r}") from error


def _read_only(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    view = array.view()
    view.flags.writeable = False
    return view
