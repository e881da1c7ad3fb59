"""Resuming: a restored learner goes on exactly where the saved one would have."""

import pytest
import torch

from t1_infra import CheckpointError
from t1_trainer.batch import Batch
from t1_trainer.checkpoints import RunCheckpoints, policy_directory
from t1_trainer.config import Config
from t1_trainer.errors import ConfigError
from t1_trainer.learner import Learner
from t1_trainer.policy import MoEModel, Tokenizer
from t1_trainer.policy.storage import load_weights
from t1_trainer.rollout.messages import Collected, InvalidTrial, Retention
from t1_trainer.task_order import TaskCursor
from t1_trainer.trainer import TrainingState

CONFIG = Config()


def checkpoints_in(path) -> RunCheckpoints:
    return RunCheckpoints(path, 2, Tokenizer(("ls", "cat ")))


def learner_of(make_model, seed: int) -> Learner:
    return Learner(make_model(seed), make_model(seed + 1, value_head=True), CONFIG)


def update(learner: Learner, batch: Batch, seed: int) -> None:
    source = torch.Generator().manual_seed(seed)
    count = int(batch.counts_B.sum())
    learner.update_critic(batch, torch.zeros(count), torch.rand(count, generator=source), seed)
    old_M = learner.old_logprobs(batch)
    learner.update_actor(batch, old_M, torch.randn(count, generator=source), seed)


def tensors(learner: Learner) -> dict[str, torch.Tensor]:
    found = {
        f"{name}.{key}": tensor.clone()
        for name in ("actor", "previous", "critic")
        for key, tensor in getattr(learner, name).state_dict().items()
    }
    for name in ("actor_optimizer", "critic_optimizer"):
        for index, slots in getattr(learner, name).state_dict()["state"].items():
            found |= {f"{name}.{index}.{slot}": value.clone() for slot, value in slots.items()}
    return found


def assert_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    assert a.keys() == b.keys()
    assert [name for name in a if not torch.equal(a[name], b[name])] == []


@pytest.fixture
def stopped(make_model, make_samples, tmp_path):
    """A learner after one update, its saved state, and the batches around it."""
    first = Batch(tuple(make_samples(1, [4, 7, 5], version=0)))
    second = make_samples(2, [6, 3], version=0)
    learner = learner_of(make_model, 0)
    update(learner, first, 1)
    pending = Collected(
        samples=tuple(second),
        admitted=("a", "b"),
        cancelled=("c",),
        invalid=(InvalidTrial("d", "no verdict"), InvalidTrial("d", "lost")),
        retention={"files": Retention(3, 2)},
        seconds=1.5,
        cpu_seconds=0.5,
        statistics={"engine/decode_steps": 3.0},
    )
    state = TrainingState(step=5, cursor=TaskCursor(1, 7), pending=pending)
    checkpoints_in(tmp_path).save(learner, state)
    return learner, state, Batch(tuple(second))


def test_everything_training_changes_comes_back_bit_for_bit(stopped, make_model, tmp_path):
    learner, state, _ = stopped
    other = learner_of(make_model, 50)
    restored = checkpoints_in(tmp_path).restore(other)
    assert_equal(tensors(other), tensors(learner))
    assert (restored.step, restored.cursor, other.version) == (5, TaskCursor(1, 7), 1)
    assert restored.pending is not None
    for name in ("admitted", "cancelled", "invalid", "retention", "statistics", "seconds"):
        assert getattr(restored.pending, name) == getattr(state.pending, name)
    keys = [s.trial_key for s in restored.pending.samples]
    assert keys == [s.trial_key for s in state.pending.samples]


def test_the_next_update_is_that_of_an_uninterrupted_run(stopped, make_model, tmp_path):
    learner, _, batch = stopped
    other = learner_of(make_model, 50)
    restored = checkpoints_in(tmp_path).restore(other)
    update(learner, batch, 2)
    update(other, Batch(restored.pending.samples), 2)
    assert_equal(tensors(other), tensors(learner))


def test_a_resume_with_fresh_optimizers_is_noticed(stopped, make_model, tmp_path):
    learner, _, batch = stopped
    other = learner_of(make_model, 50)
    checkpoints_in(tmp_path).restore(other)
    forgetful = Learner(other.actor, other.critic, CONFIG)
    forgetful.previous.load_state_dict(other.previous.state_dict())
    forgetful.version = other.version
    update(learner, batch, 2)
    update(forgetful, batch, 2)
    assert not torch.equal(learner.actor.embedding, forgetful.actor.embedding)


def test_a_resume_without_the_generating_weights_is_noticed(stopped, make_model, tmp_path):
    learner, _, batch = stopped
    other = learner_of(make_model, 50)
    checkpoints_in(tmp_path).restore(other)
    other.previous.load_state_dict(other.actor.state_dict())
    assert not torch.equal(other.old_logprobs(batch), learner.old_logprobs(batch))


def test_a_checkpoint_holds_a_policy_to_evaluate(stopped, tmp_path):
    learner, state, _ = stopped
    checkpoints = checkpoints_in(tmp_path)
    checkpoints.save_weights(learner, state.step)
    directory = policy_directory(tmp_path, None)
    assert directory == policy_directory(tmp_path, 5)
    loaded = load_weights(directory)
    assert isinstance(loaded, MoEModel)
    assert all(
        torch.equal(v, learner.actor.state_dict()[k]) for k, v in loaded.state_dict().items()
    )
    assert (directory / "tokenizer.json").is_file()


def test_a_run_without_checkpoints_starts_at_its_beginning(make_model, tmp_path):
    learner = learner_of(make_model, 0)
    before = tensors(learner)
    assert checkpoints_in(tmp_path).restore(learner) == TrainingState()
    assert_equal(tensors(learner), before)
    with pytest.raises(ConfigError, match=r"--checkpoint 7: the run has weights of steps \[\]"):
        policy_directory(tmp_path, 7)


def test_a_damaged_checkpoint_is_refused(stopped, make_model, tmp_path):
    file = next(tmp_path.glob("*.resumable/actor_optimizer.safetensors"))
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(CheckpointError, match=r"actor_optimizer\.safetensors"):
        checkpoints_in(tmp_path).restore(learner_of(make_model, 0))


def test_saving_a_step_twice_keeps_the_first(stopped, make_model, tmp_path):
    learner, state, _ = stopped
    before = tensors(learner)
    checkpoints_in(tmp_path).save(learner_of(make_model, 9), state)
    other = learner_of(make_model, 50)
    checkpoints_in(tmp_path).restore(other)
    assert_equal(tensors(other), before)
