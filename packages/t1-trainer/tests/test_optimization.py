"""The actor's rate over a run."""

import pytest
import torch

from t1_trainer.batch import Batch
from t1_trainer.config import Config, OptimizerConfig, PPOConfig
from t1_trainer.learner import Learner
from t1_trainer.optimization import decayed


def test_the_rate_falls_in_equal_parts_from_the_first_update_to_the_last():
    rates = [decayed(1.0, 0.2, done, 5) for done in range(5)]
    assert rates == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_a_share_of_one_is_the_papers_constant_rate():
    assert {decayed(0.5, 1.0, done, 7) for done in range(7)} == {0.5}


def test_a_single_update_has_the_full_rate():
    assert decayed(0.5, 0.1, 0, 1) == 0.5


def test_the_actor_is_updated_at_the_rate_of_its_version(make_model, make_samples):
    optimizer = OptimizerConfig(actor_lr=1e-3, final_actor_lr_share=0.1)
    config = Config(steps=5, optimizer=optimizer, ppo=PPOConfig(critic_only_steps=2))
    learner = Learner(make_model(0), make_model(1, value_head=True), config)
    rates: list[float] = []
    for version in range(3):
        batch = Batch(tuple(make_samples(0, (5, 7), version)))
        old_M = learner.old_logprobs(batch)
        learner.update_actor(batch, old_M, torch.ones_like(old_M), 0)
        rates.append(learner.actor_optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([1e-3, 5.5e-4, 1e-4])
