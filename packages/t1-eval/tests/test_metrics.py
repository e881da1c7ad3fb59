"""Rates and differences: against formulas written out, and by simulation."""

import math
import random
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_eval import Interval, ScoresError, mean_with_interval, paired_difference

SCORES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.lists(st.floats(-10, 10), min_size=1, max_size=4),
    min_size=1,
    max_size=8,
)


def naive(means):
    """The interval of a mean of independent values, term by term."""
    count = len(means)
    mean = math.fsum(means) / count
    if count < 2:
        return Interval(mean, math.nan, math.nan, count)
    variance = math.fsum((value - mean) ** 2 for value in means) / (count - 1)
    half = statistics.NormalDist().inv_cdf(0.975) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count)


def assert_same(interval, expected):
    assert interval.tasks == expected.tasks
    for end in ("mean", "low", "high"):
        value, wanted = getattr(interval, end), getattr(expected, end)
        assert value == pytest.approx(wanted, abs=1e-9, nan_ok=True)


@given(SCORES)
def test_the_interval_is_the_formulas_over_task_means(scores):
    means = [math.fsum(attempts) / len(attempts) for attempts in scores.values()]

    assert_same(mean_with_interval(scores), naive(means))


@given(SCORES, st.randoms(use_true_random=False))
def test_the_order_of_tasks_and_attempts_does_not_matter(scores, source):
    tasks = list(scores)
    source.shuffle(tasks)
    shuffled = {task: source.sample(scores[task], len(scores[task])) for task in tasks}

    assert_same(mean_with_interval(shuffled), mean_with_interval(scores))
    assert_same(paired_difference(scores, shuffled), naive([0.0] * len(scores)))


@given(SCORES, st.data())
def test_a_difference_pairs_the_same_tasks(before, data):
    shift = {task: data.draw(st.floats(-5, 5)) for task in before}
    after = {task: [x + shift[task] for x in before[task]] for task in reversed(before)}

    assert_same(paired_difference(before, after), naive(list(shift.values())))


def test_pairing_is_what_makes_a_small_gain_visible():
    before = {f"task-{i}": [float(i)] for i in range(40)}
    after = {
        task: [scores[0] + 0.5 + 0.01 * (i % 2)] for i, (task, scores) in enumerate(before.items())
    }

    paired = paired_difference(before, after)
    assert paired.low > 0.4
    # unpaired, the spread between tasks hides it
    apart = [mean_with_interval(side) for side in (before, after)]
    assert apart[0].high > apart[1].low
    # and pairing by position instead of id would have been found
    wrong = dict(zip(before, reversed(after.values()), strict=True))
    assert paired_difference(before, wrong).low < 0


def coverage(interval_of, *, repetitions=400, tasks=60, attempts=4):
    """Share of simulated evaluations whose interval holds the true mean of 0.5.

    Every task has a solve rate of its own, uniform on [0, 1].
    """
    source = np.random.default_rng(5)
    hits = 0
    for _ in range(repetitions):
        rates = source.random(tasks)
        outcomes = source.random((tasks, attempts)) < rates[:, None]
        found = interval_of({f"task-{i}": row.astype(float) for i, row in enumerate(outcomes)})
        hits += found.low <= 0.5 <= found.high
    return hits / repetitions


def test_about_95_of_100_intervals_hold_the_true_mean():
    # three standard errors of the simulation itself are 0.033
    assert 0.917 <= coverage(mean_with_interval) <= 0.983


def test_attempts_taken_for_independent_are_found_by_coverage():
    def pooled(scores):
        flat = np.concatenate(list(scores.values()))
        return mean_with_interval({str(i): [x] for i, x in enumerate(flat)})

    assert coverage(pooled, repetitions=100) < 0.88


def test_one_task_has_a_mean_and_no_interval():
    alone = mean_with_interval({"a": [0.0, 1.0]})

    assert (alone.mean, alone.tasks) == (0.5, 1)
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ({}, "at least one task"),
        ({"a": [1.0], "b": []}, r"task 'b'.*at least one attempt"),
        ({"a": [1.0, math.nan]}, r"task 'a'.*leave invalid attempts out"),
        ({"a": [math.inf]}, r"task 'a'.*finite"),
    ],
)
def test_scores_without_a_mean_are_refused(scores, message):
    with pytest.raises(ScoresError, match=message):
        mean_with_interval(scores)
    with pytest.raises(ScoresError, match=message):
        paired_difference(scores, scores)


def test_a_difference_of_different_tasks_is_refused():
    tasks = {f"task-{i}": [random.Random(i).random()] for i in range(3)}

    with pytest.raises(ScoresError, match=r"1 tasks are on one side only, first \['task-9'\]"):
        paired_difference(tasks, tasks | {"task-9": [1.0]})
