"""Resumable and weights-only checkpoints of a run, on the atomic store of t1-infra.

    weights-only   actor/{config.json, model.safetensors, tokenizer.json}, critic/
    resumable      the same, previous/ (the version that generated the pending batch), both
                   optimizers, cold_critic/ with its optimizer where a run has one,
                   pending.safetensors, and in the manifest: step, version, cursor

Random streams are functions of the seed and the step, so no generator state is stored. With the
pending batch stored, a resumed run continues as if it had not been interrupted.
"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from t1_infra import CheckpointKind, CheckpointStore
from t1_trainer.errors import ConfigError
from t1_trainer.learner import Learner
from t1_trainer.optimizer_files import load_optimizer, save_optimizer
from t1_trainer.policy import PolicyFiles, Tokenizer, save_policy
from t1_trainer.policy.storage import load_weights, save_weights
from t1_trainer.rollout.messages import Collected, InvalidTrial, Retention
from t1_trainer.sample_files import load_samples, save_samples
from t1_trainer.task_order import TaskCursor
from t1_trainer.trainer import TrainingState

__all__ = ["RunCheckpoints", "policy_directory"]

_COLD_CRITIC, _COLD_OPTIMIZER = "cold_critic", "cold_critic_optimizer.safetensors"


class RunCheckpoints:
    """Saves and restores a learner and its training state.

    Args:
        directory: the run's `checkpoints/`.
        keep: resumable checkpoints kept.
        tokenizer: written beside every actor, so that a checkpoint is a policy directory.
    """

    def __init__(self, directory: Path, keep: int, tokenizer: Tokenizer) -> None:
        self._store = CheckpointStore(directory, keep=keep)
        self._tokenizer = tokenizer

    def save_weights(self, learner: Learner, step: int) -> None:
        """Write a weights-only checkpoint, unless the step has one."""
        if step in self._store.steps(CheckpointKind.WEIGHTS_ONLY):
            return
        metadata = {"version": learner.version}
        kind = CheckpointKind.WEIGHTS_ONLY
        with self._store.writer(step, kind=kind, metadata=metadata) as directory:
            self._write_weights(learner, directory)

    def save(self, learner: Learner, state: TrainingState) -> None:
        """Write a resumable checkpoint of the state after `state.step`, unless there is one."""
        if state.step in self._store.steps(CheckpointKind.RESUMABLE):
            return
        metadata: dict[str, Any] = {
            "version": learner.version,
            "cursor": asdict(state.cursor),
            "pending": None if state.pending is None else _facts(state.pending),
        }
        with self._store.writer(state.step, metadata=metadata) as directory:
            self._write_weights(learner, directory)
            save_weights(learner.previous, directory / "previous")
            save_optimizer(learner.actor_optimizer, directory / "actor_optimizer.safetensors")
            save_optimizer(learner.critic_optimizer, directory / "critic_optimizer.safetensors")
            if learner.cold is not None:
                save_weights(learner.cold.model, directory / _COLD_CRITIC)
                save_optimizer(learner.cold.optimizer, directory / _COLD_OPTIMIZER)
            if state.pending is not None:
                save_samples(directory / "pending.safetensors", state.pending.samples)

    def restore(self, learner: Learner) -> TrainingState:
        """Load the newest resumable checkpoint into `learner`; the state it was saved with.

        Without one the learner is left as it is and the state is that of a new run.

        Raises:
            CheckpointError: it is damaged.
        """
        step = self._store.latest(CheckpointKind.RESUMABLE)
        if step is None:
            return TrainingState()
        checkpoint = self._store.load(step)
        path, metadata = checkpoint.path, checkpoint.metadata
        for model, name in (
            (learner.actor, "actor"),
            (learner.previous, "previous"),
            (learner.critic, "critic"),
        ):
            loaded = load_weights(path / name, value_head=name == "critic")
            model.load_state_dict(loaded.state_dict())
        load_optimizer(learner.actor_optimizer, path / "actor_optimizer.safetensors")
        load_optimizer(learner.critic_optimizer, path / "critic_optimizer.safetensors")
        # a run that was told to watch a cold critic later than its checkpoint starts it now
        if learner.cold is not None and (path / _COLD_CRITIC).is_dir():
            cold = load_weights(path / _COLD_CRITIC, value_head=True)
            learner.cold.model.load_state_dict(cold.state_dict())
            load_optimizer(learner.cold.optimizer, path / _COLD_OPTIMIZER)
        learner.version = metadata["version"]
        pending = metadata["pending"]
        return TrainingState(
            step=step,
            cursor=TaskCursor(**metadata["cursor"]),
            pending=None if pending is None else _collected(pending, path),
        )

    def _write_weights(self, learner: Learner, directory: Path) -> None:
        save_policy(PolicyFiles(learner.actor, self._tokenizer), directory / "actor")
        save_weights(learner.critic, directory / "critic")


def policy_directory(checkpoints: Path, step: int | None) -> Path:
    """The actor of a weights-only checkpoint, as a policy directory.

    Args:
        checkpoints: a run's `checkpoints/`.
        step: which one; None is the newest.

    Raises:
        ConfigError: there is none for this step.
    """
    store = CheckpointStore(checkpoints)
    steps = store.steps(CheckpointKind.WEIGHTS_ONLY)
    if not steps or (step is not None and step not in steps):
        raise ConfigError(f"--checkpoint {step}: the run has weights of steps {steps}")
    chosen = steps[-1] if step is None else step
    return store.load(chosen, kind=CheckpointKind.WEIGHTS_ONLY).path / "actor"


def _facts(pending: Collected) -> dict[str, Any]:
    return asdict(replace(pending, samples=()))


def _collected(facts: dict[str, Any], path: Path) -> Collected:
    fields: dict[str, Any] = {
        **facts,
        "samples": load_samples(path / "pending.safetensors"),
        "admitted": tuple(facts["admitted"]),
        "cancelled": tuple(facts["cancelled"]),
        "invalid": tuple(InvalidTrial(**trial) for trial in facts["invalid"]),
        "retention": {name: Retention(**kept) for name, kept in facts["retention"].items()},
    }
    return Collected(**fields)
