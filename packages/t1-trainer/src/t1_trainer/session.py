"""Builds a run from its configuration and carries it out: evaluate, train, evaluate, sum up.

Starting and resuming are the same work: what is on disk already is not done again. Whatever ends a
session, the rollout process and every sandbox end with it; what is on disk stays resumable.
"""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from t1_reward import Pool
from t1_trainer.checkpoints import RunCheckpoints
from t1_trainer.config import Config
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.display import LiveDisplay, PlainDisplay
from t1_trainer.errors import ConfigError, PolicyFormatError, StorageError
from t1_trainer.evaluation import Evaluation, evaluate
from t1_trainer.files import json_text, write_atomically
from t1_trainer.learner import Learner
from t1_trainer.policy import MoEModel, PolicyFiles, load_policy
from t1_trainer.policy.storage import load_weights
from t1_trainer.pools import ensure_pool
from t1_trainer.publish import publish_actor
from t1_trainer.report import write_report
from t1_trainer.rollout.client import RolloutClient
from t1_trainer.rollout.runtime import RolloutSetup
from t1_trainer.run_directory import RunDirectory
from t1_trainer.run_summary import run_summary
from t1_trainer.trainer import Trainer, TrainingState

__all__ = [
    "Tasks",
    "carry_out",
    "load_actor",
    "load_critic",
    "open_rollout",
    "open_tasks",
    "resolve_policy",
]

AnyDisplay = LiveDisplay | PlainDisplay
_BUILTIN = "builtin:"


def resolve_policy(location: str) -> Path:
    """Directory of a policy; `builtin:NAME` is package data of this package.

    Raises:
        PolicyFormatError: no such directory.
    """
    if location.startswith(_BUILTIN):
        path = Path(str(resources.files("t1_trainer"))) / "data" / location.removeprefix(_BUILTIN)
    else:
        path = Path(location)
    if not path.is_dir():
        raise PolicyFormatError(f"policy {location!r}: {path} is not a directory")
    return path


@dataclass(frozen=True)
class Tasks:
    """A run's pool, and the ids of the held-out tasks that evaluation uses."""

    pool: Pool
    heldout: tuple[str, ...]


def open_tasks(config: Config) -> Tasks:
    """Open the pool, generated if need be.

    Raises:
        ConfigError: the pool has fewer tasks than the configuration needs.
        PoolError: the configured directory is not a pool.
    """
    pool = Pool.open(ensure_pool(config.pool))
    ids, wanted = pool.ids("heldout"), config.evaluation.tasks
    needed = wanted or 2  # one task has no interval
    if len(ids) < needed:
        raise ConfigError(
            f"evaluation needs {needed} held-out tasks and pool {pool.directory} has {len(ids)}: "
            "lower evaluation.tasks (at least 2) or raise pool.heldout_tasks"
        )
    if not pool.ids("train"):
        raise ConfigError(f"pool {pool.directory} has no training tasks")
    return Tasks(pool, ids[:wanted])


def load_actor(config: Config) -> PolicyFiles:
    """The policy a run starts from.

    Raises:
        PolicyFormatError: `policy.actor` is not a policy directory.
        ConfigError: trials may grow beyond what it can read.
    """
    policy = load_policy(resolve_policy(config.policy.actor))
    wanted, readable = (
        config.rollout.max_context_tokens,
        policy.model.config.max_position_embeddings,
    )
    if wanted > readable:
        raise ConfigError(
            f"rollout.max_context_tokens = {wanted}: the policy reads at most {readable} ids "
            "(max_position_embeddings of its config.json); lower the setting"
        )
    return policy


def load_critic(config: Config, actor: MoEModel) -> MoEModel:
    """The critic a run starts from.

    Raises:
        PolicyFormatError: `policy.critic` is not a weights directory, or of another shape.
    """
    if config.policy.critic == "actor":
        return critic_from_actor(actor)
    critic = load_weights(resolve_policy(config.policy.critic), value_head=True)
    if critic.config != actor.config:
        raise PolicyFormatError(
            f"policy.critic {config.policy.critic!r} has another shape than policy.actor "
            f"{config.policy.actor!r}"
        )
    return critic


