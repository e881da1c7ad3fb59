"""One run's directory: everything a person or a tool needs afterwards.

    config.toml      resolved configuration          metrics.jsonl    one line per step
    tasks.jsonl      fate of every launched task     journal.jsonl    sandbox lease journal
    evaluations/     held-out results                trials/          Harbor-readable trials
    samples/         stitched training samples       checkpoints/     weights-only and resumable
    events/          TensorBoard                     logs/            attempt_N.log of each process
    summary.json     what was gained                 .lock            held by the process that writes

Whole files appear atomically; the JSON lines files are appended and flushed per step. A process
holds the lock while it writes, so that two cannot work on one run.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from t1_trainer.config import Config
from t1_trainer.config_files import dump_config, load_resolved
from t1_trainer.errors import RunDirectoryError, StorageError
from t1_trainer.event_file import EventFile
from t1_trainer.files import json_text, write_atomically

__all__ = ["RunDirectory", "require_unused"]

_SCHEMA_VERSION = 1
_FOLDERS = ("evaluations", "trials", "samples", "checkpoints", "events", "logs")
# what a process that was killed before its run had a configuration may have left
_BEFORE_THE_RUN = {".lock", "config.toml.tmp"}


def require_unused(path: Path) -> None:
    """Refuse a directory that has content, other than that of a run killed before it was one.

    Raises:
        RunDirectoryError: it has; the message says what to do.
    """
    if path.exists() and {entry.name for entry in path.iterdir()} - _BEFORE_THE_RUN:
        raise RunDirectoryError(
            f"{path} already exists: continue it with `t1 resume {path}` or choose another "
            "directory with --output-dir"
        )


class RunDirectory:
    """Paths and append-only records of one run.

    Args:
        path: the directory; created by `create`, found by `open`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None
        self._events: EventFile | None = None

    @classmethod
    def create(cls, path: Path, config: Config) -> "RunDirectory":
        """Make a new run and lock it.

        The configuration comes first: from then on the run can be resumed.

        Raises:
            RunDirectoryError: the directory exists and is not empty.
            StorageError: it cannot be made.
        """
        require_unused(path)
        run = cls(path)
        run._make("")
        run._acquire()
        write_atomically(path / "config.toml", tomli_w.dumps(dump_config(config)))
        run._make(*_FOLDERS)
        return run

    @classmethod
    def open(cls, path: Path, *, lock: bool = True) -> "RunDirectory":
        """Find an existing run.

        Raises:
            RunDirectoryError: it is not a run directory, or another process is writing it.
            StorageError: it is to be written, and a folder that it lacks cannot be made.
        """
        if not (path / "config.toml").is_file():
            raise RunDirectoryError(f"{path} is not a run directory: it has no config.toml")
        run = cls(path)
        if lock:
            run._acquire()
            run._make(*_FOLDERS)
        return run

    @property
    def config(self) -> Config:
        """The resolved configuration the run was started with."""
        return load_resolved(self.path / "config.toml")

    def close(self) -> None:
        """Close the event file and release the lock."""
        if self._events is not None:
            self._events.close()
            self._events = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def record_step(self, metrics: Mapping[str, Any], tasks: Mapping[str, Any]) -> None:
        """Append a step's line to `metrics.jsonl` and `tasks.jsonl`, and to the event file.

        Raises:
            StorageError: the disk is full or the directory is gone.
        """
        self._append("metrics.jsonl", metrics)
        self._append("tasks.jsonl", {"step": metrics["step"], **tasks})
        try:
            if self._events is None:
                self._events = EventFile(self.path / "events", metrics["step"])
            self._events.write_step(metrics)
        except OSError as error:
            raise StorageError(error.errno, error.strerror, str(self.path / "events")) from error

    def rewind(self, step: int, collected: int) -> None:
        """Drop what belongs to steps that will be run again.

        Args:
            step: the last step whose records stay.
            collected: the last step whose trials and samples stay: `step`, or one more if the
                batch of the next step is in hand.
        """
        for name in ("metrics.jsonl", "tasks.jsonl"):
            kept = [line for line in self.lines(name) if line["step"] <= step]
            text = "".join(json.dumps(line) + "\n" for line in kept)
            write_atomically(self.path / name, text)
        for folder in (self.path / "trials").glob("step-*"):
            if _step_of(folder) > collected:
                shutil.rmtree(folder)
        for file in (self.path / "samples").glob("step-*"):
            if _step_of(file) > collected:
                file.unlink()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Records of a JSON lines file; a torn last line (the process was killed) is left out."""
        path = self.path / name
        if not path.exists():
            return []
        lines = path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def _append(self, name: str, record: Mapping[str, Any]) -> None:
        line = json_text({"schema_version": _SCHEMA_VERSION, **record})
        try:
            with (self.path / name).open("a") as file:
                file.write(line + "\n")
                file.flush()
        except OSError as error:
            raise StorageError(error.errno, error.strerror, str(self.path / name)) from error

    def _make(self, *folders: str) -> None:
        try:
            for name in folders:
                (self.path / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(error.errno, error.strerror, str(self.path)) from error

    def _acquire(self) -> None:
        descriptor = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise RunDirectoryError(
                f"{self.path} is being written by another process; wait for it or stop it"
            ) from error
        self._lock = descriptor


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix("step-").split(".")[0])
