"""Publication: new weights reach all replicas at a barrier that no request straddles.

    quiesce ─▶ load ─▶ verify ─▶ commit ─▶ resume
    └── a failure here rolls back ──┘  └── a failure here fences ──┘

Up to verify, nothing has changed what a replica serves, so any failure lets every replica resume
at its old version. Once all hold the same verified weights they commit. A replica that misses a
deadline, or whose state is unknown for another reason, is fenced: it is not resumed and is named,
and whoever routes requests must send it nothing. Hence the invariant: a replica that admits
requests is at one version, and it changes versions only while it holds none.

The barrier knows neither engines nor transports; it drives replicas through a protocol.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from .clock import Clock, MonotonicClock
from .errors import ArgumentError, PublishError
from .replica import Phase, Replica
from .weights import Weights, weights_digest


@dataclass(frozen=True)
class PublishReport:
    """A publication that reached every replica.

    Attributes:
        version: the version all replicas serve now.
        digest: `weights_digest` of what they serve.
        replicas: their names.
        seconds: how long each phase took, on the clock of the publication.
    """

    version: int
    digest: str
    replicas: tuple[str, ...]
    seconds: dict[Phase, float]


async def publish(
    replicas: Sequence[Replica],
    weights: Weights,
    version: int,
    *,
    clock: Clock | None = None,
    deadline_s: float = 120.0,
    load_deadline_s: float = 1800.0,
) -> PublishReport:
    """Bring all replicas to new weights, or none of those that go on serving.

    Replicas are driven concurrently. Cancelling the call before the commit rolls it back; from
    the commit on it is finished first. Either runs to its end however often the call is cancelled,
    and a replica that failed is then named in a note on the `CancelledError`.

    Args:
        replicas: at least one, with different names.
        weights: what to load.
        version: greater than the version of every replica.
        clock: source of time; real time if None.
        deadline_s: seconds that one control call to one replica may take.
        load_deadline_s: seconds that loading may take.

    Returns:
        A report, if every replica serves `version`.

    Raises:
        ArgumentError: no replicas, equal names, or a version that is not newer.
        PublishError: a replica failed; says which ones serve, at what version, and which are
            fenced.
    """
    _check_arguments(replicas, version)
    barrier = _Barrier(
        replicas, weights, version, clock or MonotonicClock(), deadline_s, load_deadline_s
    )
    try:
        await _run(barrier)
    except asyncio.CancelledError as error:
        if barrier.failures:
            error.add_note(str(barrier.error()))
        raise
    return barrier.report()


async def _run(barrier: "_Barrier") -> None:
    try:
        prepared = await barrier.prepare()
    except asyncio.CancelledError:
        await _to_the_end(barrier.roll_back())
        raise
    await _to_the_end(barrier.switch() if prepared else barrier.roll_back())


def _check_arguments(replicas: Sequence[Replica], version: int) -> None:
    names = [replica.name for replica in replicas]
    if not names or len(set(names)) != len(names):
        raise ArgumentError("replicas", f"expected at least one, with different names, got {names}")
    newest = max(replicas, key=lambda replica: replica.version)
    if newest.version >= version:
        raise ArgumentError(
            "version",
            f"expected a newer one than {newest.name} serves ({newest.version}), got {version}",
        )


@dataclass(frozen=True)
class _Failure:
    replica: str
    phase: Phase
    problem: str


@dataclass
class _Barrier:
    """One publication: who failed where, and who is fenced."""

    replicas: Sequence[Replica]
    weights: Weights
    version: int
    clock: Clock
    deadline_s: float
    load_deadline_s: float
    digest: str = ""
    committed: bool = False
    failures: list[_Failure] = field(default_factory=list[_Failure])
    fenced: set[str] = field(default_factory=set[str])
    seconds: dict[Phase, float] = field(default_factory=dict[Phase, float])

    async def prepare(self) -> bool:
        """Quiesce, load and verify; False as soon as one replica failed."""
        self.digest = await asyncio.to_thread(weights_digest, self.weights)
        await self._all(Phase.QUIESCE, lambda replica: replica.quiesce())
        if not self.failures:
            await self._all(Phase.LOAD, lambda replica: replica.load(self.weights))
        if not self.failures:
            await self._all(Phase.VERIFY, self._verify)
        return not self.failures

    async def switch(self) -> None:
        """Commit everywhere, and resume where that worked."""
        self.committed = True
        await self._all(Phase.COMMIT, self._commit, fence=True)
        await self._all(Phase.RESUME, lambda replica: replica.resume(), fence=True)

    async def roll_back(self) -> None:
        """Return every replica that still answers to its old version."""
        await self._all(Phase.ABORT, lambda replica: replica.abort(), fence=True)
        await self._all(Phase.RESUME, lambda replica: replica.resume(), fence=True)

    def report(self) -> PublishReport:
        """The result for the caller, as a value or as an error."""
        if self.failures:
            raise self.error()
        names = tuple(replica.name for replica in self.replicas)
        return PublishReport(self.version, self.digest, names, self.seconds)

    def error(self) -> PublishError:
        """The first failure, and what became of every replica."""
        names = tuple(replica.name for replica in self.replicas)
        first = self.failures[0]
        return PublishError(
            first.replica,
            first.phase,
            first.problem,
            self.version,
            self.committed,
            serving=tuple(name for name in names if name not in self.fenced),
            fenced=tuple(name for name in names if name in self.fenced),
        )

    async def _verify(self, replica: Replica) -> None:
        found = await replica.digest()
        if found != self.digest:
            raise ValueError(f"holds weights {found[:12]}… instead of {self.digest[:12]}…")

    async def _commit(self, replica: Replica) -> None:
        await replica.commit(self.version)
        if replica.version != self.version:
            raise ValueError(f"serves version {replica.version} after the commit")

    async def _all(
        self, phase: Phase, call: Callable[[Replica], Awaitable[None]], *, fence: bool = False
    ) -> None:
        """Call every replica that is not fenced; fence on a missed deadline, or on any failure."""
        begin = self.clock.monotonic()
        called = [replica for replica in self.replicas if replica.name not in self.fenced]
        limit = self.load_deadline_s if phase is Phase.LOAD else self.deadline_s
        results = await asyncio.gather(
            *(_within(limit, self.clock, call(replica)) for replica in called),
            return_exceptions=True,
        )
        for replica, result in zip(called, results, strict=True):
            if isinstance(result, BaseException):
                self.failures.append(_Failure(replica.name, phase, _describe(result)))
                if fence or isinstance(result, _DeadlineMissed):
                    self.fenced.add(replica.name)
        self.seconds[phase] = self.clock.monotonic() - begin


class _DeadlineMissed(Exception):
    pass


def _describe(error: BaseException) -> str:
    if isinstance(error, _DeadlineMissed):
        return str(error)
    if isinstance(error, asyncio.CancelledError):
        return "CancelledError: the call was cancelled from inside the replica"
    return f"{type(error).__name__}: {error}"


async def _within(seconds: float, clock: Clock, call: Awaitable[None]) -> None:
    """Await a call, but no longer than `seconds` on the clock; a late call is left cancelled."""
    work = asyncio.ensure_future(call)
    alarm = asyncio.ensure_future(clock.sleep(seconds))
    try:
        await asyncio.wait((work, alarm), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise _DeadlineMissed(f"no answer within {seconds:g} s")
        work.result()
    finally:
        alarm.cancel()
        # not awaited: what hangs may not react to being cancelled either
        work.cancel()
        work.add_done_callback(_retrieve)


def _retrieve(work: asyncio.Future[None]) -> None:
    """Mark an abandoned call's exception as seen; its replica is fenced and named already."""
    if not work.cancelled():
        work.exception()


async def _to_the_end(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end, however often the caller is cancelled, then be cancelled."""
    task = asyncio.ensure_future(coroutine)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
