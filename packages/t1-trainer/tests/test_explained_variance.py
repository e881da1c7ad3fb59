"""Explained variance: its fixed points, and what splitting a batch must not change."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from t1_trainer.ppo import explained_variance

targets = st.lists(st.floats(-2, 2, width=32), min_size=2, max_size=30).filter(
    lambda values: max(values) - min(values) > 1e-3
)


@given(targets, st.floats(-2, 2, width=32))
def test_a_constant_prediction_explains_nothing(returns, constant):
    predicted = torch.full((len(returns),), constant)
    assert explained_variance(torch.tensor(returns), predicted) == pytest.approx(0.0, abs=1e-9)


@given(targets)
def test_a_perfect_prediction_explains_everything(returns):
    assert explained_variance(torch.tensor(returns), torch.tensor(returns)) == 1.0


@given(st.floats(-2, 2, width=32), st.integers(1, 200), st.integers(0, 5))
def test_constant_returns_have_no_explained_variance(constant, count, seed):
    predicted = torch.randn(count, generator=torch.Generator().manual_seed(seed))
    assert math.isnan(explained_variance(torch.full((count,), constant), predicted))


def test_the_target_is_the_first_argument():
    returns, values = torch.tensor([0.0, 1.0, 2.0, 3.0]), torch.tensor([1.0, 1.0, 1.0, 1.5])
    swapped = 1 - float((values - returns).double().var() / values.double().var())
    assert explained_variance(returns, values) > 0
    assert swapped < -10
    assert explained_variance(values, returns) == pytest.approx(swapped)


@given(targets, st.data())
def test_the_order_of_tokens_does_not_matter(returns, data):
    order = data.draw(st.permutations(range(len(returns))))
    returns_M = torch.tensor(returns)
    values_M = returns_M * 0.5 + 0.1
    assert explained_variance(returns_M[order], values_M[order]) == pytest.approx(
        explained_variance(returns_M, values_M)
    )


def test_the_mean_over_parts_is_another_number():
    # per trajectory the return barely varies, so each part's denominator is next to nothing
    source = torch.Generator().manual_seed(0)
    parts = [r + 0.01 * torch.randn(10, generator=source) for r in (0.0, 0.5, 1.0)]
    values = [p + 0.1 * torch.randn(10, generator=source) for p in parts]
    mean = sum(explained_variance(p, v) for p, v in zip(parts, values, strict=True)) / 3
    assert explained_variance(torch.cat(parts), torch.cat(values)) > 0.9
    assert mean < -10
