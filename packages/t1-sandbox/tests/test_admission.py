"""The cap holds, nothing is lost under cancellation or failure, and deletions are confirmed."""

import asyncio
import errno
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_sandbox import (
    AdmissionController,
    Event,
    Journal,
    ManualClock,
    MonotonicClock,
    ReclaimError,
    SandboxSpec,
    SpecError,
    TokenBucket,
)

_SPEC = SandboxSpec()


@dataclass
class SimulatedProvider:
    """A provider in virtual time that keeps the truth: what exists, and the most that ever did."""

    clock: ManualClock
    create_s: float = 1.0
    delete_s: float = 0.5
    failing_creations: frozenset[str] = frozenset()
    failing_deletions: dict[str, int] = field(default_factory=dict)
    existing: set[str] = field(default_factory=set)
    most: int = 0
    deleted: list[str] = field(default_factory=list)

    async def create(self, spec, *, key):
        assert key not in self.existing
        self.existing.add(key)
        self.most = max(self.most, len(self.existing))
        try:
            await self.clock.sleep(self.create_s)
        except BaseException:
            self.existing.discard(key)
            raise
        if key in self.failing_creations:
            self.existing.discard(key)
            raise RuntimeError("no machine")
        return SimulatedSandbox(self, key)

    async def find(self):
        return sorted(self.existing)


@dataclass
class SimulatedSandbox:
    provider: SimulatedProvider
    id: str

    async def delete(self):
        await self.provider.clock.sleep(self.provider.delete_s)
        if self.provider.failing_deletions.get(self.id, 0) > 0:
            self.provider.failing_deletions[self.id] -= 1
            raise RuntimeError("try later")
        self.provider.existing.remove(self.id)
        self.provider.deleted.append(self.id)


class FullDisk(Journal):
    """A journal that cannot record some events."""

    def __init__(self, *refused):
        super().__init__()
        self.refused = refused

    def record(self, event, key, detail=""):
        if event in self.refused:
            raise OSError(errno.ENOSPC, f"no space for {event}")
        super().record(event, key, detail)


def _controller(provider, clock, cap, rate=1000.0, journal=None):
    journal = journal or Journal()
    bucket = TokenBucket(rate, max(1, int(rate)), clock)
    controller = AdmissionController(
        provider, max_sandboxes=cap, bucket=bucket, journal=journal, clock=clock
    )
    return controller, journal


async def _simulate(cap, trials, cap_of_controller=None):
    """Runs trials (start, duration, cancel after or None, creation fails) to the end."""
    clock = ManualClock()
    failing = frozenset(str(number) for number, trial in enumerate(trials) if trial[3])
    provider = SimulatedProvider(clock, failing_creations=failing)
    controller, journal = _controller(provider, clock, cap_of_controller or cap)
    over = []

    def check():
        counts = controller.statistics()
        if counts.creating + counts.alive + counts.deleting > cap or len(provider.existing) > cap:
            over.append(counts)

    async def trial(number, start, duration):
        await clock.sleep(start)
        async with controller.lease(_SPEC, key=str(number)):
            check()
            await clock.sleep(duration)
        check()

    tasks = [
        asyncio.create_task(trial(number, start, duration))
        for number, (start, duration, _, _) in enumerate(trials)
    ]
    for tenth in range(85):  # the last trial is cancelled at 8 s
        for task, (start, _, cancel_after, _) in zip(tasks, trials, strict=True):
            if cancel_after is not None and tenth / 10 >= start + cancel_after:
                task.cancel()
        await clock.advance(0.1)
        check()
    await clock.advance(1000)
    await asyncio.gather(*tasks, return_exceptions=True)
    await controller.drain()
    return provider, controller, journal, over


