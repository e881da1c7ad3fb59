"""The client's handle on the arena process: start it, start trials in it, learn of their ends.

The arena and everything in it dies with the client's process or with the control socket. A trial is
gone when the arena says so, or when the arena itself has ended.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple, TypeVar

from t1_sandbox.bubblewrap import Bubblewrap
from t1_sandbox.errors import IsolationUnavailable, SandboxLost

_START_LIMIT_S = 20.0
_END_LIMIT_S = 10.0
_MESSAGE_BYTES = 1 << 20
# The arena loads only its own half of the package: what it loads, every fork pays for.
_BOOTSTRAP = """
import sys, types
package = types.ModuleType("t1_sandbox")
package.__path__ = [sys.argv.pop(1)]
sys.modules["t1_sandbox"] = package
from t1_sandbox._arena.main import main
main()
"""
_HINT = (
    "sandboxes need unprivileged user namespaces: run `sysctl -w user.max_user_namespaces=15000`, "
    "on Ubuntu also `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`, in a container "
    "allow them and an unmasked /proc"
)


class StartedTrial(NamedTuple):
    """A trial in the arena.

    Attributes:
        number: The arena's name for it.
        gone: Done when every process and mount of it is gone.
    """

    number: int
    gone: "asyncio.Future[None]"


class ArenaClient:
    """A running arena."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._gone: dict[int, asyncio.Future[None]] = {}
        self._lists: dict[int, asyncio.Future[list[int]]] = {}
        self._next = 0
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, bubblewrap: Bubblewrap) -> "ArenaClient":
        """Starts an arena and waits until it can take trials.

        Raises:
            IsolationUnavailable: The host refuses namespaces or mounts.
        """
        own, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        own.setblocking(False)
        # as descriptors: they may lie where the arena's user may not go, such as root's home
        opened = [
            os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            for path in (bubblewrap.path, *bubblewrap.libraries)
        ]
        package = str(Path(__file__).parent)
        numbers = [str(number) for number in (peer.fileno(), opened[0], os.getpid())]
        libraries = [
            f"{number}:{path.name}"
            for number, path in zip(opened[1:], bubblewrap.libraries, strict=True)
        ]
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, milliseconds, once per provider
                [sys.executable, "-I", "-S", "-c", _BOOTSTRAP, package, *numbers, *libraries],
                env={},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(peer.fileno(), *opened),
                start_new_session=True,  # an interrupt from the terminal is the client's business
            )
        finally:
            peer.close()
            for descriptor in opened:
                os.close(descriptor)
        arena = cls(process, own)
        try:
            await arena._wait_until_ready()
        except BaseException:
            await arena.close()
            raise
        arena._reader = asyncio.create_task(arena._read())
        return arena

    async def _wait_until_ready(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_START_LIMIT_S):
                message = await loop.sock_recv(self._control, _MESSAGE_BYTES)
        except TimeoutError as error:
            raise IsolationUnavailable(f"no answer from the arena in {_START_LIMIT_S} s") from error
        answer = json.loads(message or b'{"failed": "the arena process ended"}')
        if "failed" in answer:
            raise IsolationUnavailable(f"{answer['failed']}: {_HINT}")

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while message := await loop.sock_recv(self._control, _MESSAGE_BYTES):
                answer = json.loads(message)
                if "gone" in answer:
                    _resolve(self._gone.pop(answer["gone"]), None)
                else:
                    _resolve(self._lists.pop(answer["list"]), answer["trials"])
        except ConnectionError:
            pass  # the same as its end
        for future in self._gone.values():
            _resolve(future, None)
        for future in self._lists.values():
            if not future.done():
                future.set_exception(SandboxLost("the arena process ended"))
        self._gone.clear()
        self._lists.clear()

    async def start_trial(self, control: socket.socket, commands: socket.socket) -> "StartedTrial":
        """Starts a trial that serves the two sockets.

        Raises:
            SandboxLost: The arena has ended.
        """
        number = self._number()
        gone = self._gone[number] = asyncio.get_running_loop().create_future()
        try:
            await self._send({"start": number}, [control.fileno(), commands.fileno()])
        except BaseException:
            # a message is sent whole or not at all: there is no trial
            del self._gone[number]
            raise
        return StartedTrial(number, gone)

    async def trials(self) -> list[int]:
        """Returns the numbers of the trials the arena has, in whatever state.

        Raises:
            SandboxLost: The arena has ended.
        """
        number = self._number()
        future = self._lists[number] = asyncio.get_running_loop().create_future()
        await self._send({"list": number}, [])
        return await future

    def _number(self) -> int:
        if self._reader is None or self._reader.done():
            raise SandboxLost("the arena process ended: enter a new LocalProvider")
        self._next += 1
        return self._next

    async def _send(self, message: dict[str, int], descriptors: list[int]) -> None:
        body = json.dumps(message).encode()
        while True:
            try:
                socket.send_fds(self._control, [body], descriptors)
            except BlockingIOError:
                await _writable(self._control)
            except ConnectionError as error:
                raise SandboxLost("the arena process ended") from error
            else:
                return

    async def close(self) -> None:
        """Ends the arena and whatever is left in it; returns when its processes are gone."""
        try:
            if self._reader is not None:
                self._reader.cancel()
                await asyncio.wait([self._reader])
        finally:
            self._control.close()
        ended = os.pidfd_open(self._process.pid)
        try:
            async with asyncio.timeout(_END_LIMIT_S):
                await _readable(ended)
        except TimeoutError:
            self._process.kill()  # takes everything below with it
            await _readable(ended)
        finally:
            os.close(ended)
        self._process.wait()
        for future in self._gone.values():
            _resolve(future, None)


_Value = TypeVar("_Value")


def _resolve(future: "asyncio.Future[_Value]", value: _Value) -> None:
    if not future.done():
        future.set_result(value)


async def _writable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _resolve, ready, None)
    try:
        await ready
    finally:
        loop.remove_writer(sock)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _resolve, ready, None)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
