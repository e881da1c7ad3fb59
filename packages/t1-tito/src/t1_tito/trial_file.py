"""Trials as JSON lines: one trial a line, each line readable on its own.

    {"schema_version": 1, "trial_id": "a", "turns": [{"prompt_ids": [1, 2], "completion_ids": [3],
     "logprobs": [-0.5], "version_sent": 0, "version_received": 0, "finish_reason": "stop",
     "base_length": 0, "synthetic_length": 0}],
     "chunks": [{"tokens": [1, 2, 3], "loss_mask": [false, false, true], "logprobs": [0, 0, -0.5],
     "source_turn": [0, 0, 0], "source_index": [0, 1, 2], "kind": [0, 0, 1]}]}

Of a turn, `base_length` and `synthetic_length` may be left out (0), of a trial `chunks` (not assembled
yet), of a chunk `logprobs`, `source_turn`, `source_index` and `kind`. Other keys are ignored. Turns are
validated as `Turn` validates them; NaN and infinities are refused everywhere.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from .errors import FileFormatError, TurnError
from .trial import Chunk
from .turn import Turn

SCHEMA_VERSION = 1

_TURN_FIELDS = (
    "prompt_ids",
    "completion_ids",
    "logprobs",
    "version_sent",
    "version_received",
    "finish_reason",
)
_TURN_OPTIONS = ("base_length", "synthetic_length")
_CHUNK_DTYPES: Mapping[str, Any] = {
    "tokens": np.int32,
    "loss_mask": np.bool_,
    "logprobs": np.float32,
    "source_turn": np.int32,
    "source_index": np.int32,
    "kind": np.uint8,
}
_CHUNK_REQUIRED = ("tokens", "loss_mask")

Arrays = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class TrialRecord:
    """One line.

    Attributes:
        trial_id: whatever names the trial.
        turns: its turns, at least one.
        chunks: its samples, each the arrays by name; None where it is not assembled yet.
        where: how messages name the place it was read from, "" where it was not read.
    """

    trial_id: str
    turns: tuple[Turn, ...]
    chunks: tuple[Arrays, ...] | None = None
    where: str = ""


def arrays_of(chunk: Chunk) -> Arrays:
    """The arrays of a chunk by name, as a record holds them."""
    return {name: getattr(chunk, name) for name in _CHUNK_DTYPES}


def read_trials(
    path: str | os.PathLike[str], *, on_error: Callable[[FileFormatError], None] | None = None
) -> Iterator[TrialRecord]:
    """Read the trials of a file one by one; blank lines are skipped.

    Args:
        path: the file.
        on_error: takes the error of a line that cannot be read, after which reading goes on; None
            raises it.

    Raises:
        FileFormatError: a line cannot be read, or the file cannot be opened; names line, field and
            position.
    """
    try:
        with Path(path).open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield parse_trial(line, f"{path}, line {number}")
                except FileFormatError as error:
                    if on_error is None:
                        raise
                    on_error(error)
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error


def write_trials(path: str | os.PathLike[str], trials: Iterable[TrialRecord]) -> int:
    """Write a file of trials; it appears whole or not at all.

    Returns:
        The number of trials written.

    Raises:
        FileFormatError: the file cannot be written.
    """
    target = Path(path)
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    count = 0
    try:
        try:
            with draft.open("w", encoding="utf-8") as lines:
                for count, trial in enumerate(trials, 1):  # noqa: B007 it is the result
                    lines.write(format_trial(trial) + "\n")
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error
    return count


def format_trial(trial: TrialRecord) -> str:
    """One trial as a line without its line break."""
    content: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "trial_id": trial.trial_id,
        "turns": [_turn_values(turn) for turn in trial.turns],
    }
    if trial.chunks is not None:
        content["chunks"] = [
            {name: array.tolist() for name, array in chunk.items()} for chunk in trial.chunks
        ]
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def _turn_values(turn: Turn) -> dict[str, Any]:
    values = {name: getattr(turn, name) for name in (*_TURN_FIELDS, *_TURN_OPTIONS)}
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def parse_trial(line: str | bytes, where: str = "trial") -> TrialRecord:
    """Read one line.

    Args:
        line: the line, with or without its line break.
        where: how messages name it.

    Raises:
        FileFormatError: it is torn or no JSON, or a field is missing or malformed.
    """
    constants: list[str] = []

    def constant(name: str) -> float:
        constants.append(name)
        return float(name)

    try:
        content = json.loads(line, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        # a decoder's own "line 2 column 1" counts from this line's start and misleads
        decoding = isinstance(error, json.JSONDecodeError)
        why = f"{error.msg} at character {error.pos + 1}" if decoding else str(error)
        ended = line[-1:] in (b"\n", "\n")
        torn = "" if ended else "; it has no line break, the writer may have been cut off"
        raise FileFormatError(f"{where}: not a JSON line: {why}{torn}") from error
    fields = _object(where, content)
    version = _field(where, fields, "schema_version")
    if version != SCHEMA_VERSION:
        raise FileFormatError(
            f"{where}: schema_version is {version!r}, this reads {SCHEMA_VERSION}"
        )
    turns = _list(where, fields, "turns")
    if not turns:
        raise FileFormatError(f"{where}: turns: expected at least one, got none")
    record = TrialRecord(
        str(_field(where, fields, "trial_id")),
        tuple(_turn(f"{where}: turns[{i}]", turn) for i, turn in enumerate(turns)),
        None
        if fields.get("chunks") is None
        else tuple(
            _chunk(f"{where}: chunks[{i}]", chunk)
            for i, chunk in enumerate(_list(where, fields, "chunks"))
        ),
        where,
    )
    if constants:
        raise FileFormatError(f"{where}: holds {constants[0]}; only finite numbers are allowed")
    return record


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise FileFormatError(f"{where}: expected an object, got {type(value).__name__}")
    return cast("dict[str, Any]", value)


def _field(where: str, fields: Mapping[str, Any], name: str) -> Any:
    if name not in fields:
        raise FileFormatError(f"{where}: {name} is missing")
    return fields[name]


def _list(where: str, fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = _field(where, fields, name)
    if not isinstance(value, list):
        raise FileFormatError(f"{where}: {name}: expected a list, got {type(value).__name__}")
    return cast("list[Any]", value)


def _turn(where: str, content: Any) -> Turn:
    fields = _object(where, content)
    values = [_field(where, fields, name) for name in _TURN_FIELDS]
    for name, value in zip(_TURN_FIELDS[:3], values, strict=False):
        _list(where, {name: value}, name)
    options = {name: fields[name] for name in _TURN_OPTIONS if name in fields}
    try:
        return Turn(*values, **options)
    except TurnError as error:
        raise FileFormatError(f"{where}.{error}") from error


def _chunk(where: str, content: Any) -> Arrays:
    fields = _object(where, content)
    names = [n for n in _CHUNK_DTYPES if n in _CHUNK_REQUIRED or fields.get(n) is not None]
    arrays = {name: _array(where, name, _list(where, fields, name)) for name in names}
    for name, array in arrays.items():
        if array.size != arrays["tokens"].size:
            raise FileFormatError(
                f"{where}.{name}: {array.size} entries for {arrays['tokens'].size} tokens"
            )
    return arrays


def _array(where: str, name: str, values: Sequence[Any]) -> npt.NDArray[Any]:
    dtype = np.dtype(_CHUNK_DTYPES[name])
    kinds = {"b": (bool,), "f": (int, float)}.get(dtype.kind, (int,))
    for position, value in enumerate(values):
        # a bool is an int to Python and no id to us; masks are also written as 0 and 1
        fits = (type(value) in kinds) or (dtype.kind == "b" and value in (0, 1))
        if not fits:
            raise FileFormatError(
                f"{where}.{name}[{position}]: expected {dtype} values, got {value!r}"
            )
    if dtype.kind in "iu" and values:
        limits = np.iinfo(dtype)
        wide = np.array(values, object)
        outside = np.flatnonzero((wide < limits.min) | (wide > limits.max))
        if outside.size:
            position = int(outside[0])
            raise FileFormatError(
                f"{where}.{name}[{position}]: {values[position]} does not fit {dtype}"
            )
    try:
        array = np.array(values, dtype)
    except OverflowError as error:
        raise FileFormatError(f"{where}.{name}: a value does not fit {dtype}: {error}") from error
    if dtype.kind == "f" and not np.isfinite(array).all():
        position = int(np.argmin(np.isfinite(array)))
        raise FileFormatError(
            f"{where}.{name}[{position}]: expected a finite value, got {values[position]}"
        )
    return array
