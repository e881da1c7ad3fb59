"""The client's side of one trial: its keeper, its helper, and what may be asked of them now.

    open ── seal ──▶ sealed ── end ──▶ ended        open ── end ──▶ ended

One request at a time. An exchange with the helper that was interrupted (cancelled, timed out, cut
off) leaves the helper useless; before the next one the keeper ends every process of the sandbox and
starts a new helper in fresh namespaces.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from t1_sandbox.arena_client import StartedTrial
from t1_sandbox.channel import Channel, channel_pair
from t1_sandbox.errors import SandboxLost, SealError, TransferError
from t1_sandbox.frames import MAX_REPORT_BYTES, Frame, Header, split
from t1_sandbox.spec import ExecResult, Outcome, SandboxSpec

CONTROL_LIMIT_S = 60.0
_GRACE_S = 5.0  # beyond a command's own time, for the helper to kill and answer
_INTERRUPTIONS = (ConnectionError, TimeoutError, ValueError, KeyError)


class Session:
    """One trial's connections.

    Args:
        spec: What the trial was created with.
        trial: Its place in the arena.
        control: Connection to the keeper.
        commands: Connection to the helper.
    """

    def __init__(
        self, spec: SandboxSpec, trial: StartedTrial, control: Channel, commands: Channel
    ) -> None:
        self.spec = spec
        self.trial = trial
        self.closed = False
        self._control = control
        self._commands: Channel | None = commands
        self._lock = asyncio.Lock()

    async def exec(self, request: Header) -> ExecResult:
        """Runs one command; see `Sandbox.exec`."""
        # a command that cannot be started has no report: the cause of it takes that room
        bound = 2 * request["max_output_bytes"] + MAX_REPORT_BYTES
        began = time.monotonic()
        async with self._lock:
            try:
                frame = await self._ask(request, b"", bound, request["timeout_s"] + _GRACE_S)
                return _result(frame, report=request["report"])
            except (SandboxLost, *_INTERRUPTIONS):
                return ExecResult(
                    b"", b"", 0, 0, None, Outcome.LOST, await self._recover(),
                    time.monotonic() - began,
                )  # fmt: skip

    async def transfer(self, request: Header, payload: bytes = b"", max_bytes: int = 0) -> bytes:
        """Copies something in or out.

        Raises:
            TransferError: The sandbox's file system refused.
            SandboxLost: The sandbox does not answer.
        """
        async with self._lock:
            try:
                frame = await self._ask(request, payload, max_bytes, CONTROL_LIMIT_S)
            except _INTERRUPTIONS as error:
                raise SandboxLost(f"{request['op']} {request['path']}: {error}") from error
        if "error" in frame.header:
            number, text = int(frame.header["errno"]), frame.header["error"]
            raise TransferError(number, f"{request['op']} {request['path']}: {text}")
        return frame.payload

    async def seal(self, mounts: Mapping[str, bytes]) -> None:
        """Ends the agent's processes and opens the sealed sandbox.

        Raises:
            SealError: A tree could not be mounted.
            SandboxLost: The keeper does not answer.
        """
        header: Header = {
            "op": "seal",
            "places": list(mounts),
            "sizes": [len(archive) for archive in mounts.values()],
        }
        async with self._lock:
            answer = await self._renew(header, b"".join(mounts.values()))
        if "error" in answer:
            raise SealError(f"seal with {', '.join(mounts) or 'no trees'}: {answer['error']}")

    async def intact(self) -> bool:
        """Tells whether every tree still has the digest it was sealed with.

        Raises:
            SandboxLost: The keeper does not answer.
        """
        async with self._lock:
            return bool((await self._ask_keeper({"op": "intact"}))["intact"])

    async def end(self) -> None:
        """Ends the trial and returns when it is gone; may be repeated."""
        self.close()
        await asyncio.shield(self.trial.gone)

    def close(self) -> None:
        """Closes the connections, which ends the trial soon."""
        self.closed = True
        self._drop_helper()
        self._control.close()

    async def _ask(self, request: Header, payload: bytes, bound: int, limit_s: float) -> Frame:
        if self._commands is None:
            await self._start_helper()
        assert self._commands is not None
        try:
            async with asyncio.timeout(limit_s):
                return await self._commands.request(request, payload, max_reply_bytes=bound)
        except BaseException:
            self._drop_helper()
            raise

    async def _start_helper(self) -> None:
        answer = await self._renew({"op": "restart"}, b"")
        if "error" in answer:
            raise SandboxLost(str(answer["error"]))

    async def _recover(self) -> bool:
        """Starts anew; tells whether the keeper has confirmed the end of all processes."""
        try:
            await self._start_helper()
        except SandboxLost:
            return False
        return True

    async def _renew(self, header: Header, payload: bytes) -> Header:
        self._drop_helper()
        try:
            commands, peer = channel_pair()
        except OSError as error:
            raise SandboxLost(f"{header['op']}: {error}") from error
        try:
            answer = await self._ask_keeper(header, payload, [peer.fileno()])
        except BaseException:
            commands.close()
            raise
        finally:
            peer.close()
        if "error" in answer:
            commands.close()
        else:
            self._commands = commands
        return answer

    async def _ask_keeper(
        self, header: Header, payload: bytes = b"", descriptors: Sequence[int] = ()
    ) -> Header:
        try:
            async with asyncio.timeout(CONTROL_LIMIT_S):
                frame = await self._control.request(header, payload, descriptors=descriptors)
        except BaseException as error:
            # an exchange that was begun cannot be taken up again: the keeper ends the trial
            self._control.close()
            if not isinstance(error, (OSError, *_INTERRUPTIONS)):
                raise
            raise SandboxLost(f"{header['op']}: {error or type(error).__name__}") from error
        return frame.header

    def _drop_helper(self) -> None:
        if self._commands is not None:
            self._commands.close()
            self._commands = None


def _result(frame: Frame, *, report: bool) -> ExecResult:
    header = frame.header
    parts = split(frame.payload, header["sizes"])
    dropped = header["dropped"]
    return ExecResult(
        stdout=parts[0],
        stderr=parts[1],
        stdout_truncated=dropped[0],
        stderr_truncated=dropped[1],
        exit_code=header["exit_code"],
        outcome=Outcome(header["outcome"]),
        reaped=header["reaped"],
        wall_s=header["wall_s"],
        report=parts[2] if report else None,
    )
