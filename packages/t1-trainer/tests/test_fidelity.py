"""The gap between trainer and sampler in its parts, on the shipped policy without a sandbox."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch

from t1_eval import GenerateRequest
from t1_reward.synthesis import generate_task
from t1_trainer.batch import Batch
from t1_trainer.config import Config
from t1_trainer.config_files import load_config
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.fidelity import TokenGaps, join_gaps, measure_gaps
from t1_trainer.fidelity_summary import fidelity_text, summarize_gaps
from t1_trainer.learner import Learner
from t1_trainer.policy import ChatFormat, PolicyFiles
from t1_trainer.policy.decoder import CachedDecoder
from t1_trainer.policy.rounding import exact, to_bfloat16
from t1_trainer.policy.tokenizer import END
from t1_trainer.retokenization import Retokenizer
from t1_trainer.rollout.engine import LocalEngine
from t1_trainer.samples import Sample
from t1_trainer.session import load_actor
from t1_trainer.trainer import Trainer, TrainingState, _Clock

TRIALS, TURNS = 48, 4
TEMPERATURE = 1.5


@pytest.fixture(scope="module")
def policy() -> PolicyFiles:
    return load_actor(load_config([]))


async def _conversation(engine: LocalEngine, chat: ChatFormat, number: int) -> Sample:
    """A trial whose terminal always answers the same."""
    task = generate_task(number, "train")
    tokens = chat.render_instruction(task.instruction)
    mask, logprobs = [False] * len(tokens), [0.0] * len(tokens)
    rows = []
    async with engine.session(str(number)):
        for turn in range(TURNS):
            request = GenerateRequest(
                str(number), np.asarray(tokens, np.int32), 24, TEMPERATURE, seed=99 * number + turn
            )
            completion = await engine.generate(request)
            rows.append(completion.payload.rows)
            seen = [] if turn == TURNS - 1 else chat.render_observation("notes.txt", turn, 32)
            tokens += [*completion.ids.tolist(), *seen]
            mask += [True] * len(completion.ids) + [False] * len(seen)
            logprobs += [*completion.logprobs.tolist(), *[0.0] * len(seen)]
            if completion.ids[-1] != END:
                # as in a real trial, nothing follows a completion that was cut short
                tokens, mask, logprobs = (
                    part[: len(part) - len(seen)] for part in (tokens, mask, logprobs)
                )
                break
    return Sample(
        trial_key=f"trial-{number}",
        task_id=f"task-{number}",
        families=("files",),
        length=1,
        tokens=np.array(tokens, np.int32),
        loss_mask=np.array(mask),
        logprobs=np.array(logprobs, np.float32),
        routed_experts=np.concatenate(rows),
        reward=(number % 4) / 3,
        passed=number % 4,
        total=3,
        resolved=number % 4 == 3,
        turns=TURNS,
        weight_version=0,
    )


def rolled_out(policy: PolicyFiles, rounded) -> list[Sample]:
    decoder = CachedDecoder(policy.model.config, capacity=TRIALS, max_length=512, rounded=rounded)
    engine = LocalEngine(decoder, stop_ids=ChatFormat.stop_ids, gather=1.0)
    engine.load(policy.model.state_dict(), 0)

    async def run() -> list[Sample]:
        async with engine:
            chat = ChatFormat(policy.tokenizer)
            return await asyncio.gather(*(_conversation(engine, chat, n) for n in range(TRIALS)))

    return asyncio.run(run())


@pytest.fixture(scope="module")
def samples(policy) -> list[Sample]:
    """Trials of the shipped policy, sampled in bfloat16 and unsure of itself."""
    return rolled_out(policy, to_bfloat16)


@pytest.fixture(scope="module")
def gaps(policy, samples) -> TokenGaps:
    return measure_gaps(policy.model, samples, Retokenizer(policy.tokenizer), TEMPERATURE)


def test_text_is_worse_than_ids_and_ids_are_worse_than_ids_with_experts(gaps):
    summary = summarize_gaps(gaps, 0)
    for tokens in (summary["all_tokens"], summary["flipped_tokens"]):
        assert tokens["none"]["mean"] > tokens["tito"]["mean"] > tokens["both"]["mean"] > 0
    assert summary["all_tokens"]["none_minus_tito"]["low"] > 0
    assert summary["flipped_tokens"]["tito_minus_both"]["low"] > 0
    assert summary["routing_disagreement_free"] > summary["routing_disagreement_replay"] == 0
    assert 0 < summary["commands_drifted_share"] < 0.5
    assert summary["commands"] >= TRIALS


def test_where_nothing_drifted_text_costs_nothing(gaps):
    sample_M = np.repeat(np.arange(TRIALS), gaps.counts_B)
    clean_M = gaps.drifted_B[sample_M] == 0
    assert clean_M.any()
    assert np.array_equal(gaps.retokenized_M[clean_M], gaps.free_M[clean_M])
    assert not np.array_equal(gaps.retokenized_M[~clean_M], gaps.free_M[~clean_M])


def test_replay_closes_the_gap_of_flipped_tokens_and_hardly_changes_the_others(gaps):
    flipped = gaps.flipped_M
    assert gaps.free_M[flipped].mean() > 4 * gaps.replay_M[flipped].mean()
    # a flip of an earlier token reaches later ones through attention, weakly
    assert gaps.free_M[~flipped].mean() < 2 * gaps.replay_M[~flipped].mean()


def test_a_float32_sampler_leaves_nothing_but_what_text_loses(policy):
    measured = measure_gaps(
        policy.model, rolled_out(policy, exact), Retokenizer(policy.tokenizer), TEMPERATURE
    )
    assert measured.differs_free == 0
    assert measured.free_M.max() < 1e-3
    assert measured.retokenized_M.mean() > 100 * measured.free_M.mean()


def test_parts_measured_apart_join_to_the_whole(policy, samples, gaps):
    retokenizer = Retokenizer(policy.tokenizer)
    parts = [
        measure_gaps(policy.model, samples[a:b], retokenizer, TEMPERATURE)
        for a, b in ((0, 5), (5, TRIALS))
    ]
    joined = join_gaps(parts)
    for name in ("retokenized_M", "free_M", "replay_M"):
        assert np.allclose(getattr(joined, name), getattr(gaps, name), atol=1e-4)
    for name in ("flipped_M", "counts_B", "completions_B", "drifted_B", "inputs"):
        assert np.array_equal(getattr(joined, name), getattr(gaps, name))
    assert joined.differs_free == pytest.approx(gaps.differs_free)


def test_text_that_outgrows_the_model_is_cut_where_it_ends(policy, samples):
    sample = samples[0]
    # bytes that are no text: each comes back as three
    noise = np.full(220, policy.tokenizer.encode("\x01")[0] + 0xF0, np.int32)
    tokens = np.concatenate([sample.tokens[:20], noise])
    grown = dataclasses.replace(
        sample,
        tokens=tokens,
        loss_mask=np.arange(len(tokens)) >= 20,
        logprobs=np.where(np.arange(len(tokens)) >= 20, -9, 0).astype(np.float32),
        routed_experts=np.resize(sample.routed_experts, (len(tokens) - 1, 3, 2)),
    )
    retokenizer = Retokenizer(policy.tokenizer)
    assert len(retokenizer(grown).sample.tokens) > policy.model.config.max_position_embeddings
    measured = measure_gaps(policy.model, [grown], retokenizer, 1.0)
    assert np.isfinite(measured.retokenized_M).all()


def test_measuring_changes_no_weight_and_no_random_stream(policy, samples):
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    randomness = torch.get_rng_state()
    measure_gaps(policy.model, samples[:4], Retokenizer(policy.tokenizer), TEMPERATURE)
    assert torch.equal(torch.get_rng_state(), randomness)
    assert all(torch.equal(v, before[k]) for k, v in policy.model.state_dict().items())
    assert all(p.grad is None for p in policy.model.parameters())


def fixed(gaps_B: list[tuple[float, float, float]], tokens: int = 3) -> TokenGaps:
    """Trials whose tokens all have the trial's three gaps."""
    counts = np.full(len(gaps_B), tokens)
    none, tito, both = (np.repeat(np.array(column), tokens) for column in zip(*gaps_B, strict=True))
    zeros = np.zeros(len(gaps_B), np.int64)
    flipped = np.zeros(len(none), np.bool_)
    return TokenGaps(none, tito, both, flipped, counts, 0.0, 0.0, 1, zeros + 1, zeros)


