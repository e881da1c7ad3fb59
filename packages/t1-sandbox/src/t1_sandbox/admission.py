"""Admission: how many sandboxes there are, how fast they come, and that each of them goes.

    creating + alive + deleting <= max_sandboxes, at every moment

Creating and deleting run in tasks of the controller. A trial that is cancelled only gives up its
lease: what was begun for it is finished and then deleted, and its slot is free when the deletion is
confirmed, not earlier.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from t1_sandbox.bucket import TokenBucket
from t1_sandbox.clock import Clock
from t1_sandbox.errors import ReclaimError, SpecError
from t1_sandbox.journal import Event, Journal
from t1_sandbox.sandbox import Sandbox, SandboxProvider
from t1_sandbox.spec import SandboxSpec

_DELETE_ATTEMPTS = 6
_FIRST_PAUSE_S = 0.1  # doubled after each failed deletion


@dataclass(frozen=True)
class AdmissionStatistics:
    """Counts of sandboxes.

    Attributes:
        creating: Being created.
        alive: Leased.
        deleting: Given up, and not yet confirmed to be gone.
        waiting: Leases that wait for a slot or for the pace.
        created_total: Created so far.
        deleted_total: Confirmed to be gone so far.
        failed_total: Creations that failed so far.
    """

    creating: int
    alive: int
    deleting: int
    waiting: int
    created_total: int
    deleted_total: int
    failed_total: int


class AdmissionController:
    """Leases sandboxes of one provider.

    Args:
        provider: Makes the sandboxes.
        max_sandboxes: Bound on those that exist in any state.
        bucket: Pace of creation.
        journal: Told of every step before the next. When it cannot be written, nothing new is
            leased, and what exists is deleted all the same.
        clock: Time between attempts to delete.

    Raises:
        SpecError: `max_sandboxes` is below 1.
    """

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        max_sandboxes: int,
        bucket: TokenBucket,
        journal: Journal,
        clock: Clock,
    ) -> None:
        if max_sandboxes < 1:
            raise SpecError(f"max_sandboxes={max_sandboxes}, expected 1 or more")
        self._provider = provider
        self._slots = asyncio.Semaphore(max_sandboxes)
        self._bucket = bucket
        self._journal = journal
        self._clock = clock
        self._tasks: set[asyncio.Task[Any]] = set()
        self._undeleted: list[str] = []
        self._journal_error: OSError | None = None
        self._creating = self._alive = self._deleting = self._waiting = 0
        self._created_total = self._deleted_total = self._failed_total = 0

    def statistics(self) -> AdmissionStatistics:
        """Returns the counts of this moment."""
        return AdmissionStatistics(
            creating=self._creating,
            alive=self._alive,
            deleting=self._deleting,
            waiting=self._waiting,
            created_total=self._created_total,
            deleted_total=self._deleted_total,
            failed_total=self._failed_total,
        )

    @asynccontextmanager
    async def lease(self, spec: SandboxSpec, *, key: str) -> AsyncGenerator[Sandbox, None]:
        """Gives a sandbox for the body of an `async with`; its end only starts the deletion.

        A trial must take all it needs in one lease: waiting for a second one while holding the
        first can block all trials.

        Args:
            spec: What to create.
            key: Name of the lease, unique among those that exist.

        Raises:
            SandboxError: Whatever the provider raises when it creates.
            OSError: The journal cannot be written; what was created is deleted.
        """
        await self._admit()
        creation = self._own(self._create(spec, key))
        try:
            sandbox = await asyncio.shield(creation)
        except asyncio.CancelledError:
            creation.add_done_callback(lambda done: self._give_up(done, key))
            raise
        try:
            yield sandbox
        finally:
            self._start_deletion(sandbox, key)

    async def _admit(self) -> None:
        self._waiting += 1
        try:
            await self._slots.acquire()
            try:
                await self._bucket.acquire()
            except BaseException:
                self._slots.release()
                raise
        finally:
            self._waiting -= 1
        self._creating += 1

    async def _create(self, spec: SandboxSpec, key: str) -> Sandbox:
        try:
            self._journal.record(Event.INTENT, key)
            sandbox = await self._provider.create(spec, key=key)
        except BaseException as error:
            self._failed_total += 1
            self._slots.release()
            self._note(Event.FAILED, key, repr(error))
            raise
        finally:
            self._creating -= 1
        self._created_total += 1
        self._alive += 1
        try:
            self._journal.record(Event.CREATED, key)
        except BaseException:
            # it exists, and nobody is going to hold it
            self._start_deletion(sandbox, key)
            raise
        return sandbox

    def _note(self, event: Event, key: str, detail: str = "") -> None:
        """Records what must go on even when it cannot be recorded; `drain` raises the error."""
        try:
            self._journal.record(event, key, detail)
        except OSError as error:
            self._journal_error = self._journal_error or error

    def _give_up(self, creation: "asyncio.Task[Sandbox]", key: str) -> None:
        # a creation that failed has reported itself and left nothing, or is being deleted
        if not creation.cancelled() and creation.exception() is None:
            self._start_deletion(creation.result(), key)

    def _start_deletion(self, sandbox: Sandbox, key: str) -> None:
        self._alive -= 1
        self._deleting += 1
        self._own(self._delete(sandbox, key))

    async def _delete(self, sandbox: Sandbox, key: str) -> None:
        self._note(Event.DELETING, key)
        pause = _FIRST_PAUSE_S
        for attempt in range(1, _DELETE_ATTEMPTS + 1):
            try:
                await sandbox.delete()
                break
            except Exception as error:
                self._note(Event.FAILED, key, f"delete, attempt {attempt}: {error!r}")
            if attempt == _DELETE_ATTEMPTS:
                # the slot stays taken: whatever it was may still exist
                self._undeleted.append(key)
                return
            await self._clock.sleep(pause)
            pause *= 2
        self._note(Event.DELETED, key)
        self._deleting -= 1
        self._deleted_total += 1
        self._slots.release()

    def _own(self, work: "Coroutine[Any, Any, Any]") -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def drain(self) -> None:
        """Returns when every creation and deletion begun so far has ended.

        Raises:
            ReclaimError: Some sandbox could not be deleted; their slots stay taken.
            OSError: All are deleted, but the journal could not record all of it; the first error.
        """
        while self._tasks:
            await asyncio.wait(self._tasks)
            await asyncio.sleep(0)  # the ends of creations may have started deletions
        if self._undeleted:
            raise ReclaimError(
                f"{len(self._undeleted)} sandboxes could not be deleted after {_DELETE_ATTEMPTS} "
                f"attempts, delete them by hand: {', '.join(self._undeleted)}"
            ) from self._journal_error
        if self._journal_error is not None:
            raise self._journal_error
