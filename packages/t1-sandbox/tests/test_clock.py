"""Virtual and real time, and deadlines with names."""

import asyncio
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_sandbox import DeadlineExceeded, Deadlines, ManualClock, MonotonicClock, SpecError


def test_time_does_not_go_back():
    clock = ManualClock()
    with pytest.raises(SpecError, match="seconds=-1"):
        asyncio.run(clock.advance(-1))
    assert clock.monotonic() == 0


@given(naps=st.lists(st.floats(0, 10), max_size=10), steps=st.lists(st.floats(0, 5), max_size=10))
def test_sleepers_wake_in_the_order_of_their_times_and_at_them(naps, steps):
    async def check():
        clock, woken = ManualClock(), []

        async def sleeper(seconds):
            await clock.sleep(seconds)
            woken.append((seconds, clock.monotonic()))

        tasks = [asyncio.create_task(sleeper(nap)) for nap in naps]
        for step in steps:
            await clock.advance(step)
        await clock.advance(11)
        assert all(task.done() for task in tasks)
        assert [when for _, when in woken] == sorted(naps)
        assert all(seconds == when for seconds, when in woken)

    asyncio.run(check())


def test_a_cancelled_sleeper_does_not_disturb_the_others():
    async def check():
        clock = ManualClock()
        first, second = (asyncio.create_task(clock.sleep(1)) for _ in range(2))
        await clock.advance(0.5)
        first.cancel()
        await clock.advance(0.5)
        return first.cancelled(), second.done()

    assert asyncio.run(check()) == (True, True)


def test_the_monotonic_clock_is_real():
    async def check():
        clock = MonotonicClock()
        before = clock.monotonic()
        await clock.sleep(0.01)
        return clock.monotonic() - before

    assert asyncio.run(check()) >= 0.01


def test_an_exceeded_deadline_names_its_layer():
    async def check():
        async with Deadlines(agent_s=5, verifier_s=0.01).layer("verifier"):
            await asyncio.sleep(60)

    with pytest.raises(DeadlineExceeded, match=r"'verifier' exceeded its deadline of 0.01 s"):
        asyncio.run(check())


def test_of_nested_layers_the_one_that_ran_out_is_named():
    async def check(agent_s, control_s):
        deadlines = Deadlines(agent_s=agent_s, control_s=control_s)
        async with deadlines.layer("agent"), deadlines.layer("control"):
            await asyncio.sleep(60)

    for limits, layer in (((0.01, 60), "agent"), ((60, 0.01), "control")):
        with pytest.raises(DeadlineExceeded) as caught:
            asyncio.run(check(*limits))
        assert caught.value.layer == layer


def test_other_timeouts_pass_through():
    async def check():
        async with Deadlines().layer("agent"):
            raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="something else") as caught:
        asyncio.run(check())
    assert not isinstance(caught.value, DeadlineExceeded)


def test_the_error_survives_pickling():
    error = pickle.loads(pickle.dumps(DeadlineExceeded("agent", 3.0)))

    assert (error.layer, error.limit_s) == ("agent", 3.0)


def test_a_deadline_of_nothing_is_refused():
    with pytest.raises(SpecError, match="agent_s"):
        Deadlines(agent_s=0)
