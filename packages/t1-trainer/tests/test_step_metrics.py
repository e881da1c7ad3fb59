"""What a step records about its batch."""

from dataclasses import replace

from t1_trainer.rollout.messages import Collected, Retention
from t1_trainer.trainer import _rollout_metrics


def collected_of(samples) -> Collected:
    return Collected(
        samples=tuple(samples),
        admitted=tuple(s.task_id for s in samples),
        cancelled=("late",),
        invalid=(),
        retention={"files": Retention(launched=4, admitted=3)},
        seconds=1.0,
        cpu_seconds=0.5,
        statistics={"time/sandbox_cpu_s": 2.0},
    )


def test_fallback_counts_the_trials_whose_reward_has_no_report(make_samples):
    samples = make_samples(0, (5, 6, 7))
    assert _rollout_metrics(collected_of(samples))["rollout/fallback"] == 0
    unreported = [replace(samples[0], passed=None), replace(samples[1], passed=None), samples[2]]
    # a trial of two sequences counts once
    unreported.append(replace(samples[0], passed=None))
    assert _rollout_metrics(collected_of(unreported))["rollout/fallback"] == 2


def test_what_the_rollout_counted_and_the_retention_are_kept(make_samples):
    metrics = _rollout_metrics(collected_of(make_samples(0, (5, 6))))
    assert metrics["time/sandbox_cpu_s"] == 2.0
    assert metrics["retention/files"] == 0.75
    assert metrics["rollout/cancelled"] == 1