@contextmanager
def open_rollout(
    config: Config, policy: PolicyFiles, pool: Pool, directory: Path
) -> Generator[RolloutClient]:
    """Start the rollout process; it is gone when the block is left, however.

    Args:
        config: the run's configuration.
        policy: shape and tokenizer of what it will serve.
        pool: where its tasks are.
        directory: receives `trials/`, `logs/` and `journal.jsonl`.

    Raises:
        RolloutFailed: it cannot start, for example for want of sandbox isolation.
    """
    setup = RolloutSetup(
        config, policy.model.config, policy.tokenizer.pieces, pool.directory, directory
    )
    rollout = RolloutClient(setup, _fresh_log(directory / "logs"))
    try:
        rollout.wait()
        yield rollout
    finally:
        rollout.close()


def _fresh_log(folder: Path) -> Path:
    """Each session has a log of its own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(error.errno, error.strerror, str(folder)) from error
    return folder / f"rollout_{len(list(folder.glob('rollout_*.log'))) + 1}.log"


def carry_out(run: RunDirectory, display: AnyDisplay) -> dict[str, Any]:
    """Carry out what is left of a run, from its newest checkpoint if it has one; its summary.

    A new run has none, and neither has one that was interrupted before its first: both begin.
    """
    torch.set_num_threads(1)
    began = time.monotonic()
    config = run.config
    display.phase("preparing the task pool")
    tasks, policy = open_tasks(config), load_actor(config)
    learner = Learner(policy.model, load_critic(config, policy.model), config, policy.tokenizer)
    checkpoints = RunCheckpoints(run.path / "checkpoints", config.checkpoint.keep, policy.tokenizer)
    state = checkpoints.restore(learner)
    run.rewind(state.step, state.step + (state.pending is not None))
    display.phase("starting the rollout process")
    with open_rollout(config, policy, tasks.pool, run.path) as rollout:
        display.watch(lambda: rollout.progress)
        publish_actor(rollout, learner.actor, learner.version)
        trainer = Trainer(config, run, tasks.pool, learner, rollout, state, display)
        before = _evaluated(run, "before", trainer, tasks.heldout)
        _train(trainer, checkpoints)
        after = _evaluated(run, "after", trainer, tasks.heldout)
    summary = run_summary(run, before, after, time.monotonic() - began)
    write_atomically(run.path / "summary.json", json_text(summary, indent=2) + "\n")
    write_report(run, summary)
    return summary


def _train(trainer: Trainer, checkpoints: RunCheckpoints) -> None:
    """All remaining steps, with checkpoints when due."""
    state, config, learner = trainer.state, trainer.config, trainer.learner
    if state.pending is None and state.step < config.steps:
        trainer.display.phase("first rollout")
        trainer.launch(1)
        state.pending = trainer.join(1)
    _save(checkpoints, learner, state)
    trainer.display.phase("training")
    while state.step < config.steps:
        trainer.display.step(trainer.step())
        if state.step % config.checkpoint.every_steps == 0 or state.step == config.steps:
            _save(checkpoints, learner, state)


def _save(checkpoints: RunCheckpoints, learner: Learner, state: TrainingState) -> None:
    """Both kinds; after an end between the two, the resumed session writes the second."""
    checkpoints.save(learner, state)
    if state.step:
        checkpoints.save_weights(learner, state.step)


def _evaluated(
    run: RunDirectory, name: str, trainer: Trainer, tasks: tuple[str, ...]
) -> Evaluation:
    """The named evaluation, from disk if an earlier session finished it."""
    path = run.path / "evaluations" / f"{name}.json"
    if path.exists():
        return Evaluation.from_json(json.loads(path.read_text()))
    trainer.display.phase(f"evaluating {len(tasks)} held-out tasks ({name} training)")
    evaluation = evaluate(trainer.rollout, tasks, trainer.config.evaluation, name)
    write_atomically(path, json_text(evaluation.to_json()))
    return evaluation
