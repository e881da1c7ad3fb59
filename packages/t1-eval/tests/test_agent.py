"""Token agents: prompts only grow, stop reasons, seeds; on an engine in memory and real shells."""

import asyncio
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_eval import AgentRun, AgentTurn, EngineError, ScriptedAgent, StopReason, TokenAgent
from t1_tito import FinishReason, Turn, TurnError, assemble, audit

COMMANDS = [
    "printf abc",
    "false",
    "echo é",
    "cd /; pwd",
    "exit 7",
    "",
    "echo no >&2",
    "printf '\\xff'",
]


def run(loop, agent, terminal, task, key="trial"):
    async def trial():
        async with agent.session(key):
            return await agent.run(key, task, terminal)

    return loop.run(trial())


def assert_prompts_continue(agent, task, turns):
    expected = agent.chat.render_instruction(task.instruction)
    for turn in turns:
        assert turn.tokens.prompt_ids.tolist() == expected
        shown = agent.chat.render_observation(
            turn.output, turn.exit_code, agent.limits.max_observation_tokens
        )
        expected = [*expected, *turn.tokens.completion_ids.tolist(), *shown]


@st.composite
def conversations(draw):
    """What a model samples in each turn: some spelling of a command, aliases included."""
    turns = []
    for command in [*draw(st.lists(st.sampled_from(COMMANDS), max_size=4)), "exit"]:
        spelling = draw(st.lists(st.booleans(), min_size=len(command.encode())))
        ids = [b + 1000 * alias for b, alias in zip(command.encode(), spelling, strict=False)]
        turns.append([*ids, 256])
    return turns


@settings(max_examples=20)
@given(sampled=conversations())
def test_every_prompt_is_the_one_before_with_its_completion_and_the_observation(
    loop, terminal, task, engines, say, token_agent, sampled
):
    engine = engines.answering(lambda request: say(sampled[len(engine.requests) - 1]))
    agent = token_agent(engine)

    done = run(loop, agent, terminal, task)

    assert [turn.tokens.completion_ids.tolist() for turn in done.turns] == sampled
    assert_prompts_continue(agent, task, done.turns)
    # so the whole trial is one training sequence on the sampled ids
    tokens = [turn.tokens for turn in done.turns]
    trial = assemble(tokens)
    report = audit(trial, tokens)
    assert len(trial.chunks) == 1
    assert (report.emission_drift, report.conditioning_exact, report.findings) == (0, 1.0, ())
    assert int(trial.chunks[0].loss_mask.sum()) == sum(map(len, sampled))


class TextHistoryAgent(TokenAgent):
    """The defect: history is kept as text and encoded again for every prompt."""

    async def run(self, key, task, terminal):
        prompt, turns = self.chat.render_instruction(task.instruction), []
        while True:
            tokens, payload = await self._sample(key, len(turns), prompt)
            command = self.chat.parse_command(tokens.completion_ids.tolist())
            if command == "exit":
                turns.append(AgentTurn(command, "", None, tokens, payload))
                return AgentRun(tuple(turns), StopReason.EXIT)
            seen = await terminal.run(command)
            turns.append(AgentTurn(command, seen.output, seen.exit_code, tokens, payload))
            shown = self.chat.render_observation(seen.output, seen.exit_code, 32)
            prompt = [*prompt, *self.chat.encode(command), *shown]


def test_history_that_is_encoded_again_is_found(
    loop, terminal, task, engines, say, token_agent, chat
):
    sampled = [[ord("l") + chat.alias, ord("s"), chat.stop], chat.encode("exit")]
    engine = engines.answering(lambda request: say(sampled[len(engine.requests) - 1]))
    agent = token_agent(engine, TextHistoryAgent)

    done = run(loop, agent, terminal, task)

    with pytest.raises(AssertionError):
        assert_prompts_continue(agent, task, done.turns)
    assert len(assemble([turn.tokens for turn in done.turns]).chunks) == 2


def test_exit_ends_the_trial_without_running_anything(loop, terminal, task, engines, token_agent):
    done = run(loop, token_agent(engines.saying("pwd", " exit\n")), terminal, task)

    assert done.stop_reason is StopReason.EXIT
    first, last = done.turns
    assert (first.output, first.exit_code) == ("/app\n", 0)
    assert (last.command, last.output, last.exit_code) == (" exit\n", "", None)


