"""Agents: what decides the next command.

    prompt(i + 1) = prompt(i) ‖ completion(i) ‖ observation(i)

`TokenAgent` drives an engine on token ids, so nothing that was sampled is ever encoded again, and
the random stream of a turn is a function of run seed, trial key and turn number alone.
`ScriptedAgent` replays commands: the oracle runs a reference solution, the no-op agent runs nothing.

Agents see a task's instruction and a terminal. They know neither the verifier nor rewards.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from t1_eval.engine import ChatFormat, Completion, Engine, GenerateRequest
from t1_eval.errors import EngineError
from t1_eval.terminal import Terminal
from t1_reward import Task
from t1_tito import FinishReason, Turn

__all__ = [
    "Agent",
    "AgentLimits",
    "AgentRun",
    "AgentTurn",
    "ScriptedAgent",
    "StopReason",
    "TokenAgent",
]

_EXIT_COMMAND = "exit"


class StopReason(StrEnum):
    """Why an agent's turns ended."""

    EXIT = "exit"
    """The agent said `exit`, or its script was over."""
    MAX_TURNS = "max_turns"
    """The turn limit was reached."""
    COMPLETION_LENGTH = "completion_length"
    """A completion hit its length bound without a stop id; its command was not run."""
    CONTEXT_LENGTH = "context_length"
    """The conversation left no room for another completion."""


@dataclass(frozen=True)
class AgentLimits:
    """Bounds on one trial of a token agent.

    Attributes:
        max_turns: completions, a final `exit` included.
        max_completion_tokens: ids per completion.
        max_observation_tokens: ids of terminal output shown per turn.
        max_context_tokens: ids of the whole conversation.
    """

    max_turns: int
    max_completion_tokens: int
    max_observation_tokens: int
    max_context_tokens: int


@dataclass(frozen=True, eq=False)
class AgentTurn:
    """One command and what came back.

    Attributes:
        command: its text.
        output: what the terminal showed; empty when it was not run.
        exit_code: its exit code, or None when it was not run: `exit`, or a completion cut short.
        tokens: what the engine was given and sampled; None for scripted agents.
        payload: the engine's per-token record, untouched; None for scripted agents.
    """

    command: str
    output: str
    exit_code: int | None
    tokens: Turn | None = None
    payload: Any = None


@dataclass(frozen=True)
class AgentRun:
    """All turns of a trial in order, and why they ended."""

    turns: tuple[AgentTurn, ...]
    stop_reason: StopReason


class Agent(Protocol):
    """Decides commands; one agent may work on many trials at once, told apart by their keys."""

    def session(self, key: str) -> AbstractAsyncContextManager[None]:
        """Enter before the trial's sandbox is requested, leave when its turns are over.

        Raises:
            EngineError: the agent's engine cannot take another trial.
        """
        ...

    async def run(self, key: str, task: Task, terminal: Terminal) -> AgentRun:
        """Work on the task's instruction until done or limited.

        Raises:
            EngineError: the agent's engine cannot serve.
            SandboxLost: the terminal's sandbox has ended.
        """
        ...


@dataclass(frozen=True)
class TokenAgent:
    """Samples commands from an engine, turn by turn.

    Attributes:
        engine: serves token ids.
        chat: template.
        limits: bounds of a trial.
        temperature: sampling temperature; 0 is greedy.
        seed: run seed; each turn's stream follows from it, the trial's key and the turn number.
        on_turn: called with (key, completions so far) after every completion, before its command
            runs.
    """

    engine: Engine
    chat: ChatFormat
    limits: AgentLimits
    temperature: float
    seed: int
    on_turn: Callable[[str, int], None] = lambda key, turns: None

    def session(self, key: str) -> AbstractAsyncContextManager[None]:
        """The engine's session of this trial; see `Agent.session`."""
        return self.engine.session(key)

    async def run(self, key: str, task: Task, terminal: Terminal) -> AgentRun:
        """Sample, execute, append, until `exit` or a limit.

        Raises:
            EngineError: the engine cannot serve, or gave up on a completion.
            SandboxLost: the terminal's sandbox has ended.
            TurnError: a completion contradicts itself; a defect of the engine.
        """
        limits = self.limits
        prompt = [*self.chat.render_instruction(task.instruction)]
        turns: list[AgentTurn] = []
        for number in range(limits.max_turns):
            if len(prompt) + limits.max_completion_tokens > limits.max_context_tokens:
                return AgentRun(tuple(turns), StopReason.CONTEXT_LENGTH)
            tokens, payload = await self._sample(key, number, prompt)
            sampled: list[int] = tokens.completion_ids.tolist()
            command = self.chat.parse_command(sampled)
            stop = _stop_reason(tokens.finish_reason, command)
            if stop is not None:
                turns.append(AgentTurn(command, "", None, tokens, payload))
                return AgentRun(tuple(turns), stop)
            seen = await terminal.run(command)
            turns.append(AgentTurn(command, seen.output, seen.exit_code, tokens, payload))
            prompt += sampled
            prompt += self.chat.render_observation(
                seen.output, seen.exit_code, limits.max_observation_tokens
            )
        return AgentRun(tuple(turns), StopReason.MAX_TURNS)

    async def _sample(self, key: str, number: int, prompt: Sequence[int]) -> tuple[Turn, Any]:
        """One completion as a turn, and the engine's record of it."""
        request = GenerateRequest(
            session=key,
            prompt_ids=np.asarray(prompt, np.int32),
            max_new_tokens=self.limits.max_completion_tokens,
            temperature=self.temperature,
            seed=_turn_seed(self.seed, key, number),
        )
        completion = await self.engine.generate(request)
        if completion.finish_reason is FinishReason.ABORT:
            # the model did not choose to end here, so nothing may be concluded from it
            raise EngineError(
                f"session {key!r}: the engine aborted the completion of turn {number}"
            )
        self.on_turn(key, number + 1)
        return _turn(request, completion), completion.payload


@dataclass(frozen=True)
class ScriptedAgent:
    """Runs given commands per task, then exits: the oracle, or with no commands the no-op agent.

    Attributes:
        commands: the command lines to run for a task.
    """

    commands: Callable[[Task], Sequence[str]]

    def session(self, key: str) -> AbstractAsyncContextManager[None]:
        """Nothing to announce."""
        return nullcontext()

    async def run(self, key: str, task: Task, terminal: Terminal) -> AgentRun:
        """Run the commands in order, whatever their exit codes.

        Raises:
            SandboxLost: the terminal's sandbox has ended.
        """
        turns: list[AgentTurn] = []
        for command in self.commands(task):
            seen = await terminal.run(command)
            turns.append(AgentTurn(command, seen.output, seen.exit_code))
        return AgentRun(tuple(turns), StopReason.EXIT)


def _turn_seed(seed: int, key: str, number: int) -> int:
    """Seed of one turn's random stream, in [0, 2**63)."""
    digest = hashlib.blake2b(f"{seed}/{key}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _stop_reason(finish_reason: FinishReason, command: str) -> StopReason | None:
    if finish_reason is not FinishReason.STOP:
        return StopReason.COMPLETION_LENGTH
    return StopReason.EXIT if command.strip() == _EXIT_COMMAND else None


def _turn(request: GenerateRequest, completion: Completion) -> Turn:
    return Turn(
        prompt_ids=request.prompt_ids,
        completion_ids=completion.ids,
        logprobs=completion.logprobs,
        version_sent=completion.version_sent,
        version_received=completion.version_received,
        finish_reason=completion.finish_reason,
    )