def test_differences_are_paired_by_trial():
    # trials differ a lot from each other and very little within
    trials = [(level + 0.02, level + 0.01, level) for level in np.linspace(0.1, 5, 40)]
    figures = summarize_gaps(fixed(trials), 0)["all_tokens"]
    assert figures["none_minus_tito"] == pytest.approx({"mean": 0.01, "low": 0.01, "high": 0.01})
    # unpaired, the difference would drown in the spread of the levels
    assert figures["none"]["high"] - figures["none"]["low"] > 0.5


def test_an_interval_covers_its_mean_and_follows_the_seed():
    source = np.random.default_rng(0)
    trials = [tuple(row) for row in source.random((30, 3))]
    first, again, other = (summarize_gaps(fixed(trials), seed) for seed in (0, 0, 1))
    assert first == again != other
    for figure in ("none", "tito", "both"):
        interval = first["all_tokens"][figure]
        assert interval["low"] < interval["mean"] < interval["high"]
        assert 1.0 < (interval["high"] - interval["low"]) / (2 * 0.289 / 30**0.5) < 3.0


def test_the_table_says_so_when_no_token_is_flipped():
    summary = summarize_gaps(fixed([(0.3, 0.2, 0.1), (0.5, 0.3, 0.2)]), 0)
    assert summary["flipped_tokens"] is None
    said = {"policy": "here", "temperature": 1.0, "sampler_dtype": "bfloat16"}
    text = fidelity_text({**said, **summary})
    assert "no token is flipped" in text
    assert "TITO and replay                     0.1500" in text


