"""A value model with its optimizer, and one update of it.

Values of a batch are read before its update: they are the baseline of the advantages, the anchor of
the value clip and what explained variance judges. An update knows no policy. A second critic beside
the run's own, started cold, shows what warm-up buys: it sees the same batches and feeds nothing back.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from t1_trainer.batch import Batch
from t1_trainer.config import Config
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.forward import state_values
from t1_trainer.optimization import adam, apply_gradient
from t1_trainer.policy import MoEModel
from t1_trainer.ppo import clipped_value_loss

__all__ = ["Critic", "CriticReport", "cold_critic"]

_COLD_HEAD_SCALE = 0.02


@dataclass(frozen=True)
class CriticReport:
    """What one critic update did.

    Attributes:
        loss: mean over optimizer steps of the clipped loss before the step.
        clip_fraction: share of trained tokens whose clipped branch was active.
    """

    loss: float
    clip_fraction: float


class Critic:
    """Reads and updates one value model.

    Args:
        model: with a value head.
        config: the run's configuration.
    """

    def __init__(self, model: MoEModel, config: Config) -> None:
        self.model = model
        self.optimizer = adam(model, config.optimizer, config.optimizer.critic_lr)
        self._config = config

    @torch.no_grad()
    def values(self, batch: Batch) -> Tensor:
        """State values [M] of the whole batch."""
        groups = batch.micro_batches(range(len(batch.samples)), self._config.ppo.micro_batch_trials)
        return batch.restore([state_values(self.model, batch.pack(g)) for g in groups], groups)

    def update(
        self, batch: Batch, old_values_M: Tensor, returns_M: Tensor, seed: int
    ) -> CriticReport:
        """Regress values on returns.

        Args:
            batch: the samples.
            old_values_M: values from before the update.
            returns_M: targets.
            seed: fixes the minibatches.

        Raises:
            TrainingDiverged: a gradient is not finite.
        """
        ppo = self._config.ppo
        losses: list[float] = []
        clipped = 0
        for indices in batch.minibatches(ppo.critic_minibatches, seed):
            denominator = batch.trainable_tokens(indices)
            total = 0.0
            for group in batch.micro_batches(indices, ppo.micro_batch_trials):
                result = clipped_value_loss(
                    state_values(self.model, batch.pack(group)),
                    batch.take(old_values_M, group),
                    batch.take(returns_M, group),
                    clip=ppo.value_clip,
                    denominator=denominator,
                )
                result.loss.backward()
                total += result.loss.item()
                clipped += int(result.clipped)
            apply_gradient(self.model, self.optimizer, self._config.optimizer, "critic")
            losses.append(total)
        return CriticReport(sum(losses) / len(losses), clipped / len(returns_M))


def cold_critic(actor: MoEModel, seed: int) -> MoEModel:
    """A critic without warm-up: the actor's layers under a random value head.

    Args:
        actor: where the layers come from.
        seed: fixes the head; no other random stream is touched.
    """
    # building a model draws from the global stream, which belongs to others
    with torch.random.fork_rng(devices=[]):
        critic = critic_from_actor(actor)
    assert critic.value_head is not None, "it is a critic"
    generator = torch.Generator().manual_seed(seed)
    torch.nn.init.normal_(critic.value_head, std=_COLD_HEAD_SCALE, generator=generator)
    return critic
