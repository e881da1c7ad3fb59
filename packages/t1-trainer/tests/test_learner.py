"""Updates of actor and critic: what they may depend on, and which weights they read."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_trainer.batch import Batch
from t1_trainer.config import Config, OptimizerConfig, PPOConfig
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.errors import CaptureError, TrainingDiverged
from t1_trainer.forward import routed_logprobs, state_values, token_logprobs
from t1_trainer.learner import Learner
from t1_trainer.policy import MoEModel
from t1_trainer.ppo import (
    clipped_policy_loss,
    clipped_value_loss,
    terminal_returns_and_advantages,
)
from t1_trainer.trainer import Trainer, TrainingState, _Clock, derive_seed

LENGTHS = (3, 11, 6, 2, 9, 5, 14)


def settings_of(**ppo: int) -> Config:
    rates = OptimizerConfig(actor_lr=1e-3, critic_lr=1e-2)
    return Config(optimizer=rates, ppo=PPOConfig(**{"critic_only_steps": 0, **ppo}))


def learner_of(make_model, **ppo: int) -> Learner:
    return Learner(make_model(0), make_model(1, value_head=True), settings_of(**ppo))


def weights(model: MoEModel) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def drifted(current_M: torch.Tensor, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Old numbers around the current ones, on both sides of the clip, and as many random ones."""
    source = torch.Generator().manual_seed(seed)
    drift_M = 0.3 * torch.randn(len(current_M), generator=source)
    assert (drift_M > 0.2).any()
    assert (drift_M < -0.2).any()
    return current_M + drift_M, torch.randn(len(current_M), generator=source)


