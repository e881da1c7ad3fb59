"""What the verbs of `t1` do, as functions that return plain results."""

import dataclasses
import hashlib
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from t1_reward import Pool
from t1_reward.synthesis import vocabulary_pieces
from t1_trainer import session
from t1_trainer.checkpoints import policy_directory
from t1_trainer.config import Config, PolicyConfig
from t1_trainer.config_files import dump_config, load_config
from t1_trainer.critic_warm_up import (
    CriticReport,
    CriticSettings,
    critic_from_actor,
    warm_up_critic,
)
from t1_trainer.display import open_display
from t1_trainer.errors import ConfigError, RolloutFailed
from t1_trainer.evaluation import Evaluation
from t1_trainer.fidelity import join_gaps, measure_gaps
from t1_trainer.fidelity_summary import summarize_gaps
from t1_trainer.files import json_text, write_atomically
from t1_trainer.policy import MoEConfig, PolicyFiles, Tokenizer, save_policy
from t1_trainer.policy.storage import save_weights
from t1_trainer.publish import publish_actor
from t1_trainer.retokenization import Retokenizer
from t1_trainer.rollout.messages import Attempt, Collect, Collected, Evaluate
from t1_trainer.run_directory import RunDirectory, require_unused
from t1_trainer.samples import Sample
from t1_trainer.task_order import TaskCursor
from t1_trainer.warm_start import SupervisedReport, SupervisedSettings, train_supervised

__all__ = [
    "EvaluationRequest",
    "FidelityRequest",
    "dry_run",
    "evaluate",
    "fidelity",
    "resume",
    "train",
    "warm_start",
]

_AGENTS = ("policy", "oracle", "noop")
_ORIGIN = "origin.json"
_FROZEN_BATCH = 96
_LEAST_TRIALS = 2


def train(config: Config, path: Path, *, from_scratch: bool, quiet: bool) -> dict[str, Any]:
    """A new run in `path`; returns its summary.

    Whatever can be refused is refused before the directory exists.
    """
    if from_scratch:
        own = _own_warm_start(path)
        policy = PolicyConfig(actor=str(own / "actor"), critic=str(own / "critic"))
        config = config.model_copy(update={"policy": policy})
    require_unused(path)
    with open_display(config.steps, quiet=quiet) as display:
        display.phase("preparing the task pool")
        session.open_tasks(config)
        if not from_scratch:
            session.load_critic(config, session.load_actor(config).model)
        return _carry_out(RunDirectory.create(path, config), display)


def resume(path: Path, *, quiet: bool) -> dict[str, Any]:
    """Continue the run in `path`; returns its summary."""
    run = RunDirectory.open(path)
    with open_display(run.config.steps, quiet=quiet) as display:
        return _carry_out(run, display)


def _carry_out(run: RunDirectory, display: session.AnyDisplay) -> dict[str, Any]:
    """What is left of a run, its own warm start included."""
    try:
        config, own = run.config, _own_warm_start(run.path)
        if config.policy.actor == str(own / "actor") and not (own / _ORIGIN).is_file():
            command = "t1 train --from-scratch, with the settings of the run's config.toml"
            _build_warm_start(own, config, command, display)
        return session.carry_out(run, display)
    finally:
        run.close()


def _own_warm_start(run: Path) -> Path:
    return run.resolve() / "warm_start"


