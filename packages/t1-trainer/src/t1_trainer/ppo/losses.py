"""The two clipped losses, as sums over trainable tokens divided by one given denominator.

The denominator is the mask sum of the whole optimizer step, over all its micro-batches: a micro-batch
divides by the step's sum, not by its own, so the gradient does not depend on how the step was split.

Axis: M trainable tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["ClippedLoss", "clipped_policy_loss", "clipped_value_loss"]


class ClippedLoss(NamedTuple):
    """Loss and the count of tokens whose clipped branch is active."""

    loss: Tensor
    clipped: Tensor


def clipped_policy_loss(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    denominator: float,
) -> ClippedLoss:
    """-sum min(rho A, clip(rho, 1 - clip_low, 1 + clip_high) A) / denominator, rho = exp(new - old).

    The paper's equation 18; tensors are float32.

    Args:
        logprobs_M: log-probs under the weights being trained.
        old_logprobs_M: log-probs under the generating version, recomputed by the trainer.
        advantages_M: advantages, detached.
        clip_low: how far below 1 the ratio may act.
        clip_high: how far above 1 the ratio may act.
        denominator: mask sum of the whole optimizer step.
    """
    ratio_M = (logprobs_M - old_logprobs_M).exp()
    unclipped_M = ratio_M * advantages_M
    clipped_M = ratio_M.clamp(1 - clip_low, 1 + clip_high) * advantages_M
    loss = -torch.minimum(unclipped_M, clipped_M).sum() / denominator
    return ClippedLoss(loss, (clipped_M < unclipped_M).sum())


def clipped_value_loss(
    values_M: Tensor,
    old_values_M: Tensor,
    returns_M: Tensor,
    *,
    clip: float,
    denominator: float,
) -> ClippedLoss:
    """Sum max((V - R)^2, (V_clipped - R)^2) / denominator, without a factor one half.

    The paper's equation 17; tensors are float32.

    Args:
        values_M: values of the critic being trained.
        old_values_M: its values before this step's first update.
        returns_M: regression targets.
        clip: how far a value may move from the old one.
        denominator: mask sum of the whole optimizer step.
    """
    moved_M = old_values_M + (values_M - old_values_M).clamp(-clip, clip)
    unclipped_M, clipped_M = (values_M - returns_M) ** 2, (moved_M - returns_M) ** 2
    loss = torch.maximum(unclipped_M, clipped_M).sum() / denominator
    return ClippedLoss(loss, (clipped_M > unclipped_M).sum())
