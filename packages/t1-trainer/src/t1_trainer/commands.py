"""What the verbs of `t1` do, as functions that return plain results."""

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from t1_eval import mean_with_interval
from t1_reward import Pool
from t1_reward.synthesis import vocabulary_pieces
from t1_trainer import session
from t1_trainer.checkpoints import RunCheckpoints
from t1_trainer.config import Config, PolicyConfig
from t1_trainer.config_files import load_config
from t1_trainer.critic_warm_up import (
    CriticReport,
    CriticSettings,
    critic_from_actor,
    warm_up_critic,
)
from t1_trainer.display import open_display
from t1_trainer.errors import ConfigError, RolloutFailed
from t1_trainer.policy import MoEConfig, PolicyFiles, Tokenizer, load_policy, save_policy
from t1_trainer.policy.storage import save_weights
from t1_trainer.pools import ensure_pool
from t1_trainer.publish import publish_actor_now
from t1_trainer.rollout.messages import Attempt, Collect, Collected, Evaluate
from t1_trainer.run_directory import RunDirectory, write_atomically
from t1_trainer.samples import Sample
from t1_trainer.task_order import TaskCursor
from t1_trainer.warm_start import SupervisedReport, SupervisedSettings, train_supervised

__all__ = ["EvaluationRequest", "dry_run", "evaluate", "resume", "train", "warm_start"]

_AGENTS = ("policy", "oracle", "noop")
_WARM_UP_BATCH = 96


def train(config: Config, path: Path, *, from_scratch: bool, quiet: bool) -> dict[str, Any]:
    """A new run in `path`; returns its summary."""
    if from_scratch:
        policy = PolicyConfig(
            actor=str(path.resolve() / "warm_start" / "actor"),
            critic=str(path.resolve() / "warm_start" / "critic"),
        )
        config = config.model_copy(update={"policy": policy})
    run = RunDirectory.create(path, config)
    try:
        if from_scratch:
            warm_start(path / "warm_start", config.seed, quiet=quiet)
        with open_display(config.steps, quiet=quiet) as display:
            return session.start(config, run, display)
    finally:
        run.close()


def resume(path: Path, *, quiet: bool) -> dict[str, Any]:
    """Continue the run in `path`; returns its summary."""
    run = RunDirectory.open(path)
    try:
        with open_display(run.config.steps, quiet=quiet) as display:
            return session.resume(run, display)
    finally:
        run.close()


def dry_run(config: Config) -> dict[str, Any]:
    """Build everything a run needs and solve one held-out task with its reference solution.

    Raises:
        RolloutFailed: the reference solution does not pass, or the rollout process cannot start.
    """
    pool_path = ensure_pool(config.pool)
    pool = Pool.open(pool_path)
    policy = load_policy(session.resolve_policy(config.policy.actor))
    tasks = session.heldout_tasks(pool, config)
    wanted = Evaluate("dry-run", tasks[:1], 1, 1.0, "oracle")
    with tempfile.TemporaryDirectory(prefix="t1-dry-run-") as folder:
        attempts = _attempts(config, policy, pool_path, wanted, Path(folder), quiet=True)
    if not attempts[0].resolved:
        raise RolloutFailed(
            f"the reference solution of {tasks[0]} does not pass here: {attempts[0].cause or 'wrong'}"
        )
    return {
        "status": "everything a run needs works here",
        "policy": config.policy.actor,
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "pool": str(pool_path),
        "training tasks": len(pool.ids("train")),
        "held-out tasks": len(tasks),
        "steps": config.steps,
        "trials per step": f"{config.rollout.batch_size} of {config.launched_trials} launched",
        "reward": f"{config.reward.variant}, S = {config.reward.scale}",
    }


@dataclass(frozen=True)
class EvaluationRequest:
    """What `t1 eval` is asked for."""

    run: Path | None
    checkpoint: int | None
    agent: str
    attempts: int
    temperature: float
    tasks: int | None


def evaluate(request: EvaluationRequest, output_dir: Path, *, quiet: bool) -> dict[str, Any]:
    """Run held-out tasks, keeping their trials in `output_dir`; returns rates with intervals.

    Raises:
        ConfigError: an unknown agent, or more tasks than the pool has.
        RolloutFailed: no attempt has a verdict.
    """
    if request.agent not in _AGENTS:
        raise ConfigError(f"--agent {request.agent!r}: expected one of {', '.join(_AGENTS)}")
    config, policy_directory = _evaluated_policy(request)
    policy = load_policy(policy_directory)
    pool_path = ensure_pool(config.pool)
    config = config.model_copy(
        update={"evaluation": config.evaluation.model_copy(update={"tasks": request.tasks})}
    )
    tasks = session.heldout_tasks(Pool.open(pool_path), config)
    wanted = Evaluate("eval", tasks, request.attempts, request.temperature, request.agent)
    attempts = _attempts(config, policy, pool_path, wanted, output_dir, quiet=quiet)
    return _rates(request, attempts)


