"""Clocks: where every deadline and delay takes its time from.

`Clock` is a structural protocol, so an object of another library that has the two methods fits.
`MonotonicClock` is real time; `ManualClock` moves only when told to, which lets a test run a
schedule of hours in milliseconds and assert exact times.
"""

import asyncio
import heapq
import time
from typing import Protocol

from .errors import ArgumentError

# a woken task may need several turns of the event loop until it sleeps again or ends
_SETTLE_TURNS = 50


class Clock(Protocol):
    """A source of time, in seconds."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary origin; never decreases."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return once at least `seconds` have passed on this clock."""
        ...


class MonotonicClock:
    """Real time: `time.monotonic` and `asyncio.sleep`."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary origin; never decreases."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return once at least `seconds` have passed."""
        await asyncio.sleep(seconds)


class ManualClock:
    """Virtual time that starts at 0 and moves only through `advance`."""

    def __init__(self) -> None:
        self._now = 0.0
        self._started = 0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        """Virtual seconds since the clock was made."""
        return self._now

    async def sleep(self, seconds: float) -> None:
        """Return once the clock was advanced past `seconds` from now; at once if there are none."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future = asyncio.get_running_loop().create_future()
        self._started += 1
        heapq.heappush(self._sleepers, (self._now + seconds, self._started, future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time on, waking sleepers in the order they are due.

        A sleeper sees exactly the time it asked for, and may sleep again within the same advance.

        Raises:
            ArgumentError: `seconds` is negative.
        """
        if seconds < 0:
            raise ArgumentError("seconds", f"expected >= 0, got {seconds}; time does not go back")
        target = self._now + seconds
        await self._settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            due, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                self._now = due
                future.set_result(None)
                await self._settle()
        self._now = target

    async def _settle(self) -> None:
        for _ in range(_SETTLE_TURNS):
            await asyncio.sleep(0)
