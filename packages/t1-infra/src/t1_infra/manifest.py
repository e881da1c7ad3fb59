"""The manifest of a checkpoint: what makes a directory a whole checkpoint.

`manifest.json` lists every file of the directory with size and SHA-256. It is written last, after
the files are on the disk, so a directory without it was not finished. Verification compares the
list with the directory in both directions; it does not know what the files mean.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

from .errors import CheckpointError

MANIFEST = "manifest.json"
_FORMAT = "t1-infra/checkpoint/1"


class CheckpointKind(StrEnum):
    """What a checkpoint is good for."""

    WEIGHTS_ONLY = "weights-only"
    """Weights to evaluate or to start another run from; kept for good."""
    RESUMABLE = "resumable"
    """Everything needed to go on; superseded by the next one."""


@dataclass(frozen=True)
class Manifest:
    """The parsed content of a manifest.

    Attributes:
        step: training step.
        kind: what the checkpoint is good for.
        metadata: whatever JSON the writer added.
        files: size in bytes and SHA-256, by path relative to the directory.
    """

    step: int
    kind: CheckpointKind
    metadata: dict[str, Any]
    files: dict[str, tuple[int, str]]


def seal(directory: Path, step: int, kind: CheckpointKind, metadata: Mapping[str, Any]) -> None:
    """Bring the files of a directory to the disk and write their manifest.

    Raises:
        CheckpointError: there is nothing to seal, or something that is not a plain file.
        OSError: the disk refused.
    """
    names = _files(directory)
    if not names:
        raise CheckpointError(directory, "no file was written")
    files: dict[str, dict[str, Any]] = {}
    for name in names:
        size, digest = _measure(directory / name)
        files[name] = {"bytes": size, "sha256": digest}
        sync(directory / name)
    content = {
        "format": _FORMAT,
        "step": step,
        "kind": str(kind),
        "metadata": dict(metadata),
        "files": files,
    }
    path = directory / MANIFEST
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    sync(path)
    for folder in (directory, *(path for path in directory.rglob("*") if path.is_dir())):
        sync(folder)


def verify(directory: Path, step: int, kind: CheckpointKind) -> Manifest:
    """Read the manifest and check the directory against it.

    Raises:
        CheckpointError: saying why the directory is not this checkpoint, whole and unchanged.
    """
    manifest = _read(directory)
    if (manifest.step, manifest.kind) != (step, kind):
        raise CheckpointError(
            directory, f"its manifest speaks of step {manifest.step}, {manifest.kind}"
        )
    present = set(_files(directory)) - {MANIFEST}
    for problem, names in (
        ("is missing", manifest.files.keys() - present),
        ("is not in the manifest", present - manifest.files.keys()),
    ):
        if names:
            raise CheckpointError(directory, f"{min(names)} {problem}")
    for name, expected in manifest.files.items():
        _check_file(directory, name, expected)
    return manifest


def _check_file(directory: Path, name: str, expected: tuple[int, str]) -> None:
    size = (directory / name).stat().st_size
    if size != expected[0]:
        raise CheckpointError(directory, f"{name} has {size} bytes instead of {expected[0]}")
    if _measure(directory / name)[1] != expected[1]:
        raise CheckpointError(directory, f"{name} has another SHA-256 than when it was written")


def _read(directory: Path) -> Manifest:
    try:
        content: Any = json.loads((directory / MANIFEST).read_text())
    except FileNotFoundError as error:
        problem = f"no {MANIFEST}: half-written, or not a checkpoint of this store"
        raise CheckpointError(directory, problem) from error
    except ValueError as error:
        raise CheckpointError(directory, f"{MANIFEST} is not JSON: {error}") from error
    if not isinstance(content, dict) or cast("dict[str, Any]", content).get("format") != _FORMAT:
        raise CheckpointError(directory, f"{MANIFEST} is not of the format {_FORMAT}")
    fields = cast("dict[str, Any]", content)
    try:
        return Manifest(
            step=fields["step"],
            kind=CheckpointKind(fields["kind"]),
            metadata=fields["metadata"],
            files={name: (of["bytes"], of["sha256"]) for name, of in fields["files"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(directory, f"{MANIFEST} is malformed: {error!r}") from error


def _files(directory: Path) -> list[str]:
    names: list[str] = []
    for path in sorted(directory.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise CheckpointError(directory, f"{path.name} is neither a file nor a folder")
        if path.is_file():
            names.append(path.relative_to(directory).as_posix())
    return names


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return stream.tell(), digest


def sync(path: Path) -> None:
    """Bring a file's content, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
