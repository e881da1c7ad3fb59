import asyncio
import time

import pytest

from t1_infra import ArgumentError, ManualClock, MonotonicClock


async def log_after(clock, seconds, log):
    await clock.sleep(seconds)
    log.append((seconds, clock.monotonic()))


def test_sleepers_wake_in_order_at_exactly_their_time():
    async def scenario():
        clock, log = ManualClock(), []
        tasks = [asyncio.create_task(log_after(clock, due, log)) for due in (3.0, 1.0, 2.0)]
        await clock.advance(2.5)
        assert log == [(1.0, 1.0), (2.0, 2.0)]
        assert clock.monotonic() == 2.5
        await clock.advance(0.5)
        await asyncio.gather(*tasks)
        assert log[-1] == (3.0, 3.0)

    asyncio.run(scenario())


def test_one_advance_covers_sleeps_that_start_during_it():
    async def scenario():
        clock, seen = ManualClock(), []

        async def periodic():
            for _ in range(4):
                await clock.sleep(30.0)
                seen.append(clock.monotonic())

        task = asyncio.create_task(periodic())
        await clock.advance(120.0)
        await task
        assert seen == [30.0, 60.0, 90.0, 120.0]

    asyncio.run(scenario())


def test_a_cancelled_sleeper_is_passed_over():
    async def scenario():
        clock = ManualClock()
        task = asyncio.create_task(clock.sleep(1.0))
        await clock.advance(0.0)
        task.cancel()
        await clock.advance(5.0)
        assert task.cancelled()
        assert clock.monotonic() == 5.0

    asyncio.run(scenario())


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_sleep_of_no_time_needs_no_advance(seconds):
    async def scenario():
        clock = ManualClock()
        await asyncio.wait_for(clock.sleep(seconds), timeout=10)
        assert clock.monotonic() == 0.0

    asyncio.run(scenario())


def test_a_sleep_of_no_time_lets_other_tasks_run():
    async def scenario():
        clock, log = ManualClock(), []
        task = asyncio.create_task(log_after(clock, 0.0, log))
        await clock.sleep(0.0)
        await clock.sleep(0.0)
        assert task.done()

    asyncio.run(scenario())


def test_a_woken_task_may_take_many_turns_of_the_loop_until_it_sleeps_again():
    async def scenario():
        clock, seen = ManualClock(), []

        async def busy():
            for _ in range(3):
                await clock.sleep(1.0)
                for _ in range(45):
                    await asyncio.sleep(0)
                seen.append(clock.monotonic())

        task = asyncio.create_task(busy())
        await clock.advance(3.0)
        assert task.done()
        assert seen == [1.0, 2.0, 3.0]

    asyncio.run(scenario())


def test_time_does_not_go_back():
    with pytest.raises(ArgumentError, match="seconds"):
        asyncio.run(ManualClock().advance(-1.0))


def test_real_time_passes_while_the_monotonic_clock_sleeps():
    clock = MonotonicClock()
    before = time.monotonic()
    asyncio.run(clock.sleep(0.01))
    assert clock.monotonic() - before >= 0.01
