"""Fields of foreign records, read by name, and the checks that every adapter makes on them.

A record is a mapping or an object with attributes. `where` opens every message: the turn or row, and
the kind of record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from t1_tito.errors import AdapterError, TurnError
from t1_tito.turn import Turn

Values = Sequence[Any] | npt.NDArray[Any]
"""A list of a record."""

_LARGEST_ID = 2**31 - 1


def refused(
    where: str, problem: str, *, field: str | None = None, position: int | None = None
) -> AdapterError:
    """The error of a record: `where` opens its message, and its attributes say the same."""
    return AdapterError(f"{where}: {problem}", where=where, field=field, position=position)


def field(record: object, name: str) -> Any:
    """The value of a field; None where the record lacks it."""
    if isinstance(record, Mapping):
        return record.get(name)
    return getattr(record, name, None)


def required(record: object, name: str, where: str, advice: str) -> Any:
    """The value of a field that must be there.

    Raises:
        AdapterError: it is missing or None; `advice` says what to do.
    """
    value = field(record, name)
    if value is None:
        raise refused(where, f"{name} is missing; {advice}", field=name)
    return value


def is_list(value: object) -> TypeGuard[Values]:
    """Whether a value is a list, tuple or array of one dimension or more."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def list_in(record: object, name: str, where: str, advice: str) -> Values:
    """The value of a field that must be a list.

    Raises:
        AdapterError: it is missing or something else.
    """
    value = required(record, name, where, advice)
    if not is_list(value):
        raise refused(where, f"{name} must be a list, got {type(value).__name__}", field=name)
    return value


def number_in(record: object, name: str, where: str) -> int | None:
    """The value of a field that counts something; None where the record lacks it.

    Raises:
        AdapterError: it is not an integer.
    """
    value = field(record, name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
        raise refused(where, f"{name} must be an integer, got {value!r}", field=name)
    return None if value is None else int(value)


def same_lengths(where: str, lists: Mapping[str, Values]) -> None:
    """Check that lists speak of the same positions.

    Raises:
        AdapterError: their lengths differ; it names each list and its length.
    """
    if len({len(values) for values in lists.values()}) > 1:
        raise refused(where, f"lengths disagree: {told_lengths(lists)}")


def told_lengths(lists: Mapping[str, Values]) -> str:
    """Names and lengths of lists, for messages."""
    return ", ".join(f"{name} has {len(values)}" for name, values in lists.items())


def ids_array(where: str, name: str, values: Any) -> npt.NDArray[np.int32]:
    """Token ids as int32 [N].

    Raises:
        AdapterError: something in them is no token id.
    """
    array = _vector(where, name, values)
    if array.size and array.dtype.kind not in "iu":
        raise refused(where, f"{name} must hold integer ids, got dtype {array.dtype}", field=name)
    bad = (array < 0) | (array > _LARGEST_ID)
    if bad.any():
        position = int(np.argmax(bad))
        raise refused(
            where,
            f"{name}[{position}] is no token id: {array[position]}",
            field=name,
            position=position,
        )
    return array.astype(np.int32)


def turn_at(index: int | None, *fields: Any, **options: Any) -> Turn:
    """A turn whose errors name its index; fields and options are those of `Turn`."""
    try:
        return Turn(*fields, **options)
    except TurnError as error:
        raise TurnError(error.field, error.position, error.problem, index) from error


def mask_array(where: str, name: str, values: Any) -> npt.NDArray[np.bool_]:
    """A mask of 0 and 1, or of booleans, as bool [N].

    Raises:
        AdapterError: it holds anything else.
    """
    array = _vector(where, name, values)
    odd = (array != 0) & (array != 1)
    if odd.any():
        position = int(np.argmax(odd))
        raise refused(
            where,
            f"{name}[{position}] must be 0 or 1, got {array[position]}",
            field=name,
            position=position,
        )
    return array.astype(bool)


def floats_array(where: str, name: str, values: Any) -> npt.NDArray[np.float32]:
    """Numbers as float32 [N].

    Raises:
        AdapterError: something in them is no finite number.
    """
    array = _vector(where, name, values)
    if array.size and array.dtype.kind not in "fiu":
        raise refused(where, f"{name} must hold numbers, got dtype {array.dtype}", field=name)
    finite = np.isfinite(array)
    if not finite.all():
        position = int(np.argmin(finite))
        raise refused(
            where,
            f"{name}[{position}] must be finite, got {array[position]}",
            field=name,
            position=position,
        )
    return array.astype(np.float32)


def _vector(where: str, name: str, values: Any) -> npt.NDArray[Any]:
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise refused(where, f"{name} must be a flat list: {error}", field=name) from error
    if array.ndim != 1:
        raise refused(where, f"{name} must be a flat list, got shape {array.shape}", field=name)
    return array
