"""Pacing: the bound holds in every window, order is kept, cancelled waiters cost nothing."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_sandbox import ManualClock, SpecError, TokenBucket

_rates = st.floats(0.1, 50, allow_nan=False)
_steps = st.lists(
    st.tuples(st.floats(0, 3), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=12
)


def _most_over_bound(times, rate, burst):
    """The most that any window (s, t] holds beyond rate * (t - s) + burst."""
    worst = 0.0
    for first in range(len(times)):
        for last in range(first, len(times)):
            # the window may open just before the first acquisition
            bound = rate * (times[last] - times[first]) + burst
            worst = max(worst, last - first + 1 - bound)
    return worst


async def _drive(bucket, clock, steps):
    """Applies (advance, starts, cancellations) steps; returns times and the served and cancelled."""
    times, served, tasks = [], [], []

    async def one(number):
        await bucket.acquire()
        times.append(clock.monotonic())
        served.append(number)

    for advance, starts, cancellations in steps:
        for _ in range(starts):
            tasks.append(asyncio.create_task(one(len(tasks))))
        await asyncio.sleep(0)
        pending = [task for task in tasks if not task.done()]
        for task in pending[:cancellations]:
            task.cancel()
        await clock.advance(advance)
    await clock.advance(1000)
    cancelled = [number for number, task in enumerate(tasks) if task.cancelled()]
    assert all(task.done() for task in tasks)
    return times, served, cancelled


@given(rate=_rates, burst=st.integers(1, 5), steps=_steps)
def test_no_window_holds_more_than_rate_times_length_plus_burst(rate, burst, steps):
    async def check():
        clock = ManualClock()
        times, served, cancelled = await _drive(TokenBucket(rate, burst, clock), clock, steps)
        assert _most_over_bound(times, rate, burst) <= 1e-6
        assert served == sorted(served), "first come, first served"
        assert sorted(served + cancelled) == list(range(sum(starts for _, starts, _ in steps)))

    asyncio.run(check())


def test_the_check_fires_on_a_bucket_that_refills_too_fast():
    async def check():
        clock = ManualClock()
        bucket = TokenBucket(2.0, 2, clock)
        bucket._rate *= 1.5
        times, _, _ = await _drive(bucket, clock, [(5.0, 12, 0)])
        return _most_over_bound(times, 2.0, 2)

    assert asyncio.run(check()) > 1


def test_the_rate_is_used_in_full():
    async def check():
        clock = ManualClock()
        times, _, _ = await _drive(TokenBucket(6.0, 1, clock), clock, [(0.0, 61, 0)])
        return times[-1]

    assert asyncio.run(check()) == pytest.approx(10.0)


def test_a_cancelled_waiter_gives_its_place_to_the_next():
    async def check():
        clock = ManualClock()
        bucket = TokenBucket(1.0, 1, clock)
        await bucket.acquire()
        first, second = (asyncio.create_task(bucket.acquire()) for _ in range(2))
        await clock.advance(0.5)
        first.cancel()
        await clock.advance(0.5)
        return second.done()

    assert asyncio.run(check())


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_a_bucket_that_never_fills_is_refused(rate, burst):
    with pytest.raises(SpecError, match="rate_per_s"):
        TokenBucket(rate, burst, ManualClock())
