"""Returns and advantages of trajectories rewarded once, on their last trainable token.

Generalised advantage estimation runs over trainable tokens only: observations neither decay nor
bootstrap. With gamma = lambda = 1 (the paper's setting) it telescopes to A_j = r - V_j, R_j = r.
Advantages are not whitened and have no group baseline.

Axes: M trainable tokens of all trajectories, packed; B trajectories.
"""

import torch
from torch import Tensor

__all__ = ["terminal_returns_and_advantages"]


def terminal_returns_and_advantages(
    values_M: Tensor, counts_B: Tensor, rewards_B: Tensor, *, gamma: float, lam: float
) -> tuple[Tensor, Tensor]:
    """Returns [M] and advantages [M] (the paper's equation 16).

    Args:
        values_M: float32, pre-update state values V(s_j) at trainable tokens, detached.
        counts_B: int64, trainable tokens per trajectory, all positive, sum M.
        rewards_B: float32, one reward per trajectory, placed on its last trainable token.
        gamma: discount per trainable token.
        lam: the estimator's lambda.

    Returns:
        returns (advantage + value) and advantages.
    """
    if gamma == 1.0 and lam == 1.0:
        returns_M = torch.repeat_interleave(rewards_B, counts_B)
        return returns_M, returns_M - values_M
    parts: list[Tensor] = []
    for values, reward in zip(values_M.split(counts_B.tolist()), rewards_B, strict=True):
        parts.append(_scan(values, reward, gamma, lam))
    advantages_M = torch.cat(parts)
    return advantages_M + values_M, advantages_M


def _scan(values: Tensor, reward: Tensor, gamma: float, lam: float) -> Tensor:
    """Generalised advantage estimation of one trajectory, right to left."""
    advantages = torch.zeros_like(values)
    ahead = torch.zeros_like(reward)
    next_value = torch.zeros_like(reward)
    for j in range(len(values) - 1, -1, -1):
        gained = reward if j == len(values) - 1 else torch.zeros_like(reward)
        delta = gained + gamma * next_value - values[j]
        ahead = delta + gamma * lam * ahead
        advantages[j] = ahead
        next_value = values[j]
    return advantages
