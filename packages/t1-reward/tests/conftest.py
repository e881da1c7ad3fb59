"""A shell in a temporary directory, and a sandbox made of one: for these tests only, no isolation."""

import io
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

LOCALES = ("C", "C.UTF-8")


class Shell:
    """Runs commands the way an agent's terminal does, in a work directory of its own."""

    def __init__(self, directory: Path, locale: str = "C") -> None:
        self.directory = directory
        self.locale = locale
        directory.mkdir(parents=True)

    def unpack(self, archive: bytes) -> None:
        with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
            for member in reader:
                path = self.directory / member.name
                if member.isdir():
                    path.mkdir()
                elif member.issym():
                    path.symlink_to(member.linkname)
                else:
                    path.write_bytes(reader.extractfile(member).read())
                if not member.issym():
                    path.chmod(member.mode)

    def run(self, command: str, *, timeout: float = 20) -> tuple[str, int]:
        done = subprocess.run(
            ["/bin/bash", "--norc", "--noprofile", "-c", command],
            cwd=self.directory,
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LC_ALL": self.locale, "TZ": "UTC"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            umask=0o022,
            check=False,
        )
        return done.stdout.decode().removesuffix("\n"), done.returncode

    def report(self, script: str, *, timeout: float = 20) -> bytes | None:
        """Runs a verifier script; returns what it wrote to its report descriptor."""
        read_end, write_end = os.pipe()
        try:
            with os.fdopen(read_end, "rb") as reader:
                subprocess.run(
                    ["/bin/bash", "--norc", "--noprofile", "-c", script],
                    cwd=self.directory,
                    env={"T1_REPORT_FD": str(write_end)},
                    pass_fds=[write_end],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=timeout,
                    check=False,
                )
                os.close(write_end)
                write_end = -1
                return reader.read() or None
        finally:
            if write_end >= 0:
                os.close(write_end)


@dataclass(frozen=True)
class Result:
    stdout: bytes
    exit_code: int | None
    outcome: str
    report: bytes | None


class Sandbox:
    """Both `VerifierSandbox` and, once sealed, `SealedVerifierSandbox`."""

    def __init__(self, shell: Shell, tests: Path, logs: Path) -> None:
        self.shell = shell
        self.tests = tests
        self.logs = logs
        self.intact = True

    async def seal(self, mounts: Mapping[str, bytes]) -> "Sandbox":
        assert set(mounts) == {"/tests"}
        Shell(self.tests).unpack(mounts["/tests"])
        return self

    async def exec(
        self, command: str, *, timeout_s: float, report: bool, max_output_bytes: int
    ) -> Result:
        command = command.replace("/tests", str(self.tests)).replace("/logs", str(self.logs))
        try:
            if report:
                data = self.shell.report(command, timeout=timeout_s)
                return Result(b"", 0, "exited", data and data[:max_output_bytes])
            output, code = self.shell.run(command, timeout=timeout_s)
            return Result(output.encode()[:max_output_bytes], code, "exited", None)
        except subprocess.TimeoutExpired:
            return Result(b"", None, "timeout", None)

    async def mounts_intact(self) -> bool:
        return self.intact


@pytest.fixture
def new_shell(tmp_path: Path) -> Callable[..., Shell]:
    count = 0

    def make(locale: str = "C") -> Shell:
        nonlocal count
        count += 1
        return Shell(tmp_path / f"shell-{count}" / "app", locale)

    return make


@pytest.fixture
def new_sandbox(new_shell: Callable[..., Shell]) -> Callable[[], Sandbox]:
    def make() -> Sandbox:
        shell = new_shell()
        parent = shell.directory.parent
        return Sandbox(shell, parent / "tests", parent / "logs")

    return make
