"""Deadlines by layer, so that what ran out of time has a name."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from t1_sandbox.errors import DeadlineExceeded, SpecError

Layer = Literal["agent", "verifier", "control"]


@dataclass(frozen=True)
class Deadlines:
    """Limits in seconds.

    Attributes:
        agent_s: All turns of one trial.
        verifier_s: Running one trial's tests; sealing is a control operation.
        control_s: Any other control operation.
    """

    agent_s: float = 3600.0
    verifier_s: float = 900.0
    control_s: float = 60.0

    def __post_init__(self) -> None:
        for name in ("agent_s", "verifier_s", "control_s"):
            if not getattr(self, name) > 0:
                raise SpecError(f"{name}={getattr(self, name)}, expected more than 0 seconds")

    @asynccontextmanager
    async def layer(self, name: Layer) -> AsyncGenerator[None, None]:
        """Bounds the body of an `async with`.

        Raises:
            DeadlineExceeded: The layer's time ran out; other timeouts pass through unchanged.
        """
        limit: float = getattr(self, f"{name}_s")
        timeout = asyncio.timeout(limit)
        try:
            async with timeout:
                yield
        except TimeoutError as error:
            if timeout.expired():
                raise DeadlineExceeded(name, limit) from error
            raise
