"""First N: order, accounting and determinism, with losers that do not want to end."""

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from t1_sandbox import ManualClock, SpecError, collect_first

_durations = st.lists(st.integers(1, 40), min_size=1, max_size=8)


async def _collect(clock, trials, target, **options):
    collecting = asyncio.create_task(collect_first(trials, target, **options))
    while not collecting.done():
        await clock.advance(1)
    return await collecting


def _trial(clock, duration, outcome=None):
    async def run():
        await clock.sleep(duration)
        if isinstance(outcome, Exception):
            raise outcome
        return duration if outcome is None else outcome

    return run


def _accounted(collected):
    admitted = [key for key, _ in collected.admitted]
    failed = [key for key, _ in collected.failed]
    return sorted([*admitted, *collected.cancelled, *failed])


@given(durations=_durations, failing=st.sets(st.integers(0, 7)), target=st.integers(1, 9))
def test_the_first_to_arrive_are_admitted_in_order_and_all_are_accounted_for(
    durations, failing, target
):
    async def check():
        clock = ManualClock()
        errors = {number: OSError(str(number)) for number in failing}
        trials = [
            (str(number), _trial(clock, duration, errors.get(number)))
            for number, duration in enumerate(durations)
        ]
        collected = await _collect(clock, trials, target)
        good = sorted(
            (duration, number) for number, duration in enumerate(durations) if number not in failing
        )
        assert [result for _, result in collected.admitted] == [d for d, _ in good[:target]]
        assert collected.short == (len(good) < target)
        assert _accounted(collected) == sorted(key for key, _ in trials)
        assert collected.lingering == ()

    asyncio.run(check())


async def _collect_logically(durations, logical, target, frontier):
    clock = ManualClock()

    def trial(number):
        async def run():
            for _ in range(durations[number]):
                await asyncio.sleep(0)
            return logical[number]

        return run()

    trials = [(str(number), trial(number)) for number in range(6)]
    return await _collect(
        clock,
        trials,
        target,
        order="logical",
        completion_key=lambda result: result,
        frontier=frontier,
    )


# in rounds of the event loop: trials end at the same moment, or just before the other is noticed
durations = st.lists(st.integers(0, 5), min_size=6, max_size=6)
places = st.lists(st.integers(0, 3), min_size=6, max_size=6)


@given(durations=durations, logical=places, target=st.integers(1, 6), tell=st.booleans())
# the fourth has ended when the others are taken in, but has not been taken in itself
@example(durations=[0, 0, 0, 1, 0, 0], logical=[0] * 6, target=4, tell=True)
def test_logical_order_does_not_depend_on_timing(durations, logical, target, tell):
    def least(running):
        return min(logical[int(key)] for key in running)

    collected = asyncio.run(_collect_logically(durations, logical, target, least if tell else None))
    expected = sorted((place, str(number)) for number, place in enumerate(logical))
    assert [(result, key) for key, result in collected.admitted] == expected[:target]
    assert _accounted(collected) == [str(number) for number in range(6)]


def test_the_order_check_fires_on_a_frontier_that_lies():
    async def check():
        clock = ManualClock()
        trials = [("slow", _trial(clock, 9, outcome=0)), ("quick", _trial(clock, 1, outcome=5))]
        collected = await _collect(
            clock, trials, 1, order="logical", completion_key=int, frontier=lambda running: 100
        )
        return [key for key, _ in collected.admitted]

    assert asyncio.run(check()) == ["quick"], 'an honest frontier gives "slow"'


def test_with_a_frontier_the_slow_are_not_waited_for():
    async def check():
        clock = ManualClock()
        trials = [("quick", _trial(clock, 1, outcome=0)), ("slow", _trial(clock, 1000, outcome=7))]
        await _collect(
            clock, trials, 1, order="logical", completion_key=int, frontier=lambda running: 7
        )
        return clock.monotonic()

    assert asyncio.run(check()) < 10


def test_losers_that_ignore_cancellation_delay_by_a_bounded_time_and_are_named():
    async def check():
        release = asyncio.Event()

        async def stubborn():
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        async def quick():
            return 1

        trials = [("stubborn", stubborn), ("quick", quick)]
        async with asyncio.timeout(5):
            collected = await collect_first(trials, 1, loser_limit_s=0.05)
        release.set()
        await asyncio.sleep(0)
        return collected

    collected = asyncio.run(check())
    assert collected.admitted == (("quick", 1),)
    assert collected.cancelled == collected.lingering == ("stubborn",)


def test_an_error_while_being_cancelled_is_reported():
    async def check():
        async def clumsy():
            try:
                await asyncio.sleep(60)
            finally:
                raise OSError("while cleaning up")

        async def quick():
            return 1

        return await collect_first([("clumsy", clumsy), ("quick", quick)], 1)

    ((key, error),) = asyncio.run(check()).failed
    assert (key, str(error)) == ("clumsy", "while cleaning up")


def test_cancelling_the_collection_cancels_every_trial():
    async def check():
        ended = []

        async def trial():
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        collecting = asyncio.create_task(collect_first([(str(n), trial) for n in range(3)], 2))
        await asyncio.sleep(0.01)
        collecting.cancel()
        await asyncio.wait([collecting])
        return collecting.cancelled(), len(ended)

    assert asyncio.run(check()) == (True, 3)


@pytest.mark.parametrize(
    ("keys", "target", "order", "message"),
    [
        ("ab", 0, "arrival", "target"),
        ("aa", 1, "arrival", "keys"),
        ("a", 1, "logical", "completion_key"),
    ],
)
def test_arguments_that_cannot_work_are_refused_and_the_coroutines_closed(
    keys, target, order, message
):
    async def trial():
        return 1

    async def check():
        await collect_first([(key, trial()) for key in keys], target, order=order)

    with pytest.raises(SpecError, match=message):
        asyncio.run(check())
