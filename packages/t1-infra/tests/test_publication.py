import asyncio
import gc
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_infra import (
    ArgumentError,
    ManualClock,
    MonotonicClock,
    Phase,
    PublishError,
    publish,
    weights_digest,
)
from t1_infra.testing import Fault, InMemoryReplica

WEIGHTS = {"layer": np.arange(6, dtype=np.float32)}
PREPARING = (Phase.QUIESCE, Phase.LOAD, Phase.VERIFY)
DEADLINES = {"deadline_s": 20.0, "load_deadline_s": 50.0}
IN_A_THREAD = asyncio.to_thread


@pytest.fixture(autouse=True, scope="module")
def _no_threads():
    """Virtual time does not wait for a thread, so what would run in one runs at once."""

    async def inline(function, *arguments):
        return function(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("t1_infra.publication.asyncio.to_thread", inline)
        yield


async def until_done(clock, task):
    """Let virtual time pass until a task ends; its exception is the caller's to look at."""
    for _ in range(10_000):
        if task.done():
            return
        await clock.advance(1.0)
    raise AssertionError("the task never ends")


async def published(clock, replicas, weights=WEIGHTS, version=1):
    """The report, or the PublishError, of one publication."""
    task = asyncio.create_task(publish(replicas, weights, version, clock=clock, **DEADLINES))
    await until_done(clock, task)
    error = task.exception()
    if error is not None and not isinstance(error, PublishError):
        raise error
    return error or task.result()


def outcome(faults, others=2):
    """One faulty replica among healthy ones: the result, and the replicas after it."""

    async def scenario():
        clock = ManualClock()
        healthy = [InMemoryReplica(f"healthy-{i}", 0, clock) for i in range(others)]
        replicas = [InMemoryReplica("faulty", 0, clock, faults), *healthy]
        return await published(clock, replicas), replicas

    return asyncio.run(scenario())


def test_without_faults_every_replica_serves_the_new_version():
    report, replicas = outcome({})
    assert report.version == 1
    assert report.digest == weights_digest(WEIGHTS)
    assert report.replicas == ("faulty", "healthy-0", "healthy-1")
    assert list(report.seconds) == [*PREPARING, Phase.COMMIT, Phase.RESUME]
    assert all(replica.admits and replica.version == 1 for replica in replicas)


def test_it_publishes_in_real_time_and_hashes_off_the_event_loop(monkeypatch):
    threads = []

    def digest(weights):
        threads.append(threading.get_ident())
        return weights_digest(weights)

    async def scenario():
        replica = InMemoryReplica("only", 3, MonotonicClock())
        return await publish([replica], b"weights", 4)

    monkeypatch.setattr("t1_infra.publication.asyncio.to_thread", IN_A_THREAD)
    monkeypatch.setattr("t1_infra.publication.weights_digest", digest)
    assert asyncio.run(scenario()).version == 4
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("phase", PREPARING)
def test_a_failure_before_the_commit_leaves_all_serving_the_old_version(phase):
    error, replicas = outcome({phase: Fault.RAISE})
    assert (error.replica, error.phase, error.committed) == ("faulty", phase, False)
    assert "ConnectionError: planted" in str(error)
    assert error.fenced == ()
    assert all(replica.admits and replica.version == 0 for replica in replicas)


@pytest.mark.parametrize("phase", PREPARING)
def test_a_replica_that_hangs_before_the_commit_is_fenced_and_the_others_keep_the_old(phase):
    error, replicas = outcome({phase: Fault.HANG})
    assert (error.replica, error.phase) == ("faulty", phase)
    assert error.fenced == ("faulty",)
    assert error.serving == ("healthy-0", "healthy-1")
    limit = DEADLINES["load_deadline_s"] if phase is Phase.LOAD else DEADLINES["deadline_s"]
    assert f"no answer within {limit:g} s" in str(error)
    assert all(replica.admits and replica.version == 0 for replica in replicas[1:])


class StubbornReplica(InMemoryReplica):
    """Does not end when its loading is cancelled."""

    async def load(self, bundle):
        never = asyncio.get_running_loop().create_future()
        try:
            await asyncio.shield(never)
        except asyncio.CancelledError:
            await never


def test_a_call_that_does_not_react_to_being_cancelled_holds_nothing_up():
    async def scenario():
        clock = ManualClock()
        error = await published(clock, [StubbornReplica("stubborn", 0, clock)])
        assert (error.phase, error.fenced) == (Phase.LOAD, ("stubborn",))
        assert clock.monotonic() <= DEADLINES["load_deadline_s"] + 2

    asyncio.run(scenario())


class SlowReplica(InMemoryReplica):
    """Takes three seconds to load."""

    async def load(self, bundle):
        await self._clock.sleep(3.0)
        await super().load(bundle)


def test_a_publication_times_its_phases_and_leaves_no_task_behind():
    async def scenario():
        clock = ManualClock()
        report = await published(clock, [SlowReplica("slow", 0, clock)])
        assert report.seconds[Phase.LOAD] == 3.0
        assert report.seconds[Phase.COMMIT] == 0.0
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


class GrumblingReplica(InMemoryReplica):
    """Fails when its loading is cancelled."""

    async def load(self, bundle):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError as error:
            raise ConnectionError("closed while loading") from error


def test_a_call_that_fails_after_its_deadline_is_not_reported_a_second_time():
    async def scenario():
        reported = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: reported.append(context)
        )
        clock = ManualClock()
        error = await published(clock, [GrumblingReplica("grumbling", 0, clock)])
        assert (error.phase, error.fenced) == (Phase.LOAD, ("grumbling",))
        await asyncio.sleep(0)
        gc.collect()
        assert reported == []

    asyncio.run(scenario())


