"""An in-memory replica with planted faults, for tests of code that publishes weights.

`InMemoryReplica` admits requests that take several steps and records the version each step was
served at, so a test can see whether any request straddled a publication.
"""

import asyncio
from collections.abc import Mapping
from enum import StrEnum

from .clock import Clock
from .replica import Phase
from .weights import Weights, weights_digest


class Fault(StrEnum):
    """What goes wrong in a phase."""

    RAISE = "raise"
    """The call fails before it does anything."""
    HANG = "hang"
    """The call never answers."""
    CORRUPT = "corrupt"
    """In LOAD: other bytes arrive than were sent. In COMMIT: the version is not taken over."""
    NO_DRAIN = "no-drain"
    """In QUIESCE: the call returns while requests are in flight."""


class InMemoryReplica:
    """A replica that serves versions instead of tokens.

    Args:
        name: its name.
        version: version served at first.
        clock: what the steps of requests, and hanging calls, wait on.
        faults: what goes wrong, by phase.
    """

    def __init__(
        self, name: str, version: int, clock: Clock, faults: Mapping[Phase, Fault] | None = None
    ) -> None:
        self.name = name
        self.version = version
        self.requests: list[list[int]] = []
        """For every request, the version that served each of its steps."""
        self.admits = True
        """Whether a new request would be let in now."""
        self._clock = clock
        self._faults = dict(faults or {})
        self._staged: Weights | None = None
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def request(self, steps: int) -> bool:
        """Serve one request of `steps` steps, a second apart; False if it is not admitted."""
        if not self.admits:
            return False
        versions: list[int] = []
        self.requests.append(versions)
        self._in_flight += 1
        self._idle.clear()
        try:
            for _ in range(steps):
                versions.append(self.version)
                await self._clock.sleep(1.0)
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()
        return True

    async def quiesce(self) -> None:
        """Admit no further request; return when none is in flight."""
        await self._fail(Phase.QUIESCE)
        self.admits = False
        if self._faults.get(Phase.QUIESCE) is not Fault.NO_DRAIN:
            await self._idle.wait()

    async def load(self, bundle: Weights) -> None:
        """Hold new weights beside the served ones."""
        await self._fail(Phase.LOAD)
        self._staged = b"damaged" if self._faults.get(Phase.LOAD) is Fault.CORRUPT else bundle

    async def digest(self) -> str:
        """Digest of the weights that were loaded."""
        await self._fail(Phase.VERIFY)
        if self._staged is None:
            raise RuntimeError("digest() before load()")
        return weights_digest(self._staged)

    async def commit(self, version: int) -> None:
        """Serve the loaded weights."""
        await self._fail(Phase.COMMIT)
        self._staged = None
        if self._faults.get(Phase.COMMIT) is not Fault.CORRUPT:
            self.version = version

    async def abort(self) -> None:
        """Forget the loaded weights."""
        await self._fail(Phase.ABORT)
        self._staged = None

    async def resume(self) -> None:
        """Admit requests again."""
        await self._fail(Phase.RESUME)
        self.admits = True

    async def _fail(self, phase: Phase) -> None:
        fault = self._faults.get(phase)
        if fault is Fault.RAISE:
            raise ConnectionError(f"planted in {phase}")
        if fault is Fault.HANG:
            await asyncio.get_running_loop().create_future()