def _evaluated_policy(request: EvaluationRequest) -> tuple[Config, Path]:
    if request.run is None:
        config = load_config([])
        return config, session.resolve_policy(config.policy.actor)
    run = RunDirectory.open(request.run, lock=False)
    config = run.config
    if request.agent != "policy":
        return config, session.resolve_policy(config.policy.actor)
    tokenizer = load_policy(session.resolve_policy(config.policy.actor)).tokenizer
    checkpoints = RunCheckpoints(run.path / "checkpoints", config.checkpoint.keep, tokenizer)
    return config, checkpoints.policy_directory(request.checkpoint)


def _rates(request: EvaluationRequest, attempts: Sequence[Attempt]) -> dict[str, Any]:
    valid: dict[str, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.reward is not None:
            valid.setdefault(attempt.task_id, []).append(attempt)
    if not valid:
        raise RolloutFailed(f"no attempt has a verdict; first cause: {attempts[0].cause}")
    resolved = {task: [float(a.resolved) for a in group] for task, group in valid.items()}
    reward = {task: [a.reward or 0.0 for a in group] for task, group in valid.items()}
    return {
        "agent": request.agent,
        "tasks": len(valid),
        "attempts": len(attempts),
        "invalid": sum(a.reward is None for a in attempts),
        "resolved": dataclasses.asdict(mean_with_interval(resolved)),
        "reward": dataclasses.asdict(mean_with_interval(reward)),
        "turns": sum(a.turns for a in attempts) / len(attempts),
    }


def _attempts(
    config: Config,
    policy: PolicyFiles,
    pool: Path,
    request: Evaluate,
    output_dir: Path,
    *,
    quiet: bool,
) -> list[Attempt]:
    """Run one evaluation, with `output_dir` as its run directory."""
    torch.set_num_threads(1)
    run = RunDirectory.create(output_dir, config)
    try:
        with (
            open_display(config.steps, quiet=quiet) as display,
            session.open_rollout(config, policy, pool, run) as rollout,
        ):
            display.watch(lambda: rollout.progress)
            display.phase(f"evaluating {len(request.task_ids)} held-out tasks")
            publish_actor_now(rollout, policy.model, 0)
            return rollout.call(request)
    finally:
        run.close()


def warm_start(output_dir: Path, seed: int, *, quiet: bool) -> dict[str, Any]:
    """Train the warm start and its critic; returns what `origin.json` records."""
    torch.set_num_threads(1)
    config = load_config([])
    settings, critic_settings = SupervisedSettings(seed=seed), CriticSettings(seed=seed)
    tokenizer = Tokenizer(vocabulary_pieces())
    with open_display(settings.steps, quiet=quiet) as display:

        def on_step(report: SupervisedReport) -> None:
            if report.step % 50 == 0 or report.step == settings.steps - 1:
                display.phase(
                    f"supervised step {report.step}/{settings.steps}: loss {report.loss:.3f}, "
                    f"accuracy {report.accuracy:.3f}"
                )

        actor = train_supervised(
            MoEConfig(vocab_size=len(tokenizer)),
            tokenizer,
            settings,
            max_observation_tokens=config.rollout.max_observation_tokens,
            on_step=on_step,
        )
        policy = PolicyFiles(actor, tokenizer)
        save_policy(policy, output_dir / "actor")
        display.phase("collecting trials for the critic")
        samples = _frozen_trials(config, policy, critic_settings, seed)
        critic = critic_from_actor(actor)
        explained: list[float] = []

        def on_epoch(report: CriticReport) -> None:
            explained.append(report.explained_variance)
            display.phase(
                f"critic epoch {report.epoch}: explained variance {report.explained_variance:.3f}"
            )

        fresh = samples[: critic_settings.fresh_trials]
        warm_up_critic(critic, samples[len(fresh) :], fresh, critic_settings, on_epoch)
    save_weights(critic, output_dir / "critic")
    origin = {
        "command": f"t1 warm-start OUTPUT_DIR --seed {seed}",
        "seed": seed,
        "supervised": dataclasses.asdict(settings),
        "critic": dataclasses.asdict(critic_settings),
        "critic_explained_variance_by_epoch": [round(x, 4) for x in explained],
        "sha256": {
            name: hashlib.sha256((output_dir / name / "model.safetensors").read_bytes()).hexdigest()
            for name in ("actor", "critic")
        },
    }
    write_atomically(output_dir / "origin.json", json.dumps(origin, indent=2) + "\n")
    return origin


def _frozen_trials(
    config: Config, policy: PolicyFiles, settings: CriticSettings, seed: int
) -> list[Sample]:
    """Trials of the frozen actor on training tasks, in a fixed order of completion."""
    config = config.model_copy(update={"deterministic": True, "seed": seed})
    pool_path = ensure_pool(config.pool)
    pool = Pool.open(pool_path)
    cursor = TaskCursor()
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="t1-warm-start-") as folder:
        run = RunDirectory.create(Path(folder), config)
        try:
            with session.open_rollout(config, policy, pool_path, run) as rollout:
                publish_actor_now(rollout, policy.model, 0)
                for number in range((settings.trials + settings.fresh_trials) // _WARM_UP_BATCH):
                    tasks, cursor = cursor.take(pool, seed, _WARM_UP_BATCH)
                    collected: Collected = rollout.call(Collect(number, tasks, _WARM_UP_BATCH))
                    samples.extend(collected.samples)
        finally:
            run.close()
    return samples
