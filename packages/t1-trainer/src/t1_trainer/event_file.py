"""A TensorBoard event file, written step by step.

The library's `SummaryWriter` hands events to a thread through a queue: `flush` does not wait for it,
and a full disk ends the thread and blocks the caller. Here a step's events are on disk when
`write_step` returns, or it raises.
"""

import contextlib
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tensorboardX.proto import event_pb2
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

__all__ = ["EventFile"]

_proto = cast("Any", event_pb2)  # generated when it is imported: no checker knows its names


class EventFile:
    """Appends to a new file.

    Args:
        folder: receives `events.out.tfevents.<nanoseconds>`.
        first_step: readers drop what older files of the folder say about this step and later ones.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        path = folder / f"events.out.tfevents.{time.time_ns()}"
        self._records = RecordWriter(str(path))
        self._write(file_version="brain.Event:2")
        start = _proto.SessionLog(status=_proto.SessionLog.START)
        self._write(step=first_step, session_log=start)

    def write_step(self, metrics: Mapping[str, Any]) -> None:
        """Write the finite numbers of a step; `metrics["step"]` is its number.

        Raises:
            OSError: they are not on disk.
        """
        for name, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._write(step=metrics["step"], summary=scalar(name, value))
        self._records.flush()

    def close(self) -> None:
        """Close the file; whatever `write_step` did not raise about is on disk."""
        with contextlib.suppress(OSError):
            self._records.close()

    def _write(self, **fields: Any) -> None:
        event = _proto.Event(wall_time=time.time(), **fields)
        self._records.write(event.SerializeToString())
