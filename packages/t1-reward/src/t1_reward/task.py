"""A task: an instruction, an initial state, a verifier and, if there is one, a solution.

On disk a task is a directory in Harbor's layout:

    task.toml  instruction.md  environment/  tests/test.sh  [solution/solve.sh]

In memory it is the contents of the same files: `Task.files` maps each relative path to its bytes,
so what was loaded is what is written, unknown files and unknown keys included. Contents only: `*.sh`
are written and mounted executable, no other file is, and empty directories are not kept. The environment is a Dockerfile
that adds one archive, environment/app.tar, at the work directory; other Dockerfiles load too, but
have no `environment_archive()`. The task knows nothing of sandboxes, agents or rewards.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from t1_reward.archive import Node, pack
from t1_reward.errors import TaskFormatError
from t1_reward.manifest import TaskManifest, TaskMetadata, parse_manifest, render_manifest

__all__ = ["Task"]

_MANIFEST = "task.toml"
_INSTRUCTION = "instruction.md"
_DOCKERFILE = "environment/Dockerfile"
_STATE = "environment/app.tar"
_TEST = "tests/test.sh"
_SOLUTION = "solution/solve.sh"

_DEFAULT_TIMEOUT_S = 600.0

_REQUIRED = {
    _MANIFEST: "write one; an empty file is enough",
    _INSTRUCTION: "write what the agent is to do into it",
    _TEST: "add a script that checks the work directory; a task without tests has no reward",
}


@dataclass(frozen=True)
class Task:
    """A task held in memory.

    Attributes:
        id: the directory's name; unique in a pool.
        files: relative POSIX path to contents.
    """

    id: str
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def load(cls, path: Path | str) -> "Task":
        """Returns the task in a directory.

        Raises:
            TaskFormatError: a required file is missing or cannot be read as what it is; the
                message names it.
        """
        path = Path(path)
        if not path.is_dir():
            raise TaskFormatError(f"{path}: expected a task directory")
        files = dict(_read_tree(path))
        for name, advice in _REQUIRED.items():
            if name not in files:
                raise TaskFormatError(f"{path / name}: missing; {advice}")
        if not any(name.startswith("environment/") for name in files):
            raise TaskFormatError(f"{path / 'environment'}: missing; add a {_DOCKERFILE}")
        task = cls(path.resolve().name, files)
        # fail here, with the file's name, and not at the first use
        _ = task.manifest, task.instruction
        return task

    @classmethod
    def create(
        cls,
        id: str,
        *,
        instruction: str,
        state: bytes,
        test: str,
        solution: str | None = None,
        manifest: TaskManifest | None = None,
    ) -> "Task":
        """Returns a new task.

        Args:
            id: the name of its directory.
            instruction: what the agent is told.
            state: tar archive to be unpacked in the work directory.
            test: text of tests/test.sh.
            solution: text of solution/solve.sh.
            manifest: task.toml; by default one that names the task only.
        """
        manifest = manifest or TaskManifest.model_validate({"task": {"name": f"t1/{id}"}})
        workdir = manifest.environment.workdir
        files = {
            _MANIFEST: render_manifest(manifest).encode(),
            _INSTRUCTION: f"{instruction}\n".encode(),
            _DOCKERFILE: _dockerfile(workdir).encode(),
            _STATE: state,
            _TEST: test.encode(),
        }
        if solution is not None:
            files[_SOLUTION] = solution.encode()
        return cls(id, files)

    def write(self, path: Path | str) -> None:
        """Writes the task into a new or empty directory.

        Raises:
            TaskFormatError: the directory holds something already.
        """
        path = Path(path)
        if path.exists() and any(path.iterdir()):
            raise TaskFormatError(f"{path}: expected no such directory or an empty one")
        for folder in sorted({(path / name).parent for name in self.files}):
            folder.mkdir(parents=True, exist_ok=True)
        for name, data in self.files.items():
            file = path / name
            file.write_bytes(data)
            if name.endswith(".sh"):
                file.chmod(0o755)

    @cached_property
    def manifest(self) -> TaskManifest:
        """The contents of task.toml."""
        return parse_manifest(self._text(_MANIFEST), f"{self.id}/{_MANIFEST}")

    @property
    def metadata(self) -> TaskMetadata:
        """Families, skills, length, split and assertions."""
        return self.manifest.metadata

    @property
    def families(self) -> tuple[str, ...]:
        """The family of each subgoal; empty when the task does not say."""
        return self.metadata.families

    @property
    def length(self) -> int:
        """The number of subgoals; 0 when the task does not say."""
        return self.metadata.length

    @property
    def name(self) -> str:
        """The task's published name; its id when it has none."""
        return self.manifest.task.name or self.id

    @property
    def instruction(self) -> str:
        """What the agent is told."""
        return self._text(_INSTRUCTION).strip()

    @property
    def solution(self) -> str | None:
        """The reference solution's script, or None."""
        return self._text(_SOLUTION) if _SOLUTION in self.files else None

    @property
    def workdir(self) -> str:
        """Absolute path at which the environment is unpacked and the agent starts."""
        return self.manifest.environment.workdir

    @property
    def agent_timeout_s(self) -> float:
        """The agent's time, in seconds."""
        return self.manifest.agent.timeout_sec or _DEFAULT_TIMEOUT_S

    @property
    def verifier_timeout_s(self) -> float:
        """The verifier's time, in seconds."""
        return self.manifest.verifier.timeout_sec or _DEFAULT_TIMEOUT_S

    @property
    def assertion_count(self) -> int:
        """T*, the number of assertions; 0 when the task does not say."""
        return len(self.metadata.assertions) or self.metadata.assertion_count

    def environment_archive(self) -> bytes:
        """Returns the tar archive to be unpacked in the work directory before the agent starts.

        Raises:
            TaskFormatError: the environment is not of that kind.
        """
        if _STATE not in self.files:
            raise TaskFormatError(
                f"{self.id}/{_STATE}: missing; this task's environment has to be built from its Dockerfile"
            )
        return self.files[_STATE]

    def tests_archive(self) -> bytes:
        """Returns the tar archive to be mounted at /tests for the verifier.

        Raises:
            TaskFormatError: a path below tests/ is too long for an archive.
        """
        prefix = "tests/"
        try:
            return pack(
                Node(name.removeprefix(prefix), data, 0o755 if name.endswith(".sh") else 0o644)
                for name, data in self.files.items()
                if name.startswith(prefix)
            )
        except ValueError as error:
            raise TaskFormatError(f"{self.id}/{prefix}: {error}; rename it") from error

    def content_hash(self) -> str:
        """Returns the SHA-256 of all files and their names, in hex."""
        digest = hashlib.sha256()
        for name, data in sorted(self.files.items()):
            digest.update(f"{len(name)}:{name}:{len(data)}:".encode() + data)
        return digest.hexdigest()

    def _text(self, name: str) -> str:
        try:
            return self.files[name].decode()
        except UnicodeDecodeError as error:
            raise TaskFormatError(f"{self.id}/{name}: expected UTF-8 text: {error}") from error


def _read_tree(directory: Path) -> Iterator[tuple[str, bytes]]:
    for file in sorted(directory.rglob("*")):
        if file.is_symlink() or not (file.is_file() or file.is_dir()):
            kind = "symbolic link" if file.is_symlink() else "special file"
            raise TaskFormatError(f"{file}: expected a file or a directory; replace the {kind}")
        if file.is_file():
            yield file.relative_to(directory).as_posix(), file.read_bytes()


def _dockerfile(workdir: str) -> str:
    # uid 1000 owns the archive's members
    return (
        "FROM debian:stable-slim\n"
        "RUN apt-get update && apt-get install -y --no-install-recommends git"
        " && rm -rf /var/lib/apt/lists/* && useradd --uid 1000 --create-home agent\n"
        f"WORKDIR {workdir}\n"
        f"RUN chown agent {workdir}\n"
        "USER agent\n"
        f"ADD app.tar {workdir}/\n"
    )