def drifted_policy(make_model, batch: Batch, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Old log-probs and advantages of a first actor update."""
    current_M = token_logprobs(
        make_model(0), batch.pack(range(len(batch.samples))), replay=True, temperature=1.0
    )
    return drifted(current_M.detach(), seed)


def drifted_values(make_model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Old values and returns of a first critic update."""
    old_M, returns_M = drifted(learner_of(make_model).values(batch))
    return old_M, returns_M.abs()


def watched(model: MoEModel, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The flat gradient of every optimizer step from now on."""
    seen: list[torch.Tensor] = []

    def hook(*_: object) -> None:
        seen.append(torch.cat([p.grad.flatten() for p in model.parameters()]))

    optimizer.register_step_pre_hook(hook)
    return seen


def actor_gradient(learner: Learner, batch: Batch, old_M, advantages_M) -> torch.Tensor:
    seen = watched(learner.actor, learner.actor_optimizer)
    learner.update_actor(batch, old_M, advantages_M, seed=0)
    (gradient,) = seen
    return gradient


def critic_gradient(learner: Learner, batch: Batch, old_M, returns_M) -> torch.Tensor:
    seen = watched(learner.critic, learner.critic_optimizer)
    learner.update_critic(batch, old_M, returns_M, seed=0)
    (gradient,) = seen
    return gradient


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).norm() / b.norm())


# float32 sums of some thousand terms in another order: relative error near 1e-6
TOLERANCE = 2e-5


@settings(max_examples=8)
@given(size=st.integers(1, 7), data=st.data())
def test_the_actor_gradient_ignores_passes_order_and_padding(make_model, make_samples, size, data):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    old_M, advantages_M = drifted_policy(make_model, batch)
    order = data.draw(st.permutations(range(len(LENGTHS))))
    shuffled = Batch(tuple(batch.samples[i] for i in order))
    whole = learner_of(make_model, micro_batch_trials=len(LENGTHS))
    split = learner_of(make_model, micro_batch_trials=size)
    expected = actor_gradient(whole, batch, old_M, advantages_M)
    got = actor_gradient(split, shuffled, batch.take(old_M, order), batch.take(advantages_M, order))
    assert distance(got, expected) < TOLERANCE


@settings(max_examples=8)
@given(size=st.integers(1, 7), data=st.data())
def test_the_critic_gradient_ignores_passes_order_and_padding(make_model, make_samples, size, data):
    batch = Batch(tuple(make_samples(4, LENGTHS)))
    old_M, returns_M = drifted_values(make_model, batch)
    order = data.draw(st.permutations(range(len(LENGTHS))))
    shuffled = Batch(tuple(batch.samples[i] for i in order))
    whole = learner_of(make_model, micro_batch_trials=len(LENGTHS))
    split = learner_of(make_model, micro_batch_trials=size)
    expected = critic_gradient(whole, batch, old_M, returns_M)
    got = critic_gradient(split, shuffled, batch.take(old_M, order), batch.take(returns_M, order))
    assert distance(got, expected) < TOLERANCE


def test_a_mean_of_means_is_another_gradient(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    old_M, advantages_M = drifted_policy(make_model, batch)
    learner = learner_of(make_model)
    expected = actor_gradient(learner_of(make_model), batch, old_M, advantages_M)
    groups = batch.micro_batches(range(len(LENGTHS)), 2)
    for group in groups:
        logprobs_M = token_logprobs(learner.actor, batch.pack(group), replay=True, temperature=1.0)
        loss = clipped_policy_loss(
            logprobs_M,
            batch.take(old_M, group),
            batch.take(advantages_M, group),
            clip_low=0.2,
            clip_high=0.2,
            denominator=batch.trainable_tokens(group),
        ).loss
        (loss / len(groups)).backward()
    naive = torch.cat([p.grad.flatten() for p in learner.actor.parameters()])
    assert distance(naive, expected) > 100 * TOLERANCE


def test_a_value_loss_averaged_over_passes_is_another_gradient(make_model, make_samples):
    batch = Batch(tuple(make_samples(4, LENGTHS)))
    old_M, returns_M = drifted_values(make_model, batch)
    expected = critic_gradient(learner_of(make_model), batch, old_M, returns_M)
    learner = learner_of(make_model)
    groups = batch.micro_batches(range(len(LENGTHS)), 2)
    for group in groups:
        values_M = state_values(learner.critic, batch.pack(group))
        loss = clipped_value_loss(
            values_M,
            batch.take(old_M, group),
            batch.take(returns_M, group),
            clip=0.2,
            denominator=batch.trainable_tokens(range(len(LENGTHS))),
        ).loss
        (loss / len(groups)).backward()
    naive = torch.cat([p.grad.flatten() for p in learner.critic.parameters()])
    assert distance(naive, expected) > 100 * TOLERANCE


def test_reported_losses_do_not_depend_on_the_passes(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    old_M, advantages_M = drifted_policy(make_model, batch)
    reports = [
        learner_of(make_model, micro_batch_trials=size).update_actor(batch, old_M, advantages_M, 0)
        for size in (1, 3, 7)
    ]
    for report in reports:
        assert report.loss == pytest.approx(reports[0].loss, rel=1e-4)
        assert report.grad_norm == pytest.approx(reports[0].grad_norm, rel=1e-4)
        assert report.clip_fraction == reports[0].clip_fraction > 0
        assert report.ratio_max == pytest.approx(reports[0].ratio_max, rel=1e-4)


def test_values_and_old_logprobs_come_back_in_sample_order(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    learner = learner_of(make_model, micro_batch_trials=2)
    with torch.no_grad():
        values = [state_values(learner.critic, batch.pack([i])) for i in range(len(LENGTHS))]
        logprobs = [
            token_logprobs(learner.actor, batch.pack([i]), replay=True, temperature=1.0)
            for i in range(len(LENGTHS))
        ]
    assert torch.allclose(learner.values(batch), torch.cat(values), atol=1e-5)
    assert torch.allclose(learner.old_logprobs(batch), torch.cat(logprobs), atol=1e-5)


def test_one_update_is_one_version_whatever_its_optimizer_steps(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    learner = learner_of(make_model, actor_minibatches=3)
    seen = watched(learner.actor, learner.actor_optimizer)
    learner.update_actor(batch, *drifted_policy(make_model, batch), seed=0)
    assert learner.version == 1
    assert len(seen) == 3


def test_minibatch_order_is_a_function_of_the_seed(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    after = []
    for seed in (0, 0, 1):
        learner = learner_of(make_model, actor_minibatches=3)
        learner.update_actor(batch, *drifted_policy(make_model, batch), seed=seed)
        after.append(weights(learner.actor))
    assert equal(after[0], after[1])
    assert not equal(after[0], after[2])


def test_the_denominator_is_recomputed_under_the_generating_version(make_model, make_samples):
    first, second = (Batch(tuple(make_samples(s, LENGTHS, version=1))) for s in (3, 5))
    learner = learner_of(make_model)
    learner.update_actor(first, *drifted_policy(make_model, first), seed=0)
    under_version_1 = learner.old_logprobs(second)
    learner.update_actor(first, *drifted_policy(make_model, first), seed=0)
    assert torch.equal(learner.old_logprobs(second), under_version_1)
    # the defect: anchoring the ratio to the weights being updated
    with torch.no_grad():
        packed = second.pack(range(len(LENGTHS)))
        current = token_logprobs(learner.actor, packed, replay=True, temperature=1.0)
    assert not torch.allclose(current, under_version_1, atol=1e-3)


@pytest.mark.parametrize("versions", [(2,), (-1,), (0, 1)])
def test_other_versions_and_mixtures_are_refused(make_model, make_samples, versions):
    samples = [s for v in versions for s in make_samples(3, [4, 5], version=v)]
    learner = learner_of(make_model)
    learner.version = 1
    with pytest.raises(CaptureError, match=r"weight versions \[.*must come from one of them"):
        learner.old_logprobs(Batch(tuple(samples)))


def test_replay_uses_exactly_the_recorded_experts(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    packed = batch.pack(range(len(LENGTHS)))
    with torch.no_grad():
        _, used = routed_logprobs(make_model(0), packed, replay=True, temperature=1.0)
    assert torch.equal(used, packed.routed_NLK)
    report = learner_of(make_model).gap(batch, len(LENGTHS))
    assert report.replay_disagreement == 0
    assert report.routing_disagreement > 0.5


class IgnoresReplay(MoEModel):
    """The defect: recorded experts are accepted and not used."""

    def forward(self, tokens_N, lengths_B, replay_NLK=None):
        return super().forward(tokens_N, lengths_B)


def test_a_model_that_ignores_the_record_is_noticed(make_model, make_samples):
    learner = learner_of(make_model)
    ignoring = IgnoresReplay(learner.actor.config)
    ignoring.load_state_dict(learner.actor.state_dict())
    learner.actor = ignoring
    assert learner.gap(Batch(tuple(make_samples(3, LENGTHS))), 7).replay_disagreement > 0.5


def test_measuring_the_gap_changes_nothing(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    learner = learner_of(make_model)
    before, randomness = weights(learner.actor), torch.get_rng_state()
    report = learner.gap(batch, 3)
    assert report.replay > 0
    assert equal(weights(learner.actor), before)
    assert torch.equal(torch.get_rng_state(), randomness)
    assert all(p.grad is None for p in learner.actor.parameters())


def test_the_gap_is_measured_across_the_batch(make_model, make_samples):
    samples = make_samples(3, (3, 4, 5, 6, 7, 8))
    learner = learner_of(make_model)
    # the order of a batch is that of completion: its first samples are its shortest
    spread = Batch(tuple(samples[i] for i in (0, 3)))
    assert learner.gap(Batch(tuple(samples)), 2) == learner.gap(spread, 2)


def test_a_gradient_that_is_not_finite_stops_before_the_step(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    learner = learner_of(make_model)
    before = weights(learner.critic)
    returns_M = torch.full((int(batch.counts_B.sum()),), math.nan)
    with pytest.raises(TrainingDiverged, match=r"the critic's gradient norm is nan: .*critic_lr"):
        learner.update_critic(batch, learner.values(batch), returns_M, seed=0)
    assert equal(weights(learner.critic), before)


def step_of(learner: Learner, batch: Batch, step: int = 1) -> dict[str, float]:
    trainer = Trainer(learner.config, None, None, learner, None, TrainingState(), None)
    return trainer._update(step, batch, _Clock())


def by_hand(learner: Learner, batch: Batch, *, critic_first_then_values: bool) -> None:
    """One step; with the planted defect the advantages use the updated critic."""
    values_M = learner.values(batch)
    returns_M, advantages_M = terminal_returns_and_advantages(
        values_M, batch.counts_B, batch.rewards_B, gamma=1.0, lam=1.0
    )
    learner.update_critic(batch, values_M, returns_M, derive_seed(0, "critic", 1))
    if critic_first_then_values:
        advantages_M = returns_M - learner.values(batch)
    old_M = learner.old_logprobs(batch)
    learner.update_actor(batch, old_M, advantages_M, derive_seed(0, "actor", 1))


def test_the_actor_uses_values_from_before_the_critic_update(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    learner, right, wrong = (learner_of(make_model, critic_minibatches=2) for _ in range(3))
    step_of(learner, batch)
    by_hand(right, batch, critic_first_then_values=False)
    by_hand(wrong, batch, critic_first_then_values=True)
    assert equal(weights(learner.actor), weights(right.actor))
    assert equal(weights(learner.critic), weights(right.critic))
    assert not equal(weights(learner.actor), weights(wrong.actor))


def test_explained_variance_is_measured_before_the_update(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    actor = make_model(0)
    learner = Learner(actor, critic_from_actor(actor), settings_of())
    # a zero head predicts a constant, which explains nothing; after the update it would differ
    assert step_of(learner, batch)["critic/explained_variance"] == pytest.approx(0, abs=1e-12)


def test_critic_only_steps_leave_the_actor_alone(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    learner = learner_of(make_model, critic_only_steps=1)
    actor, critic = weights(learner.actor), weights(learner.critic)
    metrics = step_of(learner, batch, step=1)
    assert equal(weights(learner.actor), actor)
    assert not equal(weights(learner.critic), critic)
    assert metrics["policy/version"] == learner.version == 0
    assert "policy/loss" not in metrics
    assert step_of(learner, batch, step=2)["policy/version"] == 1


def test_the_step_reports_finite_numbers(make_model, make_samples):
    metrics = step_of(learner_of(make_model), Batch(tuple(make_samples(3, LENGTHS))))
    assert all(math.isfinite(value) for value in metrics.values())


def test_a_start_from_weights_has_no_moments(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    trained = learner_of(make_model)
    trained.update_actor(batch, *drifted_policy(make_model, batch), seed=0)
    assert trained.actor_optimizer.state_dict()["state"]
    fresh = Learner(trained.actor, trained.critic, trained.config)
    assert fresh.version == 0
    assert fresh.actor_optimizer.state_dict()["state"] == {}
    assert fresh.critic_optimizer.state_dict()["state"] == {}


def test_moments_of_another_run_would_change_the_first_update(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, LENGTHS)))
    fresh, stale = learner_of(make_model), learner_of(make_model)
    donor = learner_of(make_model)
    donor.update_actor(batch, *drifted_policy(make_model, batch, seed=9), seed=0)
    stale.actor_optimizer.load_state_dict(donor.actor_optimizer.state_dict())
    for learner in (fresh, stale):
        learner.update_actor(batch, *drifted_policy(make_model, batch), seed=0)
    assert not equal(weights(fresh.actor), weights(stale.actor))


def test_rows_shifted_by_one_widen_the_gap(make_model, make_samples):
    batch = Batch(tuple(make_samples(3, (12, 14, 13))))
    learner = learner_of(make_model)
    # log-probs and experts as a float32 sampler of the same weights would record them
    with torch.no_grad():
        logprobs_M = learner.old_logprobs(batch)
    recorded = batch.counts_B.tolist()
    samples = []
    for sample, part in zip(batch.samples, logprobs_M.split(recorded), strict=True):
        logprobs = np.zeros_like(sample.logprobs)
        logprobs[sample.loss_mask] = part.numpy()
        samples.append(dataclasses.replace(sample, logprobs=logprobs))
    shifted = [
        dataclasses.replace(s, routed_experts=np.roll(s.routed_experts, 1, axis=0)) for s in samples
    ]
    right = learner.gap(Batch(tuple(samples)), 3).replay
    wrong = learner.gap(Batch(tuple(shifted)), 3).replay
    assert right < 1e-5
    assert wrong > 100 * max(right, 1e-6)
