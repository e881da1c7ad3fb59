"""The clipped losses against their formulas, branch by branch."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from t1_trainer.ppo import clipped_policy_loss, clipped_value_loss

logprobs = st.floats(-5, 0)
numbers = st.floats(-2, 2)


def policy(new: torch.Tensor, old: list[float], advantages: list[float], denominator: float = 1.0):
    return clipped_policy_loss(
        new,
        torch.tensor(old, dtype=torch.float64),
        torch.tensor(advantages, dtype=torch.float64),
        clip_low=0.2,
        clip_high=0.3,
        denominator=denominator,
    )


def value(new: torch.Tensor, old: list[float], returns: list[float], denominator: float = 1.0):
    return clipped_value_loss(
        new,
        torch.tensor(old, dtype=torch.float64),
        torch.tensor(returns, dtype=torch.float64),
        clip=0.2,
        denominator=denominator,
    )


@given(st.lists(st.tuples(logprobs, logprobs, numbers), min_size=1, max_size=8))
def test_the_policy_loss_is_the_pessimistic_minimum(tokens):
    new, old, advantages = (list(column) for column in zip(*tokens, strict=True))
    expected = 0.0
    for n, o, a in tokens:
        ratio = math.exp(n - o)
        expected -= min(ratio * a, min(max(ratio, 0.8), 1.3) * a) / 7
    result = policy(torch.tensor(new, dtype=torch.float64), old, advantages, 7)
    assert float(result.loss) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient", "clipped"),
    [
        (1.0, 1.0, -1.0, 0),
        (1.5, 1.0, 0.0, 1),  # above the upper bound and good: no further
        (1.5, -1.0, 1.5, 0),  # above it and bad: push back with full force
        (0.5, 1.0, -0.5, 0),  # below the lower bound and good: pull up
        (0.5, -1.0, 0.0, 1),  # below it and bad: no further
        (1.25, 1.0, -1.25, 0),  # the two bounds are separate
    ],
)
def test_each_branch_of_the_policy_clip(ratio, advantage, gradient, clipped):
    new = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    result = policy(new, [0.0], [advantage])
    result.loss.backward()
    assert new.grad is not None
    assert float(new.grad) == pytest.approx(gradient)
    assert int(result.clipped) == clipped


@given(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=8))
def test_the_value_loss_is_the_larger_of_both_errors(tokens):
    new, old, returns = (list(column) for column in zip(*tokens, strict=True))
    expected = sum(
        max((n - r) ** 2, (o + min(max(n - o, -0.2), 0.2) - r) ** 2) / 3 for n, o, r in tokens
    )
    loss = value(torch.tensor(new, dtype=torch.float64), old, returns, 3).loss
    assert float(loss) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("new", "target", "gradient", "clipped"),
    [
        (0.1, 1.0, -1.8, 0),  # inside the clip: plain regression, without a factor one half
        (0.5, 1.0, 0.0, 1),  # moved towards the target beyond the clip: held
        (0.5, -1.0, 3.0, 0),  # moved away beyond the clip: pulled back
        (-0.5, 1.0, -3.0, 0),
        (0.5, 0.2, 0.6, 0),  # past the target: pulled back, although it moved towards it
    ],
)
def test_each_branch_of_the_value_clip(new, target, gradient, clipped):
    values = torch.tensor([new], dtype=torch.float64, requires_grad=True)
    result = value(values, [0.0], [target])
    result.loss.backward()
    assert values.grad is not None
    assert float(values.grad) == pytest.approx(gradient)
    assert int(result.clipped) == clipped


def test_the_smaller_error_would_be_another_loss():
    values = torch.tensor([0.5], dtype=torch.float64)
    smaller = min((0.5 - 1.0) ** 2, (0.2 - 1.0) ** 2)
    assert float(value(values, [0.0], [1.0]).loss) != pytest.approx(smaller)


def test_both_losses_divide_by_the_given_denominator_only():
    one = policy(torch.tensor([0.0], dtype=torch.float64), [0.0], [1.0], 10).loss
    two = policy(torch.zeros(2, dtype=torch.float64), [0.0, 0.0], [1.0, 1.0], 10).loss
    assert float(two) == 2 * float(one)
