"""The checkpoint store: whole checkpoints or none.

    root/step-00000010.resumable/       files and manifest.json, complete by construction
    root/.writing-00000020.resumable/   being written, or left by a crash; never read

A checkpoint is written in a hidden directory and renamed into place once everything, the manifest
last, is on the disk. So whatever interrupts a writer, every checkpoint that was there before stays
readable. One writer is open on a store at a time; opening one removes what earlier ones left. Any
number of others may read meanwhile.
"""

import errno
import json
import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import ArgumentError, CheckpointError
from .manifest import MANIFEST, CheckpointKind, seal, sync, verify

_WRITING = ".writing-"
_DELETING = ".deleting-"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        path: its directory; treat it as read-only.
        step: training step.
        kind: what it is good for.
        metadata: what the writer added.
    """

    path: Path
    step: int
    kind: CheckpointKind
    metadata: dict[str, Any]


class CheckpointStore:
    """Checkpoints of one run under one directory.

    Args:
        root: directory of the store; made if it does not exist.
        keep: how many resumable checkpoints to keep, the newest ones, >= 1. Weights-only
            checkpoints are never deleted.

    Raises:
        ArgumentError: `keep` is below 1.
    """

    def __init__(self, root: str | os.PathLike[str], *, keep: int = 2) -> None:
        if keep < 1:
            raise ArgumentError("keep", f"expected at least 1, got {keep}")
        self._root = Path(root)
        self._keep = keep
        self._writing = False
        self._root.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def writer(
        self,
        step: int,
        *,
        kind: CheckpointKind = CheckpointKind.RESUMABLE,
        metadata: Mapping[str, Any] | None = None,
    ) -> Generator[Path, None, None]:
        """Give an empty directory to fill; it becomes the checkpoint when the block ends well.

        If the block raises, nothing remains of it and the exception goes on. Afterwards, resumable
        checkpoints beyond the newest `keep` are deleted.

        Args:
            step: training step, >= 0.
            kind: what the checkpoint is good for.
            metadata: JSON to keep with it, without NaN, as it is when the block begins.

        Raises:
            ArgumentError: `step` is negative, or the checkpoint exists; `metadata` is not JSON.
            CheckpointError: another writer of this store is open, nothing was written, or the disk
                is full. Any other OSError goes on as it is.
        """
        target = self._path(step, CheckpointKind(kind))
        if step < 0 or target.exists():
            raise ArgumentError("step", f"expected a new step >= 0, got {step} ({kind})")
        facts = _as_json(metadata or {})
        if self._writing:
            raise CheckpointError(target, "another writer of this store is open; close it first")
        self._clean()
        directory = self._root / f"{_WRITING}{target.name.removeprefix('step-')}"
        self._writing = True
        try:
            directory.mkdir()
            yield directory
            self._finish(directory, target, step, CheckpointKind(kind), facts)
        except OSError as error:
            if error.errno not in _DISK_FULL:
                raise
            problem = "the disk is full; earlier checkpoints are intact"
            raise CheckpointError(target, problem) from error
        finally:
            self._writing = False
            # gone already if it was renamed into place
            if directory.exists():
                shutil.rmtree(directory)
        self._prune()

    def steps(self, kind: CheckpointKind) -> list[int]:
        """Steps that have a checkpoint of this kind, in increasing order."""
        suffix = f".{CheckpointKind(kind)}"
        names = [path.name for path in self._root.glob(f"step-*{suffix}")]
        digits = [name.removeprefix("step-").removesuffix(suffix) for name in names]
        return sorted(int(number) for number in digits if number.isdecimal())

    def latest(self, kind: CheckpointKind) -> int | None:
        """The newest step that has a checkpoint of this kind, or None."""
        return max(self.steps(kind), default=None)

    def load(self, step: int, *, kind: CheckpointKind = CheckpointKind.RESUMABLE) -> Checkpoint:
        """Verify a checkpoint against its manifest, reading every byte, and return it.

        Raises:
            CheckpointError: it does not exist, is half-written or foreign, or a file is missing,
                added or changed.
        """
        kind = CheckpointKind(kind)
        path = self._path(step, kind)
        if not path.is_dir():
            known = ", ".join(map(str, self.steps(kind))) or "none"
            raise CheckpointError(path, f"no {kind} checkpoint of step {step}; there are: {known}")
        manifest = verify(path, step, kind)
        return Checkpoint(path, step, kind, manifest.metadata)

    def _path(self, step: int, kind: CheckpointKind) -> Path:
        return self._root / f"step-{step:08d}.{kind}"

    def _finish(
        self,
        directory: Path,
        target: Path,
        step: int,
        kind: CheckpointKind,
        metadata: dict[str, Any],
    ) -> None:
        if (directory / MANIFEST).exists():
            raise CheckpointError(target, f"{MANIFEST} is the store's own; choose another name")
        seal(directory, step, kind, metadata)
        directory.rename(target)
        sync(self._root)

    def _prune(self) -> None:
        for step in self.steps(CheckpointKind.RESUMABLE)[: -self._keep]:
            path = self._path(step, CheckpointKind.RESUMABLE)
            # renamed first, so that a crash while deleting leaves no checkpoint half there
            doomed = path.rename(self._root / f"{_DELETING}{path.name}")
            shutil.rmtree(doomed)

    def _clean(self) -> None:
        """Remove what a crashed writer or deletion left behind."""
        for prefix in (_WRITING, _DELETING):
            for path in self._root.glob(f"{prefix}*"):
                shutil.rmtree(path)


def _as_json(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that can be written, however the original changes later."""
    try:
        return json.loads(json.dumps(dict(metadata), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ArgumentError("metadata", f"expected JSON without NaN: {error}") from error
