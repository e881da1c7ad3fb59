"""A replica of the served weights, as the publication barrier sees it.

Whatever serves the model implements these methods: an engine in the same process, or a client of
one on another machine. The barrier calls them in the order of `Phase` and never two at a time on
one replica, except that an abort may follow a load it has cancelled.
"""

from enum import StrEnum
from typing import Protocol

from .weights import Weights


class Replica(Protocol):
    """One server of the weights, as the barrier drives it."""

    @property
    def name(self) -> str:
        """Unique among the replicas of one publication."""
        ...

    @property
    def version(self) -> int:
        """Version of the weights that are served."""
        ...

    async def quiesce(self) -> None:
        """Admit no further request; return when none is in flight."""
        ...

    async def load(self, bundle: Weights) -> None:
        """Hold new weights beside the served ones, without serving them."""
        ...

    async def digest(self) -> str:
        """`weights_digest` of the weights that were loaded, computed from the replica's copy."""
        ...

    async def commit(self, version: int) -> None:
        """Make the loaded weights the served ones, under this version."""
        ...

    async def abort(self) -> None:
        """Forget loaded weights, if any; the served ones stay."""
        ...

    async def resume(self) -> None:
        """Admit requests again."""
        ...


class Phase(StrEnum):
    """A step of the barrier that a replica can fail in."""

    QUIESCE = "quiesce"
    LOAD = "load"
    VERIFY = "verify"
    COMMIT = "commit"
    ABORT = "abort"
    RESUME = "resume"
