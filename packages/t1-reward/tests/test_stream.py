from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_reward import Stream


def test_the_words_are_fixed_for_good():
    stream = Stream("t1-reward", 1)
    assert [stream.word() for _ in range(9)][::8] == [10999432649822263910, 3732019939093718048]


@given(st.text(), st.integers())
def test_equal_keys_give_equal_draws(purpose, seed):
    one, two = Stream(purpose, seed), Stream(purpose, seed)
    assert [one.word() for _ in range(20)] == [two.word() for _ in range(20)]
    assert 0 <= one.random() < 1


@given(st.integers(), st.lists(st.integers(), max_size=60))
def test_a_permutation_loses_nothing(seed, items):
    assert Counter(Stream(seed).permutation(items)) == Counter(items)


@given(st.integers(), st.integers(1, 1 << 64))
def test_a_draw_stays_below_its_bound(seed, bound):
    assert 0 <= Stream(seed).below(bound) < bound


def test_draws_are_uniform():
    stream = Stream("uniform")
    counts = Counter(stream.below(6) for _ in range(60_000))
    assert all(abs(counts[face] - 10_000) < 400 for face in range(6))
    weighted = Counter(stream.weighted((1, 0, 3)) for _ in range(40_000))
    assert abs(weighted[0] - 10_000) < 400
    assert weighted[1] == 0


def test_a_bound_without_values_is_refused():
    with pytest.raises(ValueError, match=r"bound: expected 1 \.\. 2\*\*64, got 0"):
        Stream().below(0)
