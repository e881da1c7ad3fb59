"""What a session checks before it starts anything, and what it completes of an earlier one."""

from types import SimpleNamespace

import pytest

from t1_trainer.checkpoints import RunCheckpoints, policy_directory
from t1_trainer.config import Config, RolloutConfig
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.errors import ConfigError, PolicyFormatError
from t1_trainer.learner import Learner
from t1_trainer.policy import Tokenizer
from t1_trainer.session import _fresh_log, _train, load_actor, load_critic
from t1_trainer.trainer import TrainingState

TOKENIZER = Tokenizer(("ls",))


def test_trials_longer_than_the_policy_reads_are_refused():
    config = Config(rollout=RolloutConfig(max_context_tokens=513))
    with pytest.raises(ConfigError, match=r"max_context_tokens = 513: the policy reads at most 51"):
        load_actor(config)


def test_a_critic_of_another_shape_is_refused(make_model):
    with pytest.raises(PolicyFormatError, match=r"another shape than policy\.actor"):
        load_critic(Config(), make_model())


def test_each_session_of_a_run_has_a_log_of_its_own(tmp_path):
    first = _fresh_log(tmp_path / "logs")
    first.touch()
    second = _fresh_log(tmp_path / "logs")
    assert [first.name, second.name] == ["rollout_1.log", "rollout_2.log"]


def test_weights_that_an_ended_session_did_not_write_are_written_by_the_next(make_model, tmp_path):
    actor = make_model()
    learner = Learner(actor, critic_from_actor(actor), Config(steps=4))
    state = TrainingState(step=4)
    checkpoints = RunCheckpoints(tmp_path, 2, TOKENIZER)
    # the session ended here: the resumable checkpoint is there, the weights-only one is not
    checkpoints.save(learner, state)
    display = SimpleNamespace(phase=lambda text: None)
    _train(
        SimpleNamespace(state=state, config=learner.config, learner=learner, display=display),
        checkpoints,
    )
    assert policy_directory(tmp_path, 4) == policy_directory(tmp_path, None)
