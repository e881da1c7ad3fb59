"""The configuration of a run: one frozen pydantic model, importable without torch.

Units are in the names (`_s` seconds, `_tokens`, `_bytes`). `mini` is the default preset: everything
embedded, two CPU cores, no network. `t1_trainer.config_files` reads TOML and overrides into it.
"""

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "CheckpointConfig",
    "Config",
    "DiagnosticsConfig",
    "EvaluationConfig",
    "OptimizerConfig",
    "PPOConfig",
    "PolicyConfig",
    "PoolConfig",
    "RewardConfig",
    "RolloutConfig",
]

Positive = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class _Section(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


class PolicyConfig(_Section):
    """Where the run starts from."""

    actor: str = "builtin:mini/actor"
    """Policy directory of the warm-started actor; `builtin:` names package data."""
    critic: str = "builtin:mini/critic"
    """Weights directory of the warmed critic; `actor` copies the actor and adds a zero value head."""


class PoolConfig(_Section):
    """The task pool: generated into the cache directory, or an existing directory."""

    path: Path | None = None
    """An existing pool directory; none generates one (cached by the settings below)."""
    train_tasks: Positive = 3072
    """Training tasks to generate."""
    heldout_tasks: Positive = 256
    """Held-out tasks to generate; names, values and skill pairs are disjoint from training."""
    seed: int = 0
    """Seed of the generators."""


class RewardConfig(_Section):
    """Reward of a trial: r = P / S, passed assertions over a scale that is fixed for the run."""

    scale: Positive = 20
    """S. The paper uses 20, the 90th percentile of its pool; `mini` uses its own pool's."""
    variant: Literal["test_count", "binary"] = "test_count"
    """`test_count` is P / S; `binary` is the verifier's terminal outcome."""
    fallback: Literal["scaled", "paper"] = "scaled"
    """What a verdict without a report earns: b * T / S, or the paper's b."""


class RolloutConfig(_Section):
    """Trials of one step."""

    batch_size: Positive = 96
    """B, trials admitted per step."""
    oversampling: Annotated[float, Field(ge=0)] = 0.1
    """Share launched beyond B; the first B to complete are admitted, the rest cancelled."""
    temperature: PositiveFloat = 1.0
    """Sampling temperature during training."""
    max_turns: Positive = 14
    """Commands per trial, the final `exit` included."""
    max_completion_tokens: Positive = 24
    """Sampled ids per command."""
    max_observation_tokens: Positive = 32
    """Ids of terminal output shown per command."""
    max_context_tokens: Positive = 400
    """Ids of a whole conversation."""
    command_timeout_s: PositiveFloat = 2.0
    """Bound on one command."""
    max_output_bytes: Positive = 4096
    """Bytes of output kept per command."""
    agent_timeout_s: PositiveFloat = 120.0
    """Deadline of one trial's turns."""
    verifier_timeout_s: PositiveFloat = 10.0
    """Deadline of one verification."""
    create_rate_per_s: PositiveFloat = 400.0
    """Sandbox creations per second (token bucket)."""
    create_burst: Positive = 32
    """Creations that may follow each other at once."""
    max_sandboxes: Positive = 128
    """Sandboxes alive at once, those being deleted included."""
    gather: Share = 0.25
    """Share of the idle sessions that must wait before the sampler admits them as one batch."""
    sampler_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Arithmetic of the sampler; the trainer is float32."""


class OptimizerConfig(_Section):
    """Adam with decoupled weight decay."""

    actor_lr: PositiveFloat = 1e-6
    """The paper's value; `mini` needs far more at its scale."""
    critic_lr: PositiveFloat = 1.5e-5
    """The paper's value."""
    final_actor_lr_share: Share = 1.0
    """What is left of actor_lr at the last step, after a linear decay; the paper's rate is constant."""
    beta1: Decay = 0.9
    """First-moment decay."""
    beta2: Decay = 0.98
    """Second-moment decay."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Decoupled weight decay."""
    max_grad_norm: PositiveFloat | None = None
    """Clip the global gradient norm; the paper does not mention clipping, `mini` needs it."""


class PPOConfig(_Section):
    """The algorithm of one step."""

    clip_low: PositiveFloat = 0.2
    """Policy ratio acts down to 1 - clip_low."""
    clip_high: PositiveFloat = 0.2
    """Policy ratio acts up to 1 + clip_high."""
    value_clip: PositiveFloat = 0.2
    """How far a value may move from its pre-update value within a step."""
    gamma: Share = 1.0
    """Discount per trainable token."""
    lam: Share = 1.0
    """Lambda of the advantage estimator."""
    actor_minibatches: Positive = 1
    """Optimizer steps of the actor per batch."""
    critic_minibatches: Positive = 1
    """Optimizer steps of the critic per batch."""
    micro_batch_trials: Positive = 96
    """Trials per forward and backward pass; does not change the gradient."""
    critic_only_steps: Annotated[int, Field(ge=0)] = 2
    """First steps that only re-calibrate the critic."""


class EvaluationConfig(_Section):
    """Held-out evaluation before and after training."""

    tasks: Annotated[int, Field(ge=2)] | None = None
    """Held-out tasks to use, at least two for an interval; none uses all."""
    attempts: Annotated[int, Field(ge=0)] = 3
    """Sampled attempts per task."""
    temperature: PositiveFloat = 1.0
    """Temperature of the sampled attempts."""
    greedy: bool = True
    """Also run one greedy attempt per task."""


class CheckpointConfig(_Section):
    """What is kept for resuming."""

    every_steps: Positive = 5
    """Steps between resumable checkpoints."""
    keep: Positive = 2
    """Resumable checkpoints kept; weights of every checkpoint stay."""


class DiagnosticsConfig(_Section):
    """Measurements that change nothing: weights are bit-equal with them on and off."""

    enabled: bool = True
    """Measure the gap's parts (text kept, ids kept, replay) and the routing disagreement each step."""
    trials: Positive = 16
    """Trials of the batch they are measured on."""
    cold_critic: bool = False
    """Train a second critic from a random head, feeding nothing back; costs a second critic update."""


class Config(_Section):
    """A whole run."""

    seed: int = 0
    """Fixes task order, sampling and minibatches."""
    steps: Positive = 60
    """Training steps, critic-only steps included."""
    deterministic: bool = False
    """Fix batch composition and completion order: slower, and equal bit for bit when repeated."""
    policy: PolicyConfig = PolicyConfig()
    pool: PoolConfig = PoolConfig()
    reward: RewardConfig = RewardConfig()
    rollout: RolloutConfig = RolloutConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    ppo: PPOConfig = PPOConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    diagnostics: DiagnosticsConfig = DiagnosticsConfig()

    def contradictions(self) -> list[str]:
        """What two settings say against each other, one line each, naming both."""
        rollout, ppo = self.rollout, self.ppo
        found: list[str] = []
        if self.launched_trials > rollout.max_sandboxes and self.deterministic:
            found.append(
                f"deterministic mode starts all trials of a step together: rollout.max_sandboxes "
                f"({rollout.max_sandboxes}) must be at least the {self.launched_trials} trials "
                "that rollout.batch_size and rollout.oversampling launch"
            )
        if rollout.max_completion_tokens >= rollout.max_context_tokens:
            found.append(
                f"rollout.max_completion_tokens ({rollout.max_completion_tokens}) must be less "
                f"than rollout.max_context_tokens ({rollout.max_context_tokens})"
            )
        if ppo.critic_only_steps > self.steps:
            found.append(
                f"ppo.critic_only_steps ({ppo.critic_only_steps}) must not exceed steps "
                f"({self.steps})"
            )
        return found

    @property
    def launched_trials(self) -> int:
        """Trials launched per step, ceil((1 + oversampling) * batch_size)."""
        # 1.1 * 10 is a little above 11 in floating point
        return math.ceil(round(self.rollout.batch_size * (1 + self.rollout.oversampling), 6))
