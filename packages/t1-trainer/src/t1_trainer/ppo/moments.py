"""Explained variance from global sums, so that it is the same however a batch is split."""

import math

import torch
from torch import Tensor

__all__ = ["explained_variance"]


def explained_variance(returns_M: Tensor, values_M: Tensor) -> float:
    """1 - Var(R - V) / Var(R) over all trainable tokens, in float64; NaN where R is constant.

    The paper's equation 19.

    Args:
        returns_M: targets.
        values_M: predictions made before any update on these targets.
    """
    target = returns_M.to(torch.float64)
    variance = float(target.var(correction=0))
    if variance == 0.0:
        return math.nan
    return 1.0 - float((target - values_M.to(torch.float64)).var(correction=0)) / variance