def dry_run(config: Config) -> dict[str, Any]:
    """Build everything a run needs and solve one held-out task with its reference solution.

    Raises:
        RolloutFailed: the reference solution does not pass, or the rollout process cannot start.
    """
    tasks, policy = session.open_tasks(config), session.load_actor(config)
    session.load_critic(config, policy.model)
    wanted = Evaluate("dry-run", tasks.heldout[:1], 1, 1.0, "oracle")
    with tempfile.TemporaryDirectory(prefix="t1-dry-run-") as folder:
        attempts = _attempts(config, policy, tasks.pool, wanted, Path(folder), quiet=True)
    if not attempts[0].resolved:
        raise RolloutFailed(
            f"the reference solution of {wanted.task_ids[0]} does not pass here: "
            f"{attempts[0].cause or 'wrong'}"
        )
    return {
        "status": "everything a run needs works here",
        "policy": config.policy.actor,
        "parameters": sum(p.numel() for p in policy.model.parameters()),
        "pool": str(tasks.pool.directory),
        "training tasks": len(tasks.pool.ids("train")),
        "held-out tasks": len(tasks.heldout),
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
    """Run held-out tasks; keeps trials and `evaluation.json` in `output_dir`; returns the rates.

    Raises:
        ConfigError: an unknown agent, a checkpoint that cannot be meant, or too many tasks.
        RolloutFailed: no attempt has a verdict.
    """
    if request.agent not in _AGENTS:
        raise ConfigError(f"--agent {request.agent!r}: expected one of {', '.join(_AGENTS)}")
    config = _evaluated_config(request)
    require_unused(output_dir)
    tasks, policy = session.open_tasks(config), session.load_actor(config)
    wanted = Evaluate("eval", tasks.heldout, request.attempts, request.temperature, request.agent)
    attempts = _attempts(config, policy, tasks.pool, wanted, output_dir, quiet=quiet)
    evaluation = Evaluation({request.agent: attempts})
    stored = {**evaluation.to_json(), "config": dump_config(config)}
    write_atomically(output_dir / "evaluation.json", json_text(stored))
    return {"agent": request.agent, **evaluation.summary()[request.agent]}


def _evaluated_config(request: EvaluationRequest) -> Config:
    """Configuration whose `policy.actor` is what is evaluated."""
    run = None if request.run is None else RunDirectory.open(request.run, lock=False)
    of_run = run is not None and request.agent == "policy"
    if request.checkpoint is not None and not of_run:
        raise ConfigError(f"--checkpoint {request.checkpoint}: needs a run and --agent policy")
    config = load_config([]) if run is None else run.config
    evaluation = config.evaluation.model_copy(update={"tasks": request.tasks})
    config = config.model_copy(update={"evaluation": evaluation})
    if run is None or not of_run:
        return config
    actor = policy_directory(run.path / "checkpoints", request.checkpoint)
    policy = config.policy.model_copy(update={"actor": str(actor)})
    return config.model_copy(update={"policy": policy})


def _attempts(
    config: Config,
    policy: PolicyFiles,
    pool: Pool,
    request: Evaluate,
    output_dir: Path,
    *,
    quiet: bool,
) -> list[Attempt]:
    """Run one evaluation."""
    torch.set_num_threads(1)
    with (
        open_display(config.steps, quiet=quiet) as display,
        session.open_rollout(config, policy, pool, output_dir) as rollout,
    ):
        display.watch(lambda: rollout.progress)
        display.phase(f"evaluating {len(request.task_ids)} held-out tasks")
        publish_actor(rollout, policy.model, 0)
        return rollout.call(request)


def warm_start(output_dir: Path, seed: int, *, quiet: bool) -> dict[str, Any]:
    """Train the warm start and its critic; returns what `origin.json` records."""
    config = load_config([]).model_copy(update={"seed": seed})
    command = f"t1 warm-start OUTPUT_DIR --seed {seed}"
    with open_display(config.steps, quiet=quiet) as display:
        return _build_warm_start(output_dir, config, command, display)


def _build_warm_start(
    output_dir: Path, config: Config, command: str, display: session.AnyDisplay
) -> dict[str, Any]:
    """Write `actor/`, `critic/` and, last, `origin.json`; returns what that records.

    Args:
        output_dir: where to.
        config: its seed, and the pool, limits and reward that the critic has to explain.
        command: what a person types to repeat it.
        display: for people.
    """
    torch.set_num_threads(1)
    settings, critic_settings = (
        SupervisedSettings(seed=config.seed),
        CriticSettings(seed=config.seed),
    )
    policy = _supervised_policy(config, settings, display)
    save_policy(policy, output_dir / "actor")
    display.phase("collecting trials for the critic")
    wanted = critic_settings.trials + critic_settings.fresh_trials
    samples = _frozen_trials(config, policy, wanted)
    critic = critic_from_actor(policy.model)
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
        "command": command,
        "seed": config.seed,
        "supervised": dataclasses.asdict(settings),
        "critic": dataclasses.asdict(critic_settings),
        "critic_explained_variance_by_epoch": [round(x, 4) for x in explained],
        "sha256": {
            name: hashlib.sha256((output_dir / name / "model.safetensors").read_bytes()).hexdigest()
            for name in ("actor", "critic")
        },
    }
    write_atomically(output_dir / _ORIGIN, json_text(origin, indent=2) + "\n")
    return origin


