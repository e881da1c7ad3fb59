"""Critic warm-up (the paper's section 4.5): it explains the warm start's returns before PPO begins.

Trials of the actor are collected once; the critic, started from the actor's weights with a zero value
head, regresses the return of every trained token. What is kept is weights only: joint training starts
with fresh optimizer state. Unlike the paper, which also trains an actor for one epoch and discards
it, the actor is frozen here and its trials are used several times.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from t1_trainer.batch import Batch
from t1_trainer.policy import MoEModel
from t1_trainer.ppo import explained_variance
from t1_trainer.samples import Sample

__all__ = ["CriticReport", "CriticSettings", "critic_from_actor", "warm_up_critic"]


@dataclass(frozen=True)
class CriticSettings:
    """Recipe of the committed critic.

    Attributes:
        trials: trials to learn from.
        fresh_trials: further trials on which explained variance is reported.
        epochs: passes over the trials.
        batch_size: trials per optimizer step.
        learning_rate: peak rate; linear warm-up over 20 updates, then linear decay to 10 %.
        seed: fixes the order.
    """

    trials: int = 480
    fresh_trials: int = 96
    epochs: int = 5
    batch_size: int = 24
    learning_rate: float = 3e-3
    seed: int = 0


@dataclass(frozen=True)
class CriticReport:
    """State after an epoch (0 is before the first): explained variance on fresh trials."""

    epoch: int
    explained_variance: float


def critic_from_actor(actor: MoEModel) -> MoEModel:
    """A critic with the actor's weights and a zero value head: its first values are all 0."""
    critic = MoEModel(actor.config, value_head=True)
    state = critic.state_dict()
    state.update(actor.state_dict())
    critic.load_state_dict(state)
    return critic


def warm_up_critic(
    critic: MoEModel,
    samples: Sequence[Sample],
    fresh: Sequence[Sample],
    settings: CriticSettings,
    on_epoch: Callable[[CriticReport], None] = lambda report: None,
) -> None:
    """Regress values on returns, in place."""
    optimizer = torch.optim.AdamW(
        critic.parameters(), settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.1, fused=True
    )
    source = random.Random(settings.seed)  # noqa: S311 (not for cryptography)
    pool = list(samples)
    size = settings.batch_size
    updates = settings.epochs * (len(pool) // size)
    done = 0
    on_epoch(CriticReport(0, _explained(critic, fresh)))
    for epoch in range(1, settings.epochs + 1):
        source.shuffle(pool)
        for start in range(0, len(pool) - size + 1, size):
            for group in optimizer.param_groups:
                decay = max(0.1, 1 - done / updates)
                group["lr"] = settings.learning_rate * min(1.0, (done + 1) / 20) * decay
            values, returns = _values(critic, pool[start : start + size])
            ((values - returns) ** 2).mean().backward()
            torch.nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done += 1
        on_epoch(CriticReport(epoch, _explained(critic, fresh)))


def _values(critic: MoEModel, samples: Sequence[Sample]) -> tuple[torch.Tensor, torch.Tensor]:
    batch = Batch(tuple(samples))
    packed = batch.pack(range(len(samples)))
    # all rows, although fewer are read: the shipped critic's last bits depend on it
    hidden_ND = critic(packed.tokens_N, packed.lengths_B).hidden_ND
    values = critic.values(hidden_ND[packed.trainable_M])
    return values, torch.repeat_interleave(batch.rewards_B, batch.counts_B)


@torch.no_grad()
def _explained(critic: MoEModel, samples: Sequence[Sample]) -> float:
    values, returns = _values(critic, samples)
    return explained_variance(returns, values)
