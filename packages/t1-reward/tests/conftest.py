"""A shell in a temporary directory, and a sandbox made of one: for these tests only, no isolation."""

import io
import os
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

# keeps standard output's first bytes and lets the command write the rest: $0 command, $1 how many
BOUNDED = """
set -o pipefail
/bin/bash --norc --noprofile -c "$0" | { head -c "$1"; cat >/dev/null; }
"""


@dataclass(frozen=True)
class Result:
    stdout: bytes
    exit_code: int | None
    outcome: str
    report: bytes | None


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

    def report(self, script: str) -> bytes | None:
        """Runs a verifier script; returns what it wrote to its report descriptor."""
        return self.verify(script, timeout=20, max_output_bytes=4096).report

    def verify(self, script: str, *, timeout: float, max_output_bytes: int) -> Result:
        """Runs a script as the verifier; it ends with all its children when its time is up."""
        # a file: a pipe holds less than a report may be long
        with (
            tempfile.TemporaryFile() as report,
            subprocess.Popen(
                [
                    "/bin/bash",
                    "--norc",
                    "--noprofile",
                    "-c",
                    BOUNDED,
                    script,
                    str(max_output_bytes),
                ],
                cwd=self.directory,
                env={"T1_REPORT_FD": str(report.fileno())},
                pass_fds=[report.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            ) as process,
        ):
            try:
                stdout, _ = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return Result(process.communicate()[0], None, "timeout", None)
            report.seek(0)
            return Result(stdout, process.returncode, "exited", report.read() or None)


class Sandbox:
    """Both `VerifierSandbox` and, once sealed, `SealedVerifierSandbox`."""

    def __init__(self, shell: Shell, tests: Path, logs: Path) -> None:
        self.shell = shell
        self.tests = tests
        self.logs = logs
        self.intact = True
        self.commands: list[str] = []

    async def seal(self, mounts: Mapping[str, bytes]) -> "Sandbox":
        assert set(mounts) == {"/tests"}
        Shell(self.tests).unpack(mounts["/tests"])
        return self

    async def exec(
        self, command: str, *, timeout_s: float, report: bool, max_output_bytes: int
    ) -> Result:
        command = command.replace("/tests", str(self.tests)).replace("/logs", str(self.logs))
        self.commands.append(command)
        result = self.shell.verify(command, timeout=timeout_s, max_output_bytes=max_output_bytes)
        return result if report else replace(result, report=None)

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
