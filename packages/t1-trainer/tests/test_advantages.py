"""Advantages against the definition, summed term by term over trainable tokens."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from t1_trainer.ppo import terminal_returns_and_advantages

decays = st.floats(0.05, 1.0)
# one trajectory: whether each position is trained, at least one of them
masks = st.lists(st.booleans(), min_size=1, max_size=12).map(lambda m: [*m, True, False])


def by_definition(values: list[float], reward: float, gamma: float, lam: float) -> list[float]:
    """A_j = sum_k (gamma lambda)^(k-j) delta_k over the trainable tokens of one trajectory."""
    count = len(values)
    delta = [
        (reward if k == count - 1 else 0.0)
        + gamma * (values[k + 1] if k + 1 < count else 0.0)
        - values[k]
        for k in range(count)
    ]
    return [sum((gamma * lam) ** (k - j) * delta[k] for k in range(j, count)) for j in range(count)]


def advantages(values: list[float], reward: float, gamma: float, lam: float) -> torch.Tensor:
    return terminal_returns_and_advantages(
        torch.tensor(values, dtype=torch.float64),
        torch.tensor([len(values)]),
        torch.tensor([reward], dtype=torch.float64),
        gamma=gamma,
        lam=lam,
    )[1]


def walking_over_observations(
    values: list[float], mask: list[bool], reward: float, gamma: float, lam: float
) -> torch.Tensor:
    """The defect: every position decays, trained or not; the reward sits on the last position."""
    ahead = next_value = 0.0
    out = []
    for j in reversed(range(len(values))):
        gained = reward if j == len(values) - 1 else 0.0
        ahead = gained + gamma * next_value - values[j] + gamma * lam * ahead
        next_value = values[j]
        out.append(ahead)
    return torch.tensor([a for a, m in zip(reversed(out), mask, strict=True) if m])


@given(
    st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=8), min_size=1, max_size=4),
    st.lists(st.floats(0, 2), min_size=4, max_size=4),
    decays,
    decays,
)
def test_a_packed_batch_equals_the_definition_per_trajectory(trajectories, rewards, gamma, lam):
    rewards = rewards[: len(trajectories)]
    values_M = torch.tensor([v for t in trajectories for v in t], dtype=torch.float64)
    returns_M, advantages_M = terminal_returns_and_advantages(
        values_M,
        torch.tensor([len(t) for t in trajectories]),
        torch.tensor(rewards, dtype=torch.float64),
        gamma=gamma,
        lam=lam,
    )
    expected = [
        a
        for values, reward in zip(trajectories, rewards, strict=True)
        for a in by_definition(values, reward, gamma, lam)
    ]
    assert torch.allclose(advantages_M, torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(returns_M, advantages_M + values_M)


@given(st.lists(st.floats(-2, 2), min_size=1, max_size=10), st.floats(0, 2))
def test_without_decay_the_return_is_the_reward_everywhere(values, reward):
    values_M = torch.tensor(values)
    returns_M, advantages_M = terminal_returns_and_advantages(
        values_M, torch.tensor([len(values)]), torch.tensor([reward]), gamma=1.0, lam=1.0
    )
    assert torch.equal(returns_M, torch.full_like(values_M, reward))
    assert torch.equal(advantages_M, returns_M - values_M)
    expected = torch.tensor(by_definition(values, reward, 1.0, 1.0))
    assert torch.allclose(advantages_M, expected, atol=1e-5)


def test_the_last_trainable_token_gets_the_whole_reward_at_any_discount():
    # mask [1, 1, 0]: the observation behind the last trained token takes nothing away
    assert advantages([0.0, 0.0], 0.7, gamma=0.5, lam=1.0).tolist() == [0.35, 0.7]


def test_two_turns_are_one_trajectory():
    # mask [1, 1, 0, 0, 1, 1]: credit reaches the first turn across the observation
    first = advantages([0.0] * 4, 1.0, gamma=1.0, lam=0.9)[0]
    assert torch.isclose(first, torch.tensor(0.9**3, dtype=torch.float64))


@given(masks, st.floats(0.1, 1.5), st.floats(0.1, 0.9))
def test_decay_over_observations_gives_other_advantages(mask, reward, gamma):
    values = [0.25] * len(mask)
    trained = [v for v, m in zip(values, mask, strict=True) if m]
    right = advantages(trained, reward, gamma, 0.95)
    wrong = walking_over_observations(values, mask, reward, gamma, 0.95)
    assert not torch.allclose(right, wrong.double(), atol=1e-6)


def test_advantages_are_neither_whitened_nor_grouped():
    returns_M, advantages_M = terminal_returns_and_advantages(
        torch.zeros(4), torch.tensor([2, 2]), torch.tensor([1.0, 3.0]), gamma=1.0, lam=1.0
    )
    assert returns_M.tolist() == advantages_M.tolist() == [1.0, 1.0, 3.0, 3.0]