class SelfCancellingReplica(InMemoryReplica):
    """Is cancelled from inside while it loads."""

    async def load(self, bundle):
        raise asyncio.CancelledError


def test_a_call_that_is_cancelled_from_inside_is_a_failure_of_that_replica():
    async def scenario():
        clock = ManualClock()
        replicas = [
            SelfCancellingReplica("cancelled", 0, clock),
            InMemoryReplica("healthy", 0, clock),
        ]
        error = await published(clock, replicas)
        assert (error.replica, error.phase, error.fenced) == ("cancelled", Phase.LOAD, ())
        assert "CancelledError: the call was cancelled from inside" in error.problem
        assert all(replica.admits and replica.version == 0 for replica in replicas)

    asyncio.run(scenario())


def test_weights_that_arrive_damaged_are_never_served():
    error, replicas = outcome({Phase.LOAD: Fault.CORRUPT})
    assert (error.replica, error.phase) == ("faulty", Phase.VERIFY)
    assert "instead of" in error.problem
    assert all(replica.version == 0 for replica in replicas)


@pytest.mark.parametrize("phase", [Phase.COMMIT, Phase.RESUME])
@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.HANG])
def test_a_failure_after_the_commit_fences_that_replica_and_the_others_go_on(phase, fault):
    error, replicas = outcome({phase: fault})
    assert (error.replica, error.phase, error.committed) == ("faulty", phase, True)
    assert error.fenced == ("faulty",)
    assert not replicas[0].admits
    assert all(replica.admits and replica.version == 1 for replica in replicas[1:])
    assert "serving at version 1: healthy-0, healthy-1" in str(error)


def test_a_commit_that_did_not_take_the_version_over_is_found():
    error, _ = outcome({Phase.COMMIT: Fault.CORRUPT})
    assert (error.replica, error.phase) == ("faulty", Phase.COMMIT)
    assert "serves version 0 after the commit" in error.problem


@pytest.mark.parametrize("fault", [Fault.RAISE, Fault.HANG])
def test_a_replica_that_cannot_roll_back_is_fenced(fault):
    error, replicas = outcome({Phase.LOAD: Fault.RAISE, Phase.ABORT: fault})
    assert (error.phase, error.fenced) == (Phase.LOAD, ("faulty",))
    assert all(replica.admits and replica.version == 0 for replica in replicas[1:])


async def traffic(clock, replicas, steps):
    """Start a request on every admitting replica again and again, for `steps` seconds."""
    running = set()
    for second in range(steps):
        for replica in replicas:
            running.add(asyncio.create_task(replica.request(1 + second % 3)))
        await clock.sleep(1.0)
    await asyncio.gather(*running)


