"""What the page charts: which numbers of `metrics.jsonl`, under which names.

Keys that a run does not have are shown as not measured; a chart without any says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from t1_trainer.report.series import Measure

__all__ = ["LAUNCHED", "SECTIONS", "STEP_PARTS", "STEP_WHOLE", "Chart"]

LAUNCHED = "launched"
"""Key under which the page adds the configured number of launched trials to each record."""


@dataclass(frozen=True)
class Chart:
    """A line chart; see `line_chart` for the fields after `measures`."""

    title: str
    note: str
    unit: str
    measures: Sequence[Measure]
    percent: bool = False
    hold: Sequence[float] = ()
    least: float | None = None


_LEARNING = (
    Chart(
        "Reward",
        "Mean over a step's admitted trials.",
        "reward",
        (Measure("mean reward", "reward/mean"),),
    ),
    Chart(
        "Resolved",
        "Share of a step's admitted trials whose every assertion passed (training tasks).",
        "%",
        (Measure("resolved", "reward/resolved"),),
        percent=True,
    ),
    Chart(
        "Explained variance of the critic",
        "On each step's fresh trials, before the critic learns from them; 1 is perfect, below 0 is "
        "worse than one constant. Drawn down to -1.",
        "",
        (
            Measure("critic", "critic/explained_variance"),
            Measure("cold critic", "critic/explained_variance_cold"),
        ),
        hold=(0.0,),
        least=-1.0,
    ),
)

_FIDELITY = (
    Chart(
        "Gap between trainer and sampler",
        "Mean |log p(trainer) - log p(sampler)| of sampled tokens.",
        "nats",
        (
            Measure("text tokenized again, free routing", "gap/logprob_retokenized"),
            Measure("sampled token ids, free routing", "gap/logprob_free"),
            Measure("sampled token ids, replayed routing", "gap/logprob_replay"),
        ),
        hold=(0.0,),
    ),
    Chart(
        "Largest gap",
        "Greatest |log p(trainer) - log p(sampler)| among a step's tokens, under replay.",
        "nats",
        (Measure("largest", "gap/logprob_max"),),
        hold=(0.0,),
    ),
    Chart(
        "Routing disagreement",
        "Share of expert choices in which trainer and sampler differ.",
        "%",
        (
            Measure("free routing", "gap/routing_disagreement_free"),
            Measure("replayed routing", "gap/routing_disagreement_replay"),
        ),
        percent=True,
        hold=(0.0,),
    ),
)

_UPDATES = (
    Chart(
        "Clipped",
        "Share of tokens whose update a clip cut off.",
        "%",
        (
            Measure("policy ratio", "policy/clip_fraction"),
            Measure("critic value", "critic/clip_fraction"),
        ),
        percent=True,
        hold=(0.0,),
    ),
    Chart(
        "Gradient norm of the policy",
        "Before the norm is limited.",
        "",
        (Measure("gradient norm", "policy/grad_norm"),),
        hold=(0.0,),
    ),
    Chart(
        "Entropy",
        "Mean -log p of sampled tokens under the sampling policy.",
        "nats",
        (Measure("entropy estimate", "rollout/entropy_estimate"),),
        hold=(0.0,),
    ),
)

_TRIALS = (
    Chart("Turns", "Mean per trial.", "turns", (Measure("turns", "rollout/turns_mean"),)),
    Chart(
        "Tokens",
        "Per admitted trial: all of them, and those sampled by the policy.",
        "tokens",
        (
            Measure("all", "rollout/tokens", per="rollout/admitted"),
            Measure("sampled", "rollout/trained_tokens", per="rollout/admitted"),
        ),
        hold=(0.0,),
    ),
    Chart(
        "Lost and rescued trials",
        "Cancelled because the batch was full and invalid for want of a verdict, of launched "
        "trials; scored by the fallback rule, of admitted ones.",
        "%",
        (
            Measure("cancelled", "rollout/cancelled", per=LAUNCHED),
            Measure("invalid", "rollout/invalid", per=LAUNCHED),
            Measure("fallback", "rollout/fallback", per="rollout/admitted"),
        ),
        percent=True,
        hold=(0.0,),
    ),
)

_TIME = (
    Chart(
        "Rollout beside training",
        "A step waits for whichever takes longer: its updates or the rollout of the next step. CPU "
        "seconds may exceed a step's wall seconds: they are spent on every core at once.",
        "s",
        (
            Measure("whole step", "time/step_s"),
            Measure("rollout", "time/rollout_s"),
            Measure("rollout process, CPU", "time/rollout_cpu_s"),
            Measure("sandboxes, CPU", "time/sandbox_cpu_s"),
            Measure("trainer process, CPU", "time/cpu_s"),
        ),
        hold=(0.0,),
    ),
    Chart(
        "Overlap",
        "Share of what rollout and training could hide behind each other that they did.",
        "",
        (Measure("overlap ratio", "time/overlap_ratio"),),
        hold=(0.0, 1.0),
    ),
)

SECTIONS = {
    "Learning": _LEARNING,
    "Agreement of trainer and sampler": _FIDELITY,
    "Updates": _UPDATES,
    "Trials": _TRIALS,
    "Time": _TIME,
}

STEP_PARTS = (
    Measure("critic", "time/critic_s"),
    Measure("old log-probs", "time/old_logprobs_s"),
    Measure("policy", "time/actor_s"),
    Measure("diagnostics", "time/diagnostics_s"),
    Measure("waiting for the rollout", "time/wait_for_rollout_s"),
    Measure("publishing weights", "time/publish_s"),
)
STEP_WHOLE = Measure("whole step", "time/step_s")
