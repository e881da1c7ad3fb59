"""Pacing: a token bucket with a first-in-first-out queue.

    for all s < t: acquisitions in (s, t] <= rate * (t - s) + burst

A waiter that is cancelled gives its place to the next one and takes no token.
"""

import asyncio

from t1_sandbox.clock import Clock
from t1_sandbox.errors import SpecError

_ROUNDING = 1e-9  # of a token: what adding up many small refills may be short of


class TokenBucket:
    """Lets `rate_per_s` acquisitions through each second, and `burst` at once after a rest.

    Args:
        rate_per_s: Tokens added per second.
        burst: Tokens it holds at most, and at first.
        clock: Where time comes from.

    Raises:
        SpecError: The rate is not positive or the burst is below 1.
    """

    def __init__(self, rate_per_s: float, burst: int, clock: Clock) -> None:
        if not rate_per_s > 0 or burst < 1:
            raise SpecError(
                f"rate_per_s={rate_per_s}, burst={burst}, expected a rate above 0 and a burst of 1 or more"
            )
        self._rate = rate_per_s
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._counted_at = clock.monotonic()
        self._turn = asyncio.Lock()  # first in, first out

    async def acquire(self) -> None:
        """Returns when a token has been taken; callers are served in the order they came."""
        async with self._turn:
            while not self._take():
                await self._clock.sleep((1 - self._tokens) / self._rate)

    def _take(self) -> bool:
        now = self._clock.monotonic()
        added = (now - self._counted_at) * self._rate
        self._tokens = min(float(self._burst), self._tokens + added)
        self._counted_at = now
        if self._tokens < 1 - _ROUNDING:
            return False
        self._tokens -= 1
        return True
