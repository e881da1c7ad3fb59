"""`Sandbox` and `SealedSandbox` of the local provider: argument checks in front of a session."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from t1_sandbox.errors import SandboxSealed, SpecError
from t1_sandbox.frames import MAX_PAYLOAD_BYTES, Header
from t1_sandbox.session import Session
from t1_sandbox.spec import ExecResult, check_environment, check_place

# Linux takes less. Written as JSON, 12 bytes for one character at worst, it still fits a header.
_MAX_COMMAND = 4 << 20


class _Local:
    def __init__(self, key: str, session: Session) -> None:
        self._key = key
        self._session = session

    @property
    def id(self) -> str:
        """The key it was created with."""
        return self._key

    async def get_file(self, path: str, *, max_bytes: int = 1 << 20) -> bytes:
        """See `Sandbox.get_file`."""
        if not 0 <= max_bytes <= MAX_PAYLOAD_BYTES:
            raise SpecError(f"max_bytes={max_bytes}, expected 0 to {MAX_PAYLOAD_BYTES}")
        request: Header = {"op": "get_file", "path": path, "max_bytes": max_bytes}
        return await self._open_session().transfer(request, max_bytes=max_bytes)

    async def delete(self) -> None:
        """See `Sandbox.delete`."""
        await self._session.end()

    def _open_session(self) -> Session:
        return self._session

    async def _exec(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_s: float,
        max_output_bytes: int,
        merge_stderr: bool,
        report: bool = False,
    ) -> ExecResult:
        if not 0 <= max_output_bytes <= MAX_PAYLOAD_BYTES // 4:
            raise SpecError(
                f"max_output_bytes={max_output_bytes}, expected 0 to {MAX_PAYLOAD_BYTES // 4}"
            )
        if not 0 < timeout_s < 1e6:
            raise SpecError(
                f"timeout_s={timeout_s}, expected more than 0 and less than 1e6 seconds"
            )
        session = self._open_session()
        request: Header = {
            "op": "exec",
            "command": command if isinstance(command, str) else list(command),
            "cwd": cwd or session.spec.workdir,
            "env": {**session.spec.env, **(env or {})},
            "timeout_s": timeout_s,
            "max_output_bytes": max_output_bytes,
            "merge_stderr": merge_stderr,
            "report": report,
        }
        check_environment(request["env"])
        _check_length(request)
        return await session.exec(request)


class LocalSealedSandbox(_Local):
    """A sealed trial of `LocalProvider`."""

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
        """See `SealedSandbox.exec`."""
        return await self._exec(
            command,
            cwd=cwd,
            env=env,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            merge_stderr=merge_stderr,
            report=report,
        )

    async def mounts_intact(self) -> bool:
        """See `SealedSandbox.mounts_intact`."""
        return await self._session.intact()


class LocalSandbox(_Local):
    """An agent's sandbox of `LocalProvider`."""

    _sealed = False

    def _open_session(self) -> Session:
        if self._sealed:
            raise SandboxSealed(f"{self.id}: sealed; use the sandbox that seal() returned")
        return self._session

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
        """See `Sandbox.exec`."""
        return await self._exec(
            command,
            cwd=cwd,
            env=env,
            timeout_s=timeout_s,
            max_output_bytes=max_output_bytes,
            merge_stderr=merge_stderr,
        )

    async def put_tree(self, archive: bytes, path: str) -> None:
        """See `Sandbox.put_tree`."""
        await self._open_session().transfer({"op": "put_tree", "path": path}, archive)

    async def put_file(self, data: bytes, path: str, mode: int = 0o644) -> None:
        """See `Sandbox.put_file`."""
        await self._open_session().transfer({"op": "put_file", "path": path, "mode": mode}, data)

    async def seal(self, mounts: Mapping[str, bytes]) -> LocalSealedSandbox:
        """See `Sandbox.seal`."""
        session = self._open_session()
        _check_places([session.spec.workdir, *mounts])
        # also when the seal fails: what the agent left must not run again
        self._sealed = True
        await session.seal(mounts)
        return LocalSealedSandbox(self.id, session)


def _check_length(request: Header) -> None:
    command, env = request["command"], request["env"]
    words = [command] if isinstance(command, str) else command
    if sum(len(word) + 1 for word in (*words, request["cwd"], *env, *env.values())) > _MAX_COMMAND:
        raise SpecError(
            f"command, directory and environment of more than {_MAX_COMMAND} characters together"
        )


def _check_places(places: Sequence[str]) -> None:
    for place in places:
        check_place("mount point", place)
    ordered = sorted(f"{place}/" for place in places)
    for outer, inner in pairwise(ordered):
        if inner.startswith(outer):
            raise SpecError(f"mount point {inner[:-1]} lies inside {outer[:-1]}: keep them apart")
