"""The local engine: rows per token, cached prefixes, cancellation, versions and determinism."""

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_eval import EngineError, GenerateRequest
from t1_trainer.policy.rounding import to_bfloat16
from t1_trainer.rollout.engine import sample


def request(key: str, prompt: list[int], *, new: int = 6, seed: int = 1, temperature: float = 1.0):
    return GenerateRequest(key, np.asarray(prompt, np.int32), new, temperature, seed)


async def decoding(engine, steps: int) -> None:
    """Let the engine run until it has done this many decode steps, one in each round of the loop."""
    for _ in range(10 * steps):
        if engine.statistics.decode_steps < steps:
            await asyncio.sleep(0)
    assert engine.statistics.decode_steps == steps


def full_selection(model, tokens: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor(tokens), torch.tensor([len(tokens)])).selected_NLK


def full_logprobs(model, tokens: list[int]) -> torch.Tensor:
    """Log-probability of every token but the first, from one full forward."""
    with torch.no_grad():
        ids = torch.tensor(tokens)
        hidden = model(ids, torch.tensor([len(tokens)])).hidden_ND
        return model.logits(hidden).log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]


def trials(make_model, make_engine, converse, keys, turns, seed, **options):
    async def main():
        async with make_engine(make_model(), **options) as engine:
            return engine, await asyncio.gather(*(converse(engine, k, turns, seed) for k in keys))

    return asyncio.run(main())


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 50))
def test_a_chain_of_turns_has_one_row_per_consumed_token(
    make_model, make_engine, converse, turns, together, seed
):
    keys = "abc"[:together]
    _, runs = trials(make_model, make_engine, converse, keys, turns, seed)
    for run in runs:
        rows: list[np.ndarray] = []
        for turn in run:
            total = len(turn.tokens.prompt_ids) + len(turn.tokens.completion_ids)
            # what earlier turns consumed is not consumed again: the chain has no gap, no overlap
            assert turn.payload.start == sum(map(len, rows))
            assert turn.payload.start + len(turn.payload.rows) == total - 1
            rows.append(turn.payload.rows)
        last = run[-1].tokens
        tokens = [*last.prompt_ids.tolist(), *last.completion_ids.tolist()]
        captured = torch.from_numpy(np.concatenate(rows)).long()
        expected = full_selection(make_model(), tokens[:-1])
        assert torch.equal(captured.sort(-1)[0], expected.sort(-1)[0])


@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 50))
def test_reported_logprobs_equal_a_full_forward(
    make_model, make_engine, converse, turns, together, seed
):
    keys = "abc"[:together]
    _, runs = trials(make_model, make_engine, converse, keys, turns, seed)
    for run in runs:
        for turn in run:
            tokens = [*turn.tokens.prompt_ids.tolist(), *turn.tokens.completion_ids.tolist()]
            expected = full_logprobs(make_model(), tokens)[len(turn.tokens.prompt_ids) - 1 :]
            # float32 on both sides: only the order of sums differs
            assert np.allclose(turn.tokens.logprobs, expected, atol=2e-5)


def test_a_cached_prefix_gives_what_recomputing_it_gives(make_model, make_engine, converse):
    async def main():
        model = make_model()
        async with make_engine(model) as warm, make_engine(model) as cold:
            cached = await converse(warm, "a", 4)
            again = []
            for number, turn in enumerate(cached):
                # a session of its own has nothing cached
                async with cold.session("a"):
                    prompt = turn.tokens.prompt_ids
                    again.append(await cold.generate(GenerateRequest("a", prompt, 5, 1.0, number)))
            return warm, cold, cached, again

    warm, cold, cached, again = asyncio.run(main())
    assert warm.statistics.prefilled_tokens < cold.statistics.prefilled_tokens
    for turn, fresh in zip(cached, again, strict=True):
        assert turn.tokens.completion_ids.tolist() == fresh.ids.tolist()
        assert np.allclose(turn.tokens.logprobs, fresh.logprobs, atol=2e-5)
        assert fresh.payload.start == 0