def requests_around_a_publication(faults_of_each):
    """Publish under traffic; the result and the replicas, once all traffic has ended."""

    async def scenario():
        clock = ManualClock()
        replicas = [
            InMemoryReplica(f"replica-{i}", 0, clock, faults)
            for i, faults in enumerate(faults_of_each)
        ]
        load = asyncio.create_task(traffic(clock, replicas, steps=12))
        await clock.advance(2.5)
        result = await published(clock, replicas)
        await until_done(clock, load)
        return result, replicas

    return asyncio.run(scenario())


PLANTED = st.dictionaries(
    st.sampled_from(Phase), st.sampled_from([Fault.RAISE, Fault.HANG, Fault.CORRUPT])
)


@given(st.lists(PLANTED, min_size=1, max_size=3))
def test_whatever_fails_no_request_is_served_at_two_versions(faults_of_each):
    result, replicas = requests_around_a_publication(faults_of_each)
    for replica in replicas:
        assert replica.requests
        assert all(len(set(versions)) <= 1 for versions in replica.requests)
    fenced = result.fenced if isinstance(result, PublishError) else ()
    serving = [replica for replica in replicas if replica.name not in fenced]
    assert len({replica.version for replica in serving}) <= 1
    assert all(replica.admits for replica in serving)


def test_a_replica_that_does_not_drain_is_seen_by_that_check():
    _, (replica,) = requests_around_a_publication([{Phase.QUIESCE: Fault.NO_DRAIN}])
    assert any(set(versions) == {0, 1} for versions in replica.requests)


def cancelled_at(*phases, times=1):
    """Cancel a publication that hangs in phases, during the first; the replicas, and the notes."""
    phase = phases[0]

    async def scenario():
        clock = ManualClock()
        replicas = [
            InMemoryReplica("slow", 0, clock, dict.fromkeys(phases, Fault.HANG)),
            InMemoryReplica("healthy", 0, clock),
        ]
        task = asyncio.create_task(publish(replicas, WEIGHTS, 1, clock=clock, **DEADLINES))
        while replicas[1].admits or (phase is Phase.COMMIT and replicas[1].version == 0):
            await clock.advance(0.5)
        for _ in range(times):
            task.cancel()
            await clock.advance(0.5)
        assert task.done() is (phases == (Phase.LOAD,))
        await until_done(clock, task)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        return replicas, getattr(caught.value, "__notes__", [])

    return asyncio.run(scenario())


def test_cancelling_before_the_commit_returns_the_replicas_to_service():
    replicas, notes = cancelled_at(Phase.LOAD)
    assert all(replica.admits and replica.version == 0 for replica in replicas)
    assert notes == []


@pytest.mark.parametrize("times", [1, 2, 5])
def test_cancelling_during_the_commit_finishes_it_and_names_who_is_fenced(times):
    (slow, healthy), notes = cancelled_at(Phase.COMMIT, times=times)
    assert healthy.admits
    assert healthy.version == 1
    assert not slow.admits
    (note,) = notes
    assert "slow failed in commit" in note
    assert "serving at version 1: healthy; fenced: slow" in note


@pytest.mark.parametrize("times", [1, 2, 5])
def test_cancelling_again_while_it_rolls_back_does_not_stop_that(times):
    (slow, healthy), notes = cancelled_at(Phase.LOAD, Phase.ABORT, times=times)
    assert healthy.admits
    assert healthy.version == 0
    assert not slow.admits
    (note,) = notes
    assert "serving at their old version: healthy; fenced: slow" in note


@pytest.mark.parametrize(
    ("names", "versions", "argument"),
    [
        ([], [], "replicas"),
        (["a", "a"], [0, 0], "replicas"),
        (["a", "b"], [0, 1], "version"),
        (["a"], [2], "version"),
    ],
)
def test_arguments_are_checked_before_any_replica_is_touched(names, versions, argument):
    async def scenario():
        clock = ManualClock()
        replicas = [InMemoryReplica(n, v, clock) for n, v in zip(names, versions, strict=True)]
        with pytest.raises(ArgumentError) as caught:
            await publish(replicas, WEIGHTS, 1, clock=clock)
        assert caught.value.argument == argument
        assert all(replica.admits for replica in replicas)

    asyncio.run(scenario())


def test_errors_survive_pickling():
    error, _ = outcome({Phase.COMMIT: Fault.RAISE})
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
