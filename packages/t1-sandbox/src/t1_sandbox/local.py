"""`LocalProvider`: sandboxes on this machine, isolated by Linux namespaces through bubblewrap.

    every sandbox lives in the provider's arena process; the arena lives no longer than this process

So whatever happens here (cancellation, an exception, SIGKILL), nothing is left behind. It starts
only on a host that can isolate, which a command in a sandbox made on entry proves.
"""

import asyncio
import socket
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from t1_sandbox.arena_client import ArenaClient
from t1_sandbox.bubblewrap import find_bubblewrap
from t1_sandbox.channel import Channel, channel_pair
from t1_sandbox.errors import CreateError, IsolationUnavailable, SandboxLost, SpecError
from t1_sandbox.frames import Header
from t1_sandbox.local_sandbox import LocalSandbox
from t1_sandbox.session import CONTROL_LIMIT_S, Session
from t1_sandbox.spec import Capabilities, SandboxSpec

_PROBE_KEY = "t1-sandbox-probe"


@dataclass(frozen=True)
class ProviderStatistics:
    """Counts since the provider was entered.

    Attributes:
        created: Sandboxes that became ready.
        alive: Sandboxes that still hold anything, those being created or deleted included.
        left_open: Keys of the sandboxes that closing the provider had to end.
    """

    created: int
    alive: int
    left_open: tuple[str, ...]


class LocalProvider:
    """Makes sandboxes on this machine.

    Use it as `async with LocalProvider() as provider`.
    """

    def __init__(self) -> None:
        self._bubblewrap = find_bubblewrap()
        self._arena: ArenaClient | None = None
        self._sessions: dict[str, Session] = {}
        self._keys: set[str] = set()
        self._created = 0
        self._left_open: tuple[str, ...] = ()

    async def __aenter__(self) -> Self:
        """Starts the arena and proves with a command in a sandbox that it isolates.

        Raises:
            IsolationUnavailable: This host cannot; the message says what is missing.
        """
        self._arena = await ArenaClient.start(self._bubblewrap)
        try:
            await self._prove()
        except (CreateError, SandboxLost) as error:
            await self.aclose()
            raise IsolationUnavailable(f"{self._bubblewrap.path} failed: {error}") from error
        except BaseException:
            await self.aclose()
            raise
        self._created = 0
        return self

    async def _prove(self) -> None:
        probe = await self.create(SandboxSpec(), key=_PROBE_KEY)
        result = await probe.exec("true")
        await probe.delete()
        if result.exit_code != 0:
            raise CreateError(f"`true` in a sandbox: {result}")

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the provider."""
        await self.aclose()

    @property
    def capabilities(self) -> Capabilities:
        """What this provider works with."""
        return Capabilities(str(self._bubblewrap.path), self._bubblewrap.origin)

    def statistics(self) -> ProviderStatistics:
        """Returns the counts so far."""
        return ProviderStatistics(
            created=self._created, alive=len(self._keys), left_open=self._left_open
        )

    async def create(self, spec: SandboxSpec, *, key: str) -> LocalSandbox:
        """Returns a sandbox that is ready for commands.

        When this is cancelled, the sandbox begun is gone soon; `find` lists it until then.

        Raises:
            SpecError: A sandbox with this key exists.
            CreateError: The host refused; nothing of the sandbox is left.
            SandboxLost: The provider is not entered, or its arena has ended.
        """
        if self._arena is None:
            raise SandboxLost("the provider is not entered: use `async with LocalProvider()`")
        if key in self._keys:
            raise SpecError(f"key={key!r}, expected one that no sandbox has")
        self._keys.add(key)
        try:
            session = await self._begin(self._arena, spec, key)
        except BaseException:
            if key not in self._sessions:
                self._keys.discard(key)
            raise
        self._created += 1
        return LocalSandbox(key, session)

    async def _begin(self, arena: ArenaClient, spec: SandboxSpec, key: str) -> Session:
        with ExitStack() as channels, ExitStack() as peers:
            try:
                control, control_peer = _pair(channels, peers)
                commands, commands_peer = _pair(channels, peers)
            except OSError as error:
                raise CreateError(f"sandbox {key!r}: {error}") from error
            trial = await arena.start_trial(control_peer, commands_peer)
            channels.pop_all()
        session = Session(spec, trial, control, commands)
        self._sessions[key] = session
        trial.gone.add_done_callback(lambda _: self._forget(key))
        try:
            await _create(control, spec, key)
        except CreateError:
            await session.end()
            raise
        except BaseException:
            session.close()
            raise
        return session

    def _forget(self, key: str) -> None:
        session = self._sessions.pop(key)
        session.close()
        self._keys.discard(key)

    async def find(self) -> list[str]:
        """Returns the keys of all sandboxes of which the arena still has anything, sorted.

        Raises:
            SandboxLost: The provider is not entered, or its arena has ended.
        """
        if self._arena is None:
            raise SandboxLost("the provider is not entered: use `async with LocalProvider()`")
        numbers = set(await self._arena.trials())
        return sorted(
            key for key, session in self._sessions.items() if session.trial.number in numbers
        )

    async def aclose(self) -> None:
        """Ends whatever is left, counts it in the statistics, and returns when all is gone."""
        arena, self._arena = self._arena, None
        if arena is None:
            return
        self._left_open = tuple(
            sorted(key for key, session in self._sessions.items() if not session.closed)
        )
        for session in self._sessions.values():
            session.close()
        await arena.close()
        await asyncio.sleep(0)  # the ends of the trials are noted by callbacks


def _pair(channels: ExitStack, peers: ExitStack) -> tuple[Channel, socket.socket]:
    channel, peer = channel_pair()
    channels.callback(channel.close)
    peers.callback(peer.close)
    return channel, peer


async def _create(control: Channel, spec: SandboxSpec, key: str) -> None:
    header: Header = {
        "workdir": spec.workdir,
        "work_bytes": spec.work_bytes,
        "work_inodes": spec.work_inodes,
        "tmp_bytes": spec.tmp_bytes,
        "pids": spec.pids,
        "memory_bytes": spec.memory_bytes,
        "file_bytes": spec.file_bytes,
    }
    try:
        async with asyncio.timeout(CONTROL_LIMIT_S):
            answer = (await control.request(header)).header
    except (OSError, ValueError) as error:
        text = str(error) or f"no answer in {CONTROL_LIMIT_S} s"
        raise CreateError(f"sandbox {key!r}: {text}") from error
    if "error" in answer:
        raise CreateError(f"sandbox {key!r}: {answer['error']}")