@pytest.mark.parametrize(
    ("second", "kept"),
    # at least one token must be fed, so that there are logits to sample from
    [([5, 6, 9, 9], 2), ([5, 6], 1), ([8, 8, 8], 0), ([5, 6, 7], 2)],
)
def test_a_prompt_that_leaves_the_cached_stream_keeps_only_what_agrees(
    make_model, make_engine, second, kept
):
    async def main():
        async with make_engine(make_model()) as engine, engine.session("a"):
            await engine.generate(request("a", [5, 6, 7]))
            return await engine.generate(request("a", second))

    answer = asyncio.run(main())
    tokens = [*second, *answer.ids.tolist()]
    expected = full_logprobs(make_model(), tokens)[len(second) - 1 :]
    assert np.allclose(answer.logprobs, expected, atol=2e-5)
    assert answer.payload.start == kept


def test_a_cancelled_request_frees_its_row_and_disturbs_nobody(make_model, make_engine):
    async def alone():
        async with make_engine(make_model()) as engine, engine.session("b"):
            return await engine.generate(request("b", [4, 5], new=30, seed=7))

    async def cancelled(engine, key):
        async with engine.session(key):
            await engine.generate(request(key, [1, 2, 3], new=80))

    async def beside_a_cancelled_one():
        async with make_engine(make_model(), capacity=2) as engine, engine.session("b"):
            doomed = asyncio.create_task(cancelled(engine, "a"))
            # "a" enters first, so "b" has to move into the gap that it leaves
            await asyncio.sleep(0)
            answer = asyncio.create_task(engine.generate(request("b", [4, 5], new=30, seed=7)))
            await decoding(engine, 5)
            doomed.cancel()
            await asyncio.gather(doomed, return_exceptions=True)
            got = await answer
            # the row is free again: another session fits and is served
            async with engine.session("c"):
                await asyncio.gather(
                    engine.generate(request("c", [9])), engine.generate(request("b", [9]))
                )
        return got

    lonely, disturbed = asyncio.run(alone()), asyncio.run(beside_a_cancelled_one())
    assert disturbed.ids.tolist() == lonely.ids.tolist()
    assert np.allclose(disturbed.logprobs, lonely.logprobs, atol=2e-5)


def beside_a_shorter_one(make_model, make_engine):
    """Logprobs of a completion whose neighbour ends first and stays open, and what they should be."""

    async def main():
        async with make_engine(make_model()) as engine, engine.session("a"), engine.session("b"):
            _, kept = await asyncio.gather(
                engine.generate(request("a", [1, 2, 3], new=2)),
                engine.generate(request("b", [4, 5], new=20, seed=7)),
            )
            return kept

    kept = asyncio.run(main())
    return kept.logprobs, full_logprobs(make_model(), [4, 5, *kept.ids.tolist()])[1:]


def test_a_completion_goes_on_when_its_neighbour_ends(make_model, make_engine):
    got, expected = beside_a_shorter_one(make_model, make_engine)
    assert np.allclose(got, expected, atol=2e-5)


def test_a_retired_row_that_keeps_its_place_disturbs_its_neighbour(
    make_model, make_engine, monkeypatch
):
    # the defect: the freed place is taken by another request, but its cache row stays behind
    monkeypatch.setattr("t1_trainer.rollout.engine.LocalEngine._exchange", lambda *_: None)
    got, expected = beside_a_shorter_one(make_model, make_engine)
    assert not np.allclose(got, expected, atol=1e-2)


def test_weights_are_refused_while_a_request_is_in_flight(make_model, make_engine):
    async def main():
        async with make_engine(make_model()) as engine, engine.session("a"):
            task = asyncio.create_task(engine.generate(request("a", [1, 2], new=40)))
            await decoding(engine, 2)
            with pytest.raises(EngineError, match="1 requests are in flight: drain"):
                engine.load(make_model(1).state_dict(), 1)
            old = await task
            engine.load(make_model(1).state_dict(), 1)
            new = await engine.generate(request("a", [1, 2], new=4))
            return old, new

    old, new = asyncio.run(main())
    assert (old.version_sent, old.version_received) == (0, 0)
    assert (new.version_sent, new.version_received) == (1, 1)
    # nothing cached under the old weights survives
    assert new.payload.start == 0
    expected = full_logprobs(make_model(1), [1, 2, *new.ids.tolist()])[1:]
    assert np.allclose(new.logprobs, expected, atol=2e-5)