def test_the_last_turn_still_runs_its_command(loop, terminal, task, engines, token_agent, limits):
    engine = engines.saying("true", "echo last")
    agent = token_agent(engine, limits=dataclasses.replace(limits, max_turns=2))

    done = run(loop, agent, terminal, task)

    assert done.stop_reason is StopReason.MAX_TURNS
    assert [turn.output for turn in done.turns] == ["", "last\n"]
    assert len(engine.requests) == 2


def test_a_completion_cut_short_is_not_run(loop, terminal, task, engines, say, token_agent):
    engine = engines.answering(lambda request: say([*b"echo hal"], FinishReason.LENGTH))

    done = run(loop, token_agent(engine), terminal, task)

    assert done.stop_reason is StopReason.COMPLETION_LENGTH
    assert done.turns[0].command == "echo hal"
    assert done.turns[0].exit_code is None


def test_even_exit_cut_short_is_not_an_exit(loop, terminal, task, engines, say, token_agent):
    engine = engines.answering(lambda request: say([*b"exit"], FinishReason.LENGTH))

    assert run(loop, token_agent(engine), terminal, task).stop_reason is (
        StopReason.COMPLETION_LENGTH
    )


@given(room=st.integers(0, 200))
@settings(max_examples=15)
def test_no_request_can_exceed_the_context(
    loop, terminal, task, engines, token_agent, limits, room
):
    engine = engines.saying(*["printf %099d 7"] * 8)
    bounds = dataclasses.replace(limits, max_context_tokens=room + 64, max_turns=6)

    done = run(loop, token_agent(engine, limits=bounds), terminal, task)

    # each turn adds 15 sampled ids and 34 of observation to the 13 of the instruction
    fitting = [number for number in range(6) if 13 + 49 * number <= room]
    assert len(done.turns) == len(fitting)
    expected = StopReason.MAX_TURNS if len(fitting) == 6 else StopReason.CONTEXT_LENGTH
    assert done.stop_reason is expected
    for request in engine.requests:
        assert len(request.prompt_ids) + request.max_new_tokens <= bounds.max_context_tokens


def test_observations_are_bounded_in_ids(loop, terminal, task, engines, token_agent, limits):
    engine = engines.saying("printf %0999d 7", "exit")
    run(loop, token_agent(engine), terminal, task)

    grown = len(engine.requests[1].prompt_ids) - len(engine.requests[0].prompt_ids)
    assert grown == len("printf %0999d 7") + 1 + limits.max_observation_tokens + 2


def test_the_payload_is_handed_through_untouched(
    loop, terminal, task, engines, say, token_agent, chat
):
    payloads = [object(), object()]
    said = [chat.encode("true"), chat.encode("exit")]
    engine = engines.answering(
        lambda request: say(
            said[len(engine.requests) - 1], payload=payloads[len(engine.requests) - 1]
        )
    )

    done = run(loop, token_agent(engine), terminal, task)

    assert [turn.payload for turn in done.turns] == payloads
    assert [turn.tokens.version_received for turn in done.turns] == [3, 3]


def test_on_turn_counts_completions_before_their_commands_run(
    loop, terminal, task, engines, token_agent
):
    events = []

    class Telling:
        async def run(self, command):
            events.append(command)
            return await terminal.run(command)

    agent = token_agent(
        engines.saying("true", "false", "exit"),
        on_turn=lambda key, turns: events.append((key, turns)),
    )
    run(loop, agent, Telling(), task, key="k")

    assert events == [("k", 1), "true", ("k", 2), "false", ("k", 3)]


PLACES = [(0, "a"), (0, "b"), (1, "a"), (1, "a/1"), (11, "a")]


def seeds(loop, terminal, task, engines, token_agent, place, kind=TokenAgent):
    engine = engines.saying("true", "true", "exit")
    seed, key = place
    run(loop, token_agent(engine, kind, seed=seed), terminal, task, key=key)
    return [request.seed for request in engine.requests]


def assert_streams_differ(groups):
    every = [seed for group in groups for seed in group]
    assert len(set(every)) == len(every)
    assert all(0 <= seed < 2**63 for seed in every)


