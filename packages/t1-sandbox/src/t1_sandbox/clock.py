"""Time, as something that is passed in: real, or moved by hand in tests and simulations."""

import asyncio
import heapq
import itertools
import time
from typing import Protocol

from t1_sandbox.errors import SpecError

_SETTLING_ROUNDS = 50


class Clock(Protocol):
    """Where time comes from."""

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary moment; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Returns after `seconds`."""
        ...


class MonotonicClock:
    """Real time."""

    def monotonic(self) -> float:
        """Returns `time.monotonic()`."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleeps in real time."""
        await asyncio.sleep(seconds)


class ManualClock:
    """Virtual time that moves only when told to; sleepers wake in the order of their times."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Returns the virtual time in seconds."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Waits until the clock has been advanced far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Moves the time on, stopping at every sleeper and letting tasks run there.

        Raises:
            SpecError: `seconds` is negative.
        """
        if seconds < 0:
            raise SpecError(f"seconds={seconds}, expected 0 or more: time does not go back")
        end = self._now + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            moment, _, woken = heapq.heappop(self._sleepers)
            self._now = max(self._now, moment)
            if not woken.done():
                woken.set_result(None)
            await _settle()
        self._now = end


async def _settle() -> None:
    """Lets tasks run on until, for all practical chains of awaits, each waits for something."""
    for _ in range(_SETTLING_ROUNDS):
        await asyncio.sleep(0)
