"""From turns to training samples: the sampler's ids and experts, or an error with the cause."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_eval import AgentRun, StopReason, TrialResult
from t1_r3 import RoutingSpec
from t1_reward import RewardRecord
from t1_trainer.batch import Batch
from t1_trainer.config import Config, RolloutConfig
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.errors import CaptureError
from t1_trainer.learner import Learner
from t1_trainer.policy.rounding import exact, to_bfloat16
from t1_trainer.rollout.engine import RoutedExperts
from t1_trainer.samples import samples_of_trial

SPEC = RoutingSpec(num_experts=8, top_k=2, moe_layers=(0, 1, 2))
REWARD = RewardRecord(
    passed=3,
    total=5,
    scale=20,
    binary=0,
    reward=0.15,
    cause="ok",
    variant="test_count",
    fallback="scaled",
)


def trial_of(turns, key: str = "s00001-000-task") -> TrialResult:
    run = AgentRun(tuple(turns), StopReason.EXIT)
    return TrialResult(key, "task", "0" * 64, ("files",), 2, run, REWARD, "")


def conversation(model, make_engine, converse, turns, seed, rounded=exact, temperature=1.0):
    async def main():
        async with make_engine(model, rounded=rounded) as engine:
            return await converse(engine, "a", turns, seed, temperature)

    return asyncio.run(main())


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(0, 50))
def test_a_trial_is_one_sample_on_the_sampled_ids(make_model, make_engine, converse, turns, seed):
    run = conversation(make_model(), make_engine, converse, turns, seed)
    (sample,) = samples_of_trial(trial_of(run), SPEC)
    last = run[-1].tokens
    assert sample.tokens.tolist() == [*last.prompt_ids.tolist(), *last.completion_ids.tolist()]
    sampled = np.concatenate([t.tokens.completion_ids for t in run])
    assert sample.tokens[sample.loss_mask].tolist() == sampled.tolist()
    reported = np.concatenate([t.tokens.logprobs for t in run])
    assert sample.logprobs[sample.loss_mask].tolist() == reported.tolist()
    assert len(sample.routed_experts) == len(sample.tokens) - 1
    captured = np.concatenate([t.payload.rows for t in run])
    assert np.array_equal(sample.routed_experts, captured)
    assert (sample.reward, sample.passed, sample.total, sample.resolved) == (0.15, 3, 5, False)


def gap_of(model, samples, temperature=1.0):
    config = Config(rollout=RolloutConfig(temperature=temperature))
    learner = Learner(model, critic_from_actor(model), config)
    return learner.gap(Batch(tuple(samples)), len(samples))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_trainer_reproduces_a_float32_sampler(make_model, make_engine, converse, temperature):
    run = conversation(make_model(), make_engine, converse, 4, 0, temperature=temperature)
    samples = samples_of_trial(trial_of(run), SPEC)
    report = gap_of(make_model(), samples, temperature)
    assert report.replay_disagreement == report.routing_disagreement == 0
    assert report.replay < 2e-5
    # the defect: the policy of another temperature is another policy
    assert gap_of(make_model(), samples, 1.3).replay > 100 * report.replay


def test_a_bfloat16_sampler_leaves_a_gap_that_replay_narrows(make_model, make_engine, converse):
    model = make_model()
    # at initialisation experts hardly differ; after training a wrong expert costs something
    with torch.no_grad():
        for layer in model.moe_layers():
            layer.gate_up *= 8
            layer.down *= 8
    samples = [
        sample
        for seed in range(8)
        for sample in samples_of_trial(
            trial_of(conversation(model, make_engine, converse, 4, seed, to_bfloat16)), SPEC
        )
    ]
    report = gap_of(model, samples)
    assert report.replay_disagreement == 0
    assert report.routing_disagreement > 0
    assert 2e-5 < report.replay < 0.8 * report.free


def test_rows_shifted_by_one_are_noticed(make_model, make_engine, converse):
    run = conversation(make_model(), make_engine, converse, 4, 0)
    (sample,) = samples_of_trial(trial_of(run), SPEC)
    shifted = dataclasses.replace(sample, routed_experts=np.roll(sample.routed_experts, 1, axis=0))
    assert gap_of(make_model(), [shifted]).replay > 100 * gap_of(make_model(), [sample]).replay


def changed(turn, **fields):
    return dataclasses.replace(turn, **fields)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t: changed(t, tokens=None), "turn 1 has no token ids"),
        (lambda t: changed(t, payload=None), "turn 1 has no routed experts"),
        (
            lambda t: changed(t, payload=RoutedExperts(t.payload.rows[:-1], t.payload.start)),
            "got .* rows",
        ),
        (
            lambda t: changed(
                t, payload=RoutedExperts(t.payload.rows.astype(np.int32) + 300, t.payload.start)
            ),
            "trial s00001-000-task: .*below 8",
        ),
        (
            lambda t: changed(t, payload=RoutedExperts(t.payload.rows * 0, t.payload.start)),
            "trial s00001-000-task: .*different experts",
        ),
        (
            lambda t: changed(t, payload=RoutedExperts(t.payload.rows[1:], t.payload.start + 1)),
            "trial s00001-000-task: ",
        ),
        (
            lambda t: changed(t, tokens=dataclasses.replace(t.tokens, version_received=1)),
            "version",
        ),
    ],
)
def test_a_defective_capture_aborts_with_its_cause(
    make_model, make_engine, converse, damage, message
):
    first, second, third = conversation(make_model(), make_engine, converse, 3, 0)
    with pytest.raises(CaptureError, match=message):
        samples_of_trial(trial_of([first, damage(second), third]), SPEC)


def test_a_trial_that_spans_two_versions_is_refused(make_model, make_engine, converse):
    first, second = conversation(make_model(), make_engine, converse, 2, 0)
    newer = dataclasses.replace(second.tokens, version_sent=1, version_received=1)
    with pytest.raises(CaptureError, match="version"):
        samples_of_trial(trial_of([first, changed(second, tokens=newer)]), SPEC)
