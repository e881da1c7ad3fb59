"""The lease journal: what was intended, made and deleted, one JSON object a line.

    INTENT -> CREATED -> DELETING -> DELETED        INTENT -> FAILED        DELETING -> FAILED

Each record is written by one append before the step it announces goes on, so after a crash the
journal names every lease that may still hold something. A crash can tear only the last line: that
one is ignored and reported when read, and cut off when the journal is opened again.
"""

import enum
import errno
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from t1_sandbox.errors import JournalError

_SCHEMA_VERSION = 1
_CLOSING = ("DELETED", "FAILED")


class Event(enum.StrEnum):
    """What a record says about its lease."""

    INTENT = "INTENT"
    CREATED = "CREATED"
    DELETING = "DELETING"
    DELETED = "DELETED"
    FAILED = "FAILED"


@dataclass(frozen=True)
class JournalRecord:
    """One line.

    Attributes:
        event: What happened.
        key: The lease.
        wall_time: Seconds since the epoch.
        detail: The cause of a failure; empty otherwise.
    """

    event: Event
    key: str
    wall_time: float
    detail: str = ""


@dataclass(frozen=True)
class JournalContents:
    """A journal as read.

    Attributes:
        records: All complete records, in order.
        torn: What the last, incomplete line holds; empty when there is none.
    """

    records: tuple[JournalRecord, ...]
    torn: bytes

    def unfinished(self) -> list[str]:
        """Returns the keys of leases that may still hold something, in order of intent."""
        last: dict[str, JournalRecord] = {}
        deleting: set[str] = set()
        for record in self.records:
            last[record.key] = record
            if record.event is Event.DELETING:
                deleting.add(record.key)
            elif record.event in (Event.INTENT, Event.DELETED):
                deleting.discard(record.key)
        # a failed creation leaves nothing, a failed deletion may
        return [
            key
            for key, record in last.items()
            if record.event is not Event.DELETED
            and (record.event is not Event.FAILED or key in deleting)
        ]


class Journal:
    """Appends records; without a path it only keeps them in memory.

    Args:
        path: File to append to; created when absent.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.records: list[JournalRecord] = []
        self._path = path
        self._descriptor: int | None = None
        if path is not None:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _cut_torn_line(self._descriptor)

    def record(self, event: Event, key: str, detail: str = "") -> None:
        """Appends one record.

        Raises:
            OSError: The file cannot be written, and is named; it then ends with the record before.
        """
        record = JournalRecord(event, key, time.time(), detail)
        if self._descriptor is not None:
            try:
                _append(self._descriptor, _encode(record))
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self._path)) from error
        self.records.append(record)

    def close(self) -> None:
        """Closes the file; may be repeated."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def read_journal(path: Path) -> JournalContents:
    """Reads a journal, complete or torn.

    Raises:
        JournalError: A complete line is not a record.
        OSError: The file cannot be read.
    """
    *lines, torn = path.read_bytes().split(b"\n")
    return JournalContents(tuple(_decode_all(path, lines)), torn)


def _decode_all(path: Path, lines: Iterable[bytes]) -> Iterable[JournalRecord]:
    for number, line in enumerate(lines, start=1):
        try:
            fields = json.loads(line)
            if fields["schema_version"] != _SCHEMA_VERSION:
                raise ValueError(f"schema_version {fields['schema_version']}, expected 1")  # noqa: TRY301
            yield JournalRecord(
                Event(fields["event"]), fields["key"], fields["wall_time"], fields["detail"]
            )
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(f"{path}:{number}: not a journal record: {error!r}") from error


def _encode(record: JournalRecord) -> bytes:
    fields = {
        "schema_version": _SCHEMA_VERSION,
        "event": record.event.value,
        "key": record.key,
        "wall_time": record.wall_time,
        "detail": record.detail,
    }
    return json.dumps(fields).encode() + b"\n"


def _append(descriptor: int, line: bytes) -> None:
    written = os.write(descriptor, line)
    if written < len(line):
        # on a full disk: what follows would be glued to the torn line
        os.ftruncate(descriptor, os.fstat(descriptor).st_size - written)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _cut_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, size, 0)
    os.ftruncate(descriptor, text.rfind(b"\n") + 1)