def learner_of(policy: PolicyFiles, config: Config) -> Learner:
    actor = load_actor(config).model
    return Learner(actor, critic_from_actor(actor), config, policy.tokenizer)


def step_of(learner: Learner, batch: Batch) -> dict[str, float]:
    trainer = Trainer(learner.config, None, None, learner, None, TrainingState(), None)
    return trainer._update(3, batch, _Clock())


def test_a_step_reports_the_three_gaps_in_order(policy, samples):
    arguments = ["--diagnostics.trials", "48", "--rollout.temperature", str(TEMPERATURE)]
    metrics = step_of(
        learner_of(policy, load_config([], arguments=arguments)), Batch(tuple(samples))
    )
    free, replay = metrics["gap/logprob_free"], metrics["gap/logprob_replay"]
    assert metrics["gap/logprob_retokenized"] > free > replay > 0
    assert metrics["gap/commands_drifted"] > 0


def clip_fractions(policy, samples, *flags: str) -> tuple[float, float]:
    config = load_config([], arguments=["--rollout.temperature", str(TEMPERATURE), *flags])
    metrics = step_of(learner_of(policy, config), Batch(tuple(samples)))
    return metrics["policy/clip_fraction"], metrics["critic/clip_fraction"]


def test_several_optimizer_steps_per_batch_reach_both_clips(policy, samples):
    for flags in ((), ("--ppo.actor-minibatches", "4")):
        for fraction in clip_fractions(policy, samples, *flags):
            assert 0 < fraction < 0.5
    once = ("--ppo.actor-minibatches", "1", "--ppo.critic-minibatches", "1")
    assert clip_fractions(policy, samples, *once) == (0, 0), "the first step is at the old policy"
