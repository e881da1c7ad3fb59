"""What a sandbox may use, and what a command in it returned: values, no behaviour."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from t1_sandbox.errors import SpecError

DEFAULT_ENVIRONMENT: Mapping[str, str] = MappingProxyType(
    {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": "/tmp",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "TERM": "dumb",
    }
)
_SYSTEM = ("bin", "dev", "etc", "lib", "lib32", "lib64", "libx32", "logs", "proc", "sbin", "usr")
_LEAST_MEMORY_BYTES = 64 << 20
_RESERVED = frozenset({*_SYSTEM, "tmp"})


@dataclass(frozen=True)
class SandboxSpec:
    """Limits and surroundings of one sandbox; every limit is enforced by the kernel.

    Attributes:
        workdir: Absolute path of the writable directory commands start in; outside the system
            directories, /tmp and /logs.
        work_bytes: Bytes the files below `workdir` may take.
        work_inodes: Files and directories below `workdir`.
        tmp_bytes: Bytes of /tmp and /dev/shm together, and again of /logs.
        pids: Processes and threads alive at once.
        memory_bytes: Address space of each process; there is no bound on their sum.
        file_bytes: Size of each file written.
        env: Environment of every command.
    """

    workdir: str = "/app"
    work_bytes: int = 16 << 20
    work_inodes: int = 4096
    tmp_bytes: int = 4 << 20
    pids: int = 64
    memory_bytes: int = 1 << 30
    file_bytes: int = 8 << 20
    env: Mapping[str, str] = field(default_factory=lambda: DEFAULT_ENVIRONMENT)

    def __post_init__(self) -> None:
        check_place("workdir", self.workdir)
        for name in (
            *("work_bytes", "work_inodes", "tmp_bytes", "pids", "memory_bytes", "file_bytes"),
        ):
            value = getattr(self, name)
            # the process that serves the sandbox lives under its memory limit too
            least = _LEAST_MEMORY_BYTES if name == "memory_bytes" else 1
            if not least <= value < 1 << 50:
                raise SpecError(f"{name}={value}, expected a number from {least} to 2**50")
        check_environment(self.env)


def check_place(name: str, place: str) -> None:
    """Checks a path at which something is going to be mounted.

    Raises:
        SpecError: It is not a normalised absolute path outside what the sandbox itself has.
    """
    path = PurePosixPath(place)
    normal = path.is_absolute() and str(path) == place and ".." not in path.parts
    if not normal or "\0" in place or len(path.parts) < 2 or path.parts[1] in _RESERVED:
        raise SpecError(
            f"{name}={place!r}, expected a normalised absolute path outside "
            f"{', '.join(sorted('/' + part for part in _RESERVED))}"
        )


def check_environment(env: Mapping[str, str]) -> None:
    """Checks the variables of commands.

    Raises:
        SpecError: A name or a value is not a string.
    """
    for name, value in env.items():
        if not _are_strings(name, value):
            raise SpecError(f"env has {name!r}: {value!r}, expected strings")


def _are_strings(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)


class Outcome(enum.StrEnum):
    """How a command ended."""

    EXITED = "exited"
    """It ended by itself, by exit or by a signal."""
    TIMEOUT = "timeout"
    """Its time was up; everything born since it began was killed."""
    LOST = "lost"
    """The sandbox stopped answering (for instance `kill -9 -1`); `reaped` says whether it started anew."""


@dataclass(frozen=True)
class ExecResult:
    """What a command left behind.

    Attributes:
        stdout: Its first bytes, at most `max_output_bytes`.
        stderr: Likewise; empty when merged into `stdout`, except for why a command could not be
            started.
        stdout_truncated: Bytes dropped beyond the bound.
        stderr_truncated: Likewise.
        exit_code: Exit code, 128 + n after death by signal n, 126 when the command could not be
            started (the cause is in `stderr`); None unless `outcome` is EXITED.
        outcome: How it ended.
        reaped: Whether nothing born since the command began was alive afterwards; after LOST, nothing
            at all.
        wall_s: Seconds it took, measured where it ran.
        report: Bytes written to the descriptor `T1_REPORT_FD`, None when none was asked for.
    """

    stdout: bytes
    stderr: bytes
    stdout_truncated: int
    stderr_truncated: int
    exit_code: int | None
    outcome: Outcome
    reaped: bool
    wall_s: float
    report: bytes | None = None


@dataclass(frozen=True)
class Capabilities:
    """What a provider works with; `t1-sandbox doctor` tries what it enforces.

    Attributes:
        bubblewrap: Path of the executable.
        bubblewrap_origin: "configured" (T1_BWRAP), "host" or "bundled".
    """

    bubblewrap: str
    bubblewrap_origin: str