def test_more_sessions_than_rows_are_refused(make_model, make_engine):
    async def main():
        async with make_engine(make_model(), capacity=1) as engine, engine.session("a"):
            with pytest.raises(EngineError, match="all 1 cache rows are in use"):
                await engine.session("b").__aenter__()
            with pytest.raises(EngineError, match="'a' is already open"):
                await engine.session("a").__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request("b", [1]), "session 'b' is not open"),
        (request("a", [1] * 60, new=40), r"prompt_ids \(60\) \+ max_new_tokens \(40\) exceed"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_alone(make_model, make_engine, bad, message):
    async def main():
        async with make_engine(make_model()) as engine, engine.session("a"):
            with pytest.raises(EngineError, match=message):
                await engine.generate(bad)
            return await engine.generate(request("a", [1]))

    assert len(asyncio.run(main()).ids) == 6


def test_a_stop_id_ends_a_completion_and_is_part_of_it(make_model, make_engine):
    async def main():
        every = tuple(range(60))
        async with make_engine(make_model(), stop_ids=every) as engine, engine.session("a"):
            return await engine.generate(request("a", [1, 2]))

    answer = asyncio.run(main())
    assert len(answer.ids) == 1
    assert answer.finish_reason == "stop"


def in_lock_step(make_model, make_engine, order: str, gather: float, delays: dict[str, int]):
    async def main():
        async with make_engine(make_model(), gather=gather, rounded=to_bfloat16) as engine:
            async with engine.session("a"), engine.session("b"), engine.session("c"):

                async def ask(key):
                    for _ in range(delays[key]):
                        await asyncio.sleep(0)
                    prompt = [ord(key) % 60, 3, 1]
                    return await engine.generate(request(key, prompt, new=12, seed=ord(key)))

                answers = await asyncio.gather(*(ask(key) for key in order))
            return dict(zip(order, answers, strict=True)), engine.statistics.rounds

    answers, rounds = asyncio.run(main())
    bits = {
        k: (a.ids.tolist(), a.logprobs.tobytes(), a.payload.rows.tobytes())
        for k, a in answers.items()
    }
    return bits, rounds


@settings(max_examples=10)
@given(st.permutations("abc"), st.tuples(*[st.integers(0, 9)] * 3))
def test_lock_step_gives_the_same_bits_whatever_the_arrival(make_model, make_engine, order, delays):
    calm, _ = in_lock_step(make_model, make_engine, "abc", 1.0, dict.fromkeys("abc", 0))
    bits, rounds = in_lock_step(
        make_model, make_engine, order, 1.0, dict(zip("abc", delays, strict=True))
    )
    assert bits == calm
    assert rounds == 1


def test_a_batch_is_laid_out_by_key_and_not_by_arrival(make_model, make_engine):
    async def main():
        async with make_engine(make_model()) as engine, engine.session("b"), engine.session("a"):
            asked = [
                asyncio.create_task(engine.generate(request(key, [1], new=20))) for key in "ba"
            ]
            await decoding(engine, 2)
            rows = [entry.request.session for entry in engine._active]
            await asyncio.gather(*asked)
            return rows

    assert asyncio.run(main()) == ["a", "b"]


def test_without_lock_step_arrival_decides_the_batches(make_model, make_engine):
    _, rounds = in_lock_step(make_model, make_engine, "abc", 0.1, {"a": 0, "b": 5, "c": 9})
    assert rounds == 3


def test_a_seed_fixes_a_completion_and_another_seed_changes_it(make_model, make_engine):
    async def main():
        async with make_engine(make_model()) as engine, engine.session("a"):
            return [
                (await engine.generate(request("a", [1, 2], new=20, seed=seed))).ids.tolist()
                for seed in (5, 5, 6)
            ]

    first, second, third = asyncio.run(main())
    assert first == second != third


def test_a_failed_engine_tells_every_caller(make_model, make_engine, monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("out of memory")

    async def main():
        engine = make_engine(make_model())
        async with engine, engine.session("a"):
            monkeypatch.setattr("t1_trainer.policy.decoder.CachedDecoder.feed", broken)
            with pytest.raises(EngineError, match="the engine stopped: out of memory"):
                await engine.generate(request("a", [1]))
            with pytest.raises(EngineError, match="the engine stopped"):
                await engine.generate(request("a", [1]))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("prompt", "new", "message"),
    [
        ([1], 0, "max_new_tokens is 0"),
        ([], 3, "at least one id"),
        ([60], 3, r"all in \[0, 60\)"),
        ([-1], 3, r"all in \[0, 60\)"),
    ],
)
def test_a_request_that_would_fail_is_refused_and_the_engine_goes_on(
    make_model, make_engine, prompt, new, message
):
    async def main():
        engine = make_engine(make_model())
        async with engine, engine.session("a"):
            with pytest.raises(EngineError, match=message):
                await engine.generate(request("a", prompt, new=new))
            assert len((await engine.generate(request("a", [1]))).ids) > 0

    asyncio.run(main())


def test_a_session_has_one_request_in_flight(make_model, make_engine):
    async def main():
        engine = make_engine(make_model())
        async with engine, engine.session("a"):
            first = asyncio.create_task(engine.generate(request("a", [1])))
            await asyncio.sleep(0)
            with pytest.raises(EngineError, match="in flight already"):
                await engine.generate(request("a", [2]))
            assert len((await first).ids) > 0

    asyncio.run(main())


CHI_SQUARE_9_DEGREES = 33.7  # exceeded with probability 1e-4


def chi_square(temperature: float, assumed: float) -> float:
    logits = torch.linspace(-2, 2, 10)
    draws = 20_000
    uniforms = torch.from_numpy(np.random.default_rng(0).random(draws))
    ids, _ = sample(logits.expand(draws, -1), torch.full((draws,), temperature), uniforms)
    found = np.bincount(ids, minlength=10)
    expected = draws * torch.softmax(logits / assumed, -1).numpy()
    return float(((found - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("temperature", [1.0, 0.7, 2.0])
def test_draws_follow_the_softmax(temperature):
    assert chi_square(temperature, temperature) < CHI_SQUARE_9_DEGREES


def test_another_temperature_would_be_noticed():
    assert chi_square(1.0, 1.1) > 3 * CHI_SQUARE_9_DEGREES


@given(
    st.lists(st.floats(-20, 20), min_size=2, max_size=8),
    st.floats(0, 1, exclude_max=True),
    st.floats(0.1, 3),
)
def test_a_draw_inverts_the_cumulative_distribution(logits, uniform, temperature):
    row = torch.tensor([logits])
    (drawn,), (logprob,) = sample(
        row, torch.tensor([temperature]), torch.tensor([uniform]).double()
    )
    logprobs = (row / torch.tensor(temperature)).log_softmax(-1)[0]
    cumulative = logprobs.double().exp().cumsum(-1) / logprobs.double().exp().sum()
    below = float(cumulative[drawn - 1]) if drawn else 0.0
    assert below - 1e-9 <= uniform <= float(cumulative[drawn]) + 1e-9
    assert logprob == pytest.approx(float(logprobs[drawn]), abs=1e-5)


def test_temperature_zero_takes_the_most_likely_id_and_reports_its_probability():
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.0, 0.0]])
    ids, logprobs = sample(logits, torch.zeros(2), torch.tensor([0.99, 0.99]))
    assert ids == [1, 0]
    assert logprobs == pytest.approx(
        [float(logits.log_softmax(-1)[i, j]) for i, j in ((0, 1), (1, 0))]
    )
