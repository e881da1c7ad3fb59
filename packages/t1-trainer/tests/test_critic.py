"""The run's critic and the cold one beside it."""

import pytest
import torch

from t1_trainer.batch import Batch
from t1_trainer.checkpoints import RunCheckpoints
from t1_trainer.config import Config, DiagnosticsConfig, OptimizerConfig, PPOConfig
from t1_trainer.critic import Critic, cold_critic
from t1_trainer.learner import Learner
from t1_trainer.policy import Tokenizer
from t1_trainer.trainer import Trainer, TrainingState, _Clock, overlap_ratio

LENGTHS = (3, 11, 6, 2, 9, 5, 14)


def config_of(*, cold: bool, enabled: bool = True) -> Config:
    return Config(
        optimizer=OptimizerConfig(actor_lr=1e-3, critic_lr=1e-2),
        ppo=PPOConfig(critic_only_steps=0, critic_minibatches=2),
        diagnostics=DiagnosticsConfig(cold_critic=cold, enabled=enabled),
    )


def learner_of(make_model, *, cold: bool, enabled: bool = True) -> Learner:
    config = config_of(cold=cold, enabled=enabled)
    return Learner(
        make_model(0),
        make_model(1, value_head=True),
        config,
        # ids of the small model: pieces fill its vocabulary beyond the specials and bytes
        Tokenizer(("ls", "cat ")),
    )


def steps_of(learner: Learner, make_samples, count: int) -> list[dict[str, float]]:
    trainer = Trainer(learner.config, None, None, learner, None, TrainingState(), None)
    return [
        trainer._update(
            n + 1, Batch(tuple(make_samples(n, LENGTHS, version=learner.version))), _Clock()
        )
        for n in range(count)
    ]


def tensors(*modules: torch.nn.Module) -> list[torch.Tensor]:
    return [tensor.clone() for module in modules for tensor in module.state_dict().values()]


def equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_cold_critic_is_the_actor_under_a_small_random_head(make_model):
    actor = make_model(0)
    randomness = torch.get_rng_state()
    first, again, other = (cold_critic(actor, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), randomness)
    assert equal(tensors(first), tensors(again))
    assert not torch.equal(first.value_head, other.value_head)
    assert 0.005 < float(first.value_head.detach().std()) < 0.04
    assert all(torch.equal(v, first.state_dict()[k]) for k, v in actor.state_dict().items())


def test_watching_a_cold_critic_and_the_gap_changes_no_weight(make_model, make_samples):
    plain, watched = (learner_of(make_model, cold=c, enabled=c) for c in (False, True))
    steps_of(plain, make_samples, 2)
    metrics = steps_of(watched, make_samples, 2)
    assert equal(tensors(plain.actor, plain.critic), tensors(watched.actor, watched.critic))
    assert all("critic/explained_variance_cold" in line for line in metrics)
    assert all("gap/logprob_retokenized" in line for line in metrics)
    # the defect: the cold critic's steps reach the run's own
    watched.cold = watched._critic
    steps_of(watched, make_samples, 1)
    steps_of(plain, make_samples, 1)
    assert not equal(tensors(plain.critic), tensors(watched.critic))


def test_without_the_flag_nothing_is_said_of_a_cold_critic(make_model, make_samples):
    learner = learner_of(make_model, cold=False)
    assert learner.cold is None
    assert "critic/explained_variance_cold" not in steps_of(learner, make_samples, 1)[0]


def test_the_cold_critic_learns_from_the_same_batches(make_model, make_samples):
    learner = learner_of(make_model, cold=True)
    batch = Batch(tuple(make_samples(0, LENGTHS)))
    explained = [learner.update_cold_critic(batch, seed) for seed in range(12)]
    assert explained[-1] > explained[0]


def test_a_resumed_run_goes_on_with_its_cold_critic(make_model, make_samples, tmp_path):
    tokenizer = Tokenizer(("ls", "cat "))
    learner = learner_of(make_model, cold=True)
    steps_of(learner, make_samples, 1)
    RunCheckpoints(tmp_path, 2, tokenizer).save(learner, TrainingState(step=1))
    resumed, forgetful = (learner_of(make_model, cold=True) for _ in range(2))
    RunCheckpoints(tmp_path, 2, tokenizer).restore(resumed)
    assert equal(tensors(resumed.cold.model), tensors(learner.cold.model))
    batch = Batch(tuple(make_samples(7, LENGTHS)))
    expected = [learner.update_cold_critic(batch, seed) for seed in (1, 2)]
    assert [resumed.update_cold_critic(batch, seed) for seed in (1, 2)] == expected
    assert [forgetful.update_cold_critic(batch, seed) for seed in (1, 2)] != expected


def test_a_cold_critic_asked_for_later_starts_then(make_model, make_samples, tmp_path):
    tokenizer = Tokenizer(("ls",))
    RunCheckpoints(tmp_path, 2, tokenizer).save(
        learner_of(make_model, cold=False), TrainingState(step=1)
    )
    resumed = learner_of(make_model, cold=True)
    before = tensors(resumed.cold.model)
    RunCheckpoints(tmp_path, 2, tokenizer).restore(resumed)
    assert equal(tensors(resumed.cold.model), before)


def test_a_first_step_clips_no_value(make_model, make_samples):
    batch = Batch(tuple(make_samples(0, LENGTHS)))
    config = Config(optimizer=OptimizerConfig(critic_lr=1e-1))
    once = Critic(make_model(1, value_head=True), config)
    values_M = once.values(batch)
    assert once.update(batch, values_M, values_M + 1, 0).clip_fraction == 0
    # after a large first step the rest has moved beyond the clip
    many = config.model_copy(update={"ppo": PPOConfig(critic_minibatches=7)})
    often = Critic(make_model(1, value_head=True), many)
    assert often.update(batch, values_M, values_M + 1, 0).clip_fraction > 0


@pytest.mark.parametrize(
    ("update", "rollout", "ratio"),
    [
        ((1.0, 3.0), (0.0, 5.0), 1.0),  # the update is hidden
        ((1.0, 5.0), (0.0, 3.0), 2 / 3),
        ((3.0, 5.0), (0.0, 3.0), 0.0),  # one after the other
        ((4.0, 5.0), (0.0, 3.0), 0.0),
    ],
)
def test_overlap_is_the_time_in_common_over_the_shorter_of_the_two(update, rollout, ratio):
    assert overlap_ratio(update, rollout) == overlap_ratio(rollout, update) == pytest.approx(ratio)