def test_a_turns_seed_depends_on_run_seed_trial_and_turn_alone(
    loop, terminal, task, engines, token_agent
):
    bench = (loop, terminal, task, engines, token_agent)
    drawn = [seeds(*bench, place) for place in PLACES]

    assert_streams_differ(drawn)
    assert [seeds(*bench, place) for place in reversed(PLACES)] == drawn[::-1]
    # fixed for good: a stored seed must sample the same trial in the next release
    assert drawn[0][0] == 4508493090892072991


class OneStreamAgent(TokenAgent):
    """The defect: all trials of a run draw the same numbers."""

    async def _sample(self, key, number, prompt):
        self.engine.sessions.add("")
        return await super()._sample("", number, prompt)


def test_a_stream_shared_by_trials_is_found(loop, terminal, task, engines, token_agent):
    bench = (loop, terminal, task, engines, token_agent)
    drawn = [seeds(*bench, place, OneStreamAgent) for place in PLACES]

    with pytest.raises(AssertionError):
        assert_streams_differ(drawn)


def sampler(engines, say, chat, words):
    """An engine that draws a word by the request's seed, or takes the likeliest one."""

    def answer(request):
        draw = np.random.Generator(np.random.Philox(key=request.seed)).random()
        index = int(draw * len(words)) if request.temperature else 0
        return say(chat.encode(words[index]))

    return engines.answering(answer)


def test_greedy_ignores_seeds_and_sampling_follows_them(
    loop, terminal, task, engines, say, chat, token_agent
):
    words = [f"echo {number}" for number in range(50)]

    def commands(**options):
        agent = token_agent(sampler(engines, say, chat, words), **options)
        return [turn.command for turn in run(loop, agent, terminal, task).turns]

    assert commands(temperature=0.0, seed=1) == commands(temperature=0.0, seed=2) == ["echo 0"] * 8
    assert commands(temperature=1.0, seed=1) == commands(temperature=1.0, seed=1)
    assert commands(temperature=1.0, seed=1) != commands(temperature=1.0, seed=2)


def test_an_aborted_completion_is_the_engines_failure_and_no_turn(
    loop, terminal, task, engines, say, token_agent
):
    engine = engines.answering(lambda request: say([*b"exit"], FinishReason.ABORT))

    with pytest.raises(EngineError, match=r"session 'trial'.*aborted the completion of turn 0"):
        run(loop, token_agent(engine), terminal, task)


def test_a_completion_that_contradicts_itself_is_a_defect(
    loop, terminal, task, engines, say, token_agent
):
    broken = dataclasses.replace(say([256]), logprobs=np.zeros(2, np.float32))

    with pytest.raises(TurnError, match="logprobs"):
        run(loop, token_agent(engines.answering(lambda request: broken)), terminal, task)


def test_a_scripted_agent_runs_its_commands_whatever_they_return(loop, terminal, task):
    agent = ScriptedAgent(lambda task: ("false", f"echo {task.id}"))

    done = run(loop, agent, terminal, task)

    assert [(turn.output, turn.exit_code) for turn in done.turns] == [("", 1), ("hello\n", 0)]
    assert done.stop_reason is StopReason.EXIT
    assert all(turn.tokens is None for turn in done.turns)


def test_the_instruction_of_a_chat_is_never_written_to(loop, terminal, task, engines, token_agent):
    prompt = [257, 7, 259]

    class CachingChat(type(token_agent(None).chat)):
        def render_instruction(self, instruction):
            return prompt

    run(loop, token_agent(engines.saying("true", "exit"), chat=CachingChat()), terminal, task)

    assert prompt == [257, 7, 259]


def test_trials_at_once_do_not_mix(loop, terminal, task, engines, token_agent):
    agent = token_agent(engines.saying("echo 1", "echo 2", "exit"))

    async def trial(key):
        async with agent.session(key):
            return await agent.run(key, task, terminal)

    async def all_trials():
        return await asyncio.gather(*(trial(f"trial-{number}") for number in range(3)))

    for done in loop.run(all_trials()):
        assert [turn.command for turn in done.turns] == ["echo 1", "echo 2", "exit"]
        assert isinstance(done.turns[0].tokens, Turn)
        assert_prompts_continue(agent, task, done.turns)