def _supervised_policy(
    config: Config, settings: SupervisedSettings, display: session.AnyDisplay
) -> PolicyFiles:
    def on_step(report: SupervisedReport) -> None:
        if report.step % 50 == 0 or report.step == settings.steps - 1:
            display.phase(
                f"supervised step {report.step}/{settings.steps}: loss {report.loss:.3f}, "
                f"accuracy {report.accuracy:.3f}"
            )

    tokenizer = Tokenizer(vocabulary_pieces())
    actor = train_supervised(
        MoEConfig(vocab_size=len(tokenizer)),
        tokenizer,
        settings,
        max_observation_tokens=config.rollout.max_observation_tokens,
        on_step=on_step,
    )
    return PolicyFiles(actor, tokenizer)


def _frozen_trials(config: Config, policy: PolicyFiles, wanted: int) -> list[Sample]:
    """Trials of a frozen actor on training tasks, in a fixed order of completion."""
    config = config.model_copy(update={"deterministic": True})
    pool = session.open_tasks(config).pool
    # deterministic mode runs all trials of a request at once
    size = min(_FROZEN_BATCH, config.rollout.max_sandboxes)
    cursor = TaskCursor()
    samples: list[Sample] = []
    with (
        tempfile.TemporaryDirectory(prefix="t1-trials-") as folder,
        session.open_rollout(config, policy, pool, Path(folder)) as rollout,
    ):
        publish_actor(rollout, policy.model, 0)
        for number, done in enumerate(range(0, wanted, size)):
            tasks, cursor = cursor.take(pool, config.seed, min(size, wanted - done))
            collected: Collected = rollout.call(Collect(number, tasks, len(tasks)))
            samples.extend(collected.samples)
    return samples


@dataclass(frozen=True)
class FidelityRequest:
    """What `t1 fidelity` is asked for."""

    policy: str
    trials: int
    seed: int
    temperature: float


def fidelity(request: FidelityRequest, *, quiet: bool) -> dict[str, Any]:
    """Roll out trials and measure how far the trainer is from the sampler; returns the figures.

    Raises:
        PolicyFormatError: `policy` is not a policy directory.
        RolloutFailed: no trial has a verdict.
    """
    preset = load_config([])
    config = preset.model_copy(
        update={
            "seed": request.seed,
            "policy": preset.policy.model_copy(update={"actor": request.policy}),
            "rollout": preset.rollout.model_copy(update={"temperature": request.temperature}),
        }
    )
    policy = session.load_actor(config)
    torch.set_num_threads(1)
    with open_display(config.steps, quiet=quiet) as display:
        display.phase(f"rolling out {request.trials} trials")
        samples = _frozen_trials(config, policy, request.trials)
        if len({sample.trial_key for sample in samples}) < _LEAST_TRIALS:
            raise RolloutFailed("fewer than two trials have a verdict: there is no interval")
        display.phase(f"measuring {len(samples)} samples")
        retokenizer = Retokenizer(policy.tokenizer)
        parts = [
            measure_gaps(
                policy.model, samples[i : i + _FROZEN_BATCH], retokenizer, request.temperature
            )
            for i in range(0, len(samples), _FROZEN_BATCH)
        ]
    measured = summarize_gaps(join_gaps(parts), request.seed)
    asked = {"policy": request.policy, "seed": request.seed, "temperature": request.temperature}
    return {**asked, "sampler_dtype": config.rollout.sampler_dtype, **measured}
