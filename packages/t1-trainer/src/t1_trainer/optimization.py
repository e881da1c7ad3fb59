"""One optimizer step: clip, check, step, clear. Adam with decoupled weight decay."""

import torch

from t1_trainer.config import OptimizerConfig
from t1_trainer.errors import TrainingDiverged
from t1_trainer.policy import MoEModel

__all__ = ["adam", "apply_gradient", "decayed", "set_rate"]


def adam(model: MoEModel, settings: OptimizerConfig, rate: float) -> torch.optim.Optimizer:
    """An optimizer without moments."""
    return torch.optim.AdamW(
        model.parameters(),
        lr=rate,
        betas=(settings.beta1, settings.beta2),
        weight_decay=settings.weight_decay,
        fused=True,
    )


def decayed(rate: float, final_share: float, done: int, total: int) -> float:
    """The rate of update number `done` (from 0) of `total`: linear from `rate` to `final_share` of it."""
    if total <= 1:
        return rate
    return rate * (1 - (1 - final_share) * min(done / (total - 1), 1.0))


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def apply_gradient(
    model: MoEModel, optimizer: torch.optim.Optimizer, settings: OptimizerConfig, role: str
) -> float:
    """Make one optimizer step with the accumulated gradient; its norm before clipping.

    Args:
        model: whose gradient it is.
        optimizer: its optimizer.
        settings: the clipping limit.
        role: `actor` or `critic`, for the error.

    Raises:
        TrainingDiverged: the norm is not finite; no parameter was changed.
    """
    limit = settings.max_grad_norm
    norm = torch.nn.utils.clip_grad_norm_(
        model.parameters(), float("inf") if limit is None else limit
    )
    if not norm.isfinite():
        raise TrainingDiverged(
            f"the {role}'s gradient norm is {float(norm)}: lower optimizer.{role}_lr in the run's "
            "config.toml and continue with `t1 resume`"
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(norm)
