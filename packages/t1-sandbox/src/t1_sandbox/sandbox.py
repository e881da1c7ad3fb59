"""The seams: what a sandbox and its provider offer, whoever implements them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from t1_sandbox.spec import ExecResult, SandboxSpec


class _Trial(Protocol):
    """What a trial's sandbox offers before and after its seal."""

    @property
    def id(self) -> str:
        """The key it was created with."""
        ...

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        max_output_bytes: int = 65_536,
        merge_stderr: bool = False,
    ) -> ExecResult:
        """Runs a command in a session of its own, with standard input from /dev/null.

        Never raises because of what the command does. When this is cancelled, the command is
        killed, and the next call first ends every other process of the sandbox. After LOST that has
        been done already. Files stay in both cases.

        Args:
            command: Text for bash, or a program with its arguments.
            cwd: Directory, relative to the working directory.
            env: Variables added to the sandbox's.
            timeout_s: Seconds after which everything born since the command began is killed.
            max_output_bytes: Bytes kept of each stream; the rest is counted.
            merge_stderr: Whether both streams go to `stdout`, in order.

        Raises:
            SpecError: A limit is out of bounds, the environment holds something else than strings,
                or all texts together are longer than 4 Mi characters.
            SandboxSealed: In the agent's sandbox after `seal`.
        """
        ...

    async def get_file(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        """Returns a regular file's bytes.

        Raises:
            SpecError: `max_bytes` is out of bounds (0 to 1 GiB).
            TransferError: It is absent, not a regular file, unreadable, or larger.
            SandboxLost: The sandbox does not answer.
            SandboxSealed: In the agent's sandbox after `seal`.
        """
        ...

    async def delete(self) -> None:
        """Ends the trial, sealed or not, and returns when it is gone; may be repeated."""
        ...


class SealedSandbox(_Trial, Protocol):
    """A trial after its agent: nothing of the agent runs, its work is read-only."""

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 10.0,
        max_output_bytes: int = 65_536,
        merge_stderr: bool = False,
        report: bool = False,
    ) -> ExecResult:
        """Runs a command; with `report` it may write to the descriptor `T1_REPORT_FD`.

        Processes that earlier commands left behind are ended before the descriptor exists; the
        command's own children inherit it unless the command closes it. At most 1 MiB is kept. The
        other arguments are those of `Sandbox.exec`.
        """
        ...

    async def mounts_intact(self) -> bool:
        """Tells whether every tree mounted by `seal` still has its digest.

        Raises:
            SandboxLost: The sandbox does not answer.
        """
        ...


class Sandbox(_Trial, Protocol):
    """A trial's place to run commands in."""

    async def put_tree(self, archive: bytes, path: str) -> None:
        """Unpacks an uncompressed tar archive below a directory, created when absent.

        Raises:
            TransferError: The archive reaches outside, or the file system refuses.
            SandboxLost: The sandbox does not answer.
            SandboxSealed: After `seal`.
        """
        ...

    async def put_file(self, data: bytes, path: str, mode: int = 0o644) -> None:
        """Writes a regular file, and the directories above it when absent.

        Raises:
            TransferError: The file system refuses.
            SandboxLost: The sandbox does not answer.
            SandboxSealed: After `seal`.
        """
        ...

    async def seal(self, mounts: Mapping[str, bytes]) -> SealedSandbox:
        """Ends every process of the trial and opens fresh namespaces over its read-only work.

        Args:
            mounts: Tar archives by the absolute path at which each is mounted read-only.

        Raises:
            SpecError: A path is not usable as a mount point.
            SealError: A tree could not be mounted; delete the sandbox.
            SandboxLost: The sandbox does not answer.
            SandboxSealed: It is sealed already.
        """
        ...


class SandboxProvider(Protocol):
    """Makes sandboxes."""

    async def create(self, spec: SandboxSpec, *, key: str) -> Sandbox:
        """Returns a sandbox that is ready for commands.

        Raises:
            CreateError: The provider refused; nothing is left.
        """
        ...

    async def find(self) -> list[str]:
        """Returns the keys of all sandboxes that still hold anything, in whatever state."""
        ...