_trials = st.lists(
    st.tuples(
        st.integers(0, 30).map(lambda tenth: tenth / 10),
        st.integers(0, 30).map(lambda tenth: tenth / 10),
        st.none() | st.integers(0, 50).map(lambda tenth: tenth / 10),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(cap=st.integers(1, 3), trials=_trials)
def test_the_cap_holds_and_nothing_is_lost_whatever_is_cancelled_or_fails(cap, trials):
    provider, controller, journal, over = asyncio.run(_simulate(cap, trials))
    counts = controller.statistics()

    assert over == []
    assert provider.most <= cap
    assert provider.existing == set()
    assert counts.created_total == counts.deleted_total == len(provider.deleted)
    assert (counts.creating, counts.alive, counts.deleting, counts.waiting) == (0, 0, 0, 0)
    kinds = [record.event for record in journal.records]
    assert kinds.count(Event.INTENT) == kinds.count(Event.DELETED) + kinds.count(Event.FAILED)
    assert kinds.count(Event.FAILED) == counts.failed_total


def test_the_check_fires_on_a_controller_that_admits_too_many():
    trials = [(0.0, 1.0, None, False)] * 4

    provider, _, _, over = asyncio.run(_simulate(2, trials, cap_of_controller=3))

    assert over
    assert provider.most == 3


def test_a_cancelled_trial_frees_its_slot_only_when_the_deletion_is_confirmed():
    async def check():
        clock = ManualClock()
        provider = SimulatedProvider(clock, create_s=10, delete_s=10)
        controller, _ = _controller(provider, clock, cap=1)

        async def hold(key):
            async with controller.lease(_SPEC, key=key):
                await clock.sleep(1)

        first, second = (asyncio.create_task(hold(key)) for key in "ab")
        await clock.advance(1)
        first.cancel()
        await clock.advance(1)
        assert first.cancelled(), "the trial is free at once"
        assert provider.existing == {"a"}, "its creation goes on"
        assert controller.statistics().waiting == 1
        await clock.advance(17)
        assert provider.existing == {"a"}, "and then its deletion"
        await clock.advance(2)
        assert provider.existing == {"b"}
        await clock.advance(50)
        await second
        await controller.drain()

    asyncio.run(check())


def test_creation_is_paced_and_waiting_can_be_cancelled():
    async def check():
        clock = ManualClock()
        provider = SimulatedProvider(clock, create_s=0)
        controller, journal = _controller(provider, clock, cap=100, rate=1.0)

        async def hold(key):
            async with controller.lease(_SPEC, key=key):
                await clock.sleep(1)

        tasks = [asyncio.create_task(hold(str(number))) for number in range(4)]
        await clock.advance(0.5)
        tasks[1].cancel()
        await clock.advance(20)
        await controller.drain()
        return [record.key for record in journal.records if record.event is Event.INTENT]

    assert asyncio.run(check()) == ["0", "2", "3"]


def test_a_failed_creation_reaches_the_trial_and_frees_the_slot():
    async def check():
        clock = ManualClock()
        provider = SimulatedProvider(clock, create_s=0, failing_creations=frozenset("a"))
        controller, journal = _controller(provider, clock, cap=1)
        with pytest.raises(RuntimeError, match="no machine"):
            async with controller.lease(_SPEC, key="a"):
                pass
        async with controller.lease(_SPEC, key="b"):
            pass
        drained = asyncio.create_task(controller.drain())
        await clock.advance(5)
        await drained
        return [(record.event, record.key) for record in journal.records]

    events = asyncio.run(check())
    assert events[:2] == [(Event.INTENT, "a"), (Event.FAILED, "a")]
    assert events[-1] == (Event.DELETED, "b")


@pytest.mark.parametrize(("failures", "recovers"), [(5, True), (6, False)])
def test_deletions_are_repeated_and_given_up_loudly(failures, recovers):
    async def check():
        clock = ManualClock()
        provider = SimulatedProvider(clock, failing_deletions={"a": failures})
        controller, _ = _controller(provider, clock, cap=1)

        async def hold():
            async with controller.lease(_SPEC, key="a"):
                pass

        task = asyncio.create_task(hold())
        await clock.advance(100)
        await task
        counts = controller.statistics()
        assert (counts.deleting, counts.deleted_total) == ((0, 1) if recovers else (1, 0))
        if recovers:
            await controller.drain()
        else:
            with pytest.raises(ReclaimError, match="a"):
                await controller.drain()

    asyncio.run(check())


def _with_a_full_disk(refused, provider):
    """Leases once; returns what the lease and the drain raised, and the counts."""

    async def check():
        controller, _ = _controller(provider, provider.clock, 1, journal=FullDisk(*refused))

        async def hold():
            async with controller.lease(_SPEC, key="a"):
                assert provider.existing == {"a"}

        async def raised(work):
            task = asyncio.create_task(work)
            await provider.clock.advance(100)
            await asyncio.wait([task])
            return task.exception()

        errors = await raised(hold()), await raised(controller.drain())
        counts = controller.statistics()
        assert (counts.creating, counts.alive, counts.deleting) == (0, 0, 0)
        assert not controller._slots.locked(), "the slot is free again"
        return *errors, counts

    return asyncio.run(check())


@pytest.mark.parametrize(
    ("refused", "of_lease", "of_drain", "created"),
    [
        ([Event.INTENT], "INTENT", None, 0),
        ([Event.INTENT, Event.FAILED], "INTENT", "FAILED", 0),
        ([Event.CREATED], "CREATED", None, 1),
        ([Event.CREATED, Event.DELETING], "CREATED", "DELETING", 1),
        ([Event.DELETING], None, "DELETING", 1),
        ([Event.DELETED], None, "DELETED", 1),
        ([Event.DELETING, Event.DELETED], None, "DELETING", 1),
    ],
)
def test_a_journal_that_cannot_write_leaks_nothing_and_says_so(
    refused, of_lease, of_drain, created
):
    provider = SimulatedProvider(ManualClock())
    *errors, counts = _with_a_full_disk(refused, provider)

    for error, event in zip(errors, (of_lease, of_drain), strict=True):
        assert str(error) == (f"[Errno 28] no space for {event}" if event else "None")
    assert provider.existing == set()
    assert (counts.created_total, counts.deleted_total) == (created, created)


def test_a_failed_creation_is_not_hidden_by_a_journal_that_cannot_write():
    provider = SimulatedProvider(ManualClock(), failing_creations=frozenset("a"))
    of_lease, of_drain, counts = _with_a_full_disk([Event.FAILED], provider)

    assert str(of_lease) == "no machine"
    assert str(of_drain) == "[Errno 28] no space for FAILED"
    assert counts.failed_total == 1


def test_a_failed_deletion_is_not_hidden_by_a_journal_that_cannot_write():
    async def check():
        provider = SimulatedProvider(ManualClock(), failing_deletions={"a": 6})
        journal = FullDisk(Event.DELETING)
        controller, _ = _controller(provider, provider.clock, 1, journal=journal)

        async def hold():
            async with controller.lease(_SPEC, key="a"):
                pass

        task = asyncio.create_task(hold())
        await provider.clock.advance(100)
        await task
        with pytest.raises(ReclaimError) as caught:
            await controller.drain()
        return caught.value.__cause__

    assert str(asyncio.run(check())) == "[Errno 28] no space for DELETING"


def test_the_error_of_a_trial_passes_through_and_its_sandbox_goes():
    async def check():
        clock = ManualClock()
        provider = SimulatedProvider(clock, create_s=0, delete_s=0)
        controller, _ = _controller(provider, clock, cap=1)
        with pytest.raises(KeyError):
            async with controller.lease(_SPEC, key="a"):
                raise KeyError("trial")
        await controller.drain()
        return provider.existing

    assert asyncio.run(check()) == set()


def test_a_cap_of_nothing_is_refused():
    with pytest.raises(SpecError, match="max_sandboxes"):
        _controller(SimulatedProvider(ManualClock()), ManualClock(), cap=0)


def test_real_sandboxes_under_random_cancellation_are_all_gone_after_drain(runner, provider):
    async def check():
        generator = random.Random(7)
        clock = MonotonicClock()
        controller, journal = _controller(provider, clock, cap=4)

        async def trial(number):
            async with controller.lease(_SPEC, key=f"lease{number}") as sandbox:
                await sandbox.exec("sleep 0.02")

        tasks = [asyncio.create_task(trial(number)) for number in range(16)]
        for task in generator.sample(tasks, 8):
            await asyncio.sleep(generator.random() * 0.02)
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await controller.drain()
        return controller.statistics(), journal, await provider.find()

    counts, journal, left = runner.run(check())
    assert left == []
    assert counts.created_total == counts.deleted_total >= 8
    assert {record.event for record in journal.records} <= set(Event) - {Event.FAILED}
