"""Builds a run from its configuration and carries it out: evaluate, train, evaluate, sum up.

Start and resume differ only in where the training state comes from. Whatever ends a session, the
rollout process and every sandbox end with it; what is on disk stays resumable.
"""

import json
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from t1_reward import Pool
from t1_trainer.checkpoints import RunCheckpoints
from t1_trainer.config import Config
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.display import LiveDisplay, PlainDisplay
from t1_trainer.errors import ConfigError, PolicyFormatError
from t1_trainer.evaluation import Evaluation, compare, evaluate
from t1_trainer.learner import Learner
from t1_trainer.policy import MoEModel, PolicyFiles, load_policy
from t1_trainer.policy.storage import load_weights
from t1_trainer.pools import ensure_pool
from t1_trainer.publish import publish_actor_now
from t1_trainer.report import write_report
from t1_trainer.rollout.client import RolloutClient
from t1_trainer.rollout.runtime import RolloutSetup
from t1_trainer.run_directory import RunDirectory, write_atomically
from t1_trainer.trainer import Trainer, TrainingState

__all__ = ["heldout_tasks", "open_rollout", "resolve_policy", "resume", "start"]

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


def heldout_tasks(pool: Pool, config: Config) -> tuple[str, ...]:
    """Ids of the held-out tasks that evaluation uses.

    Raises:
        ConfigError: the pool has fewer than `evaluation.tasks`.
    """
    ids = pool.ids("heldout")
    wanted = config.evaluation.tasks
    if len(ids) < (wanted or 2):
        raise ConfigError(
            f"evaluation.tasks = {wanted}: the pool has {len(ids)} held-out tasks; "
            "lower it or raise pool.heldout_tasks"
        )
    if not pool.ids("train"):
        raise ConfigError(f"pool {pool.directory} has no training tasks")
    return ids[:wanted]


@contextmanager
def open_rollout(
    config: Config, policy: PolicyFiles, pool: Path, run: RunDirectory
) -> Generator[RolloutClient]:
    """Start the rollout process; it is gone when the block is left, however.

    Raises:
        RolloutFailed: it cannot start, for example for want of sandbox isolation.
    """
    setup = RolloutSetup(config, policy.model.config, policy.tokenizer.pieces, pool, run.path)
    rollout = RolloutClient(setup, run.next_log("rollout"))
    try:
        rollout.wait()
        yield rollout
    finally:
        rollout.close()


def start(config: Config, run: RunDirectory, display: AnyDisplay) -> dict[str, Any]:
    """Carry out a new run; returns its summary."""
    return _carry_out(config, run, display, resumed=False)


def resume(run: RunDirectory, display: AnyDisplay) -> dict[str, Any]:
    """Continue a run from its newest checkpoint, or from the beginning; returns its summary."""
    return _carry_out(run.config, run, display, resumed=True)


def _carry_out(
    config: Config, run: RunDirectory, display: AnyDisplay, *, resumed: bool
) -> dict[str, Any]:
    torch.set_num_threads(1)
    began = time.monotonic()
    display.phase("preparing the task pool")
    pool_path = ensure_pool(config.pool)
    policy = load_policy(resolve_policy(config.policy.actor))
    learner = Learner(policy.model, _critic(config, policy.model), config)
    checkpoints = RunCheckpoints(run.path / "checkpoints", config.checkpoint.keep, policy.tokenizer)
    # a run that was interrupted before its first checkpoint starts from the beginning
    state = checkpoints.restore(learner) if resumed and checkpoints.any() else TrainingState()
    run.rewind(state.step)
    pool = Pool.open(pool_path)
    tasks = heldout_tasks(pool, config)
    display.phase("starting the rollout process")
    with open_rollout(config, policy, pool_path, run) as rollout:
        display.watch(lambda: rollout.progress)
        publish_actor_now(rollout, learner.actor, learner.version)
        trainer = Trainer(config, run, pool, learner, rollout, state, display)
        before = _evaluated(run, "before", trainer, tasks)
        _train(trainer, checkpoints)
        after = _evaluated(run, "after", trainer, tasks)
    summary = _summary(run, pool, before, after, time.monotonic() - began)
    write_atomically(run.path / "summary.json", json.dumps(summary, indent=2) + "\n")
    write_report(run, summary)
    return summary


def _critic(config: Config, actor: MoEModel) -> MoEModel:
    if config.policy.critic == "actor":
        return critic_from_actor(actor)
    critic = load_weights(resolve_policy(config.policy.critic), value_head=True)
    if critic.config != actor.config:
        raise PolicyFormatError(
            f"policy.critic {config.policy.critic!r} has another shape than policy.actor "
            f"{config.policy.actor!r}"
        )
    return critic


def _train(trainer: Trainer, checkpoints: RunCheckpoints) -> None:
    """All remaining steps, with checkpoints when due."""
    state, config, learner = trainer.state, trainer.config, trainer.learner
    if state.pending is None and state.step < config.steps:
        trainer.display.phase("first rollout")
        trainer.launch(1)
        state.pending = trainer.join(1)
    checkpoints.save(learner, state)
    trainer.display.phase("training")
    while state.step < config.steps:
        trainer.display.step(trainer.step())
        if state.step % config.checkpoint.every_steps == 0 or state.step == config.steps:
            checkpoints.save(learner, state)
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
    write_atomically(path, json.dumps(evaluation.to_json()))
    return evaluation


def _summary(
    run: RunDirectory, pool: Pool, before: Evaluation, after: Evaluation, seconds: float
) -> dict[str, Any]:
    steps = run.lines("metrics.jsonl")
    change = {
        decoding: {field: asdict(interval) for field, interval in fields.items()}
        for decoding, fields in compare(before, after).items()
    }
    tenth = max(1, len(steps) // 10)
    return {
        "schema_version": 1,
        "steps": len(steps),
        "seconds": seconds,
        "heldout_before": before.summary(),
        "heldout_after": after.summary(),
        "heldout_change": change,
        "training_reward_first": _mean(steps[:tenth], "reward/mean"),
        "training_reward_last": _mean(steps[-tenth:], "reward/mean"),
        "explained_variance_first": steps[0]["critic/explained_variance"],
        "explained_variance_last": _mean(steps[-tenth:], "critic/explained_variance"),
        "gap_logprob_replay": _mean(steps, "gap/logprob_replay"),
        "gap_logprob_free": _mean(steps, "gap/logprob_free"),
        "cancelled_trials": sum(line["rollout/cancelled"] for line in steps),
        "invalid_trials": sum(line["rollout/invalid"] for line in steps),
        "retention": _retention(run, pool),
    }


def _retention(run: RunDirectory, pool: Pool) -> dict[str, dict[str, int]]:
    """Launched and admitted trials of the whole run, by family and by length."""
    counts: dict[str, dict[str, int]] = {}
    for line in run.lines("tasks.jsonl"):
        admitted = set(line["admitted"])
        for task_id in {*admitted, *line["cancelled"], *line["invalid"]}:
            entry = pool.entry(task_id)
            for name in (*sorted(set(entry.families)), f"length {entry.length}"):
                count = counts.setdefault(name, {"launched": 0, "admitted": 0})
                count["launched"] += 1
                count["admitted"] += task_id in admitted
    return dict(sorted(counts.items()))


def _mean(lines: list[dict[str, Any]], name: str) -> float | None:
    values = [line[name] for line in lines if line.get(name) is not None]
    return sum(values) / len(values) if values else None
