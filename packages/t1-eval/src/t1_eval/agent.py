"""Agents: what decides the next command.

`TokenAgent` drives an engine on token ids: the prompt of turn i+1 is the prompt and completion of
turn i followed by the observation, so nothing sampled is ever re-encoded. `ScriptedAgent` replays
commands (the oracle runs a reference solution, the no-op agent runs nothing).
"""

import hashlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from t1_eval.engine import ChatFormat, Engine, GenerateRequest
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

EXIT_COMMAND = "exit"


class StopReason(StrEnum):
    """Why an agent's turns ended."""

    EXIT = "exit"
    """the agent said `exit`"""
    MAX_TURNS = "max_turns"
    """the turn limit was reached"""
    COMPLETION_LENGTH = "completion_length"
    """a completion hit its length bound without a stop id"""
    CONTEXT_LENGTH = "context_length"
    """the conversation reached its token bound"""


@dataclass(frozen=True)
class AgentLimits:
    """Bounds on one trial of a token agent.

    Attributes:
        max_turns: commands, the final `exit` included.
        max_completion_tokens: ids per completion.
        max_observation_tokens: ids of terminal output shown per turn.
        max_context_tokens: ids of the whole conversation.
    """

    max_turns: int
    max_completion_tokens: int
    max_observation_tokens: int
    max_context_tokens: int


@dataclass(frozen=True)
class AgentTurn:
    """One command and what came back; `tokens` and `payload` are None for scripted agents."""

    command: str
    output: str
    exit_code: int
    tokens: Turn | None = None
    payload: Any = None


@dataclass(frozen=True)
class AgentRun:
    """All turns of a trial, and why they ended."""

    turns: tuple[AgentTurn, ...]
    stop_reason: StopReason


class Agent(Protocol):
    """Decides commands for one trial at a time per session key."""

    def session(self, key: str) -> AbstractAsyncContextManager[None]:
        """Enter before the trial's sandbox is requested, leave when its turns are over."""
        ...

    async def run(self, key: str, task: Task, terminal: Terminal) -> AgentRun:
        """Work on the task's instruction until done or limited."""
        ...


def turn_seed(key: str, turn: int, seed: int) -> int:
    """63-bit seed of one turn's random stream: a function of run seed, trial key and turn only."""
    digest = hashlib.blake2b(f"{seed}/{key}/{turn}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


@dataclass(frozen=True)
class TokenAgent:
    """Samples commands from an engine, turn by turn.

    Attributes:
        engine: serves token ids.
        chat: template.
        limits: bounds of a trial.
        temperature: sampling temperature; 0 is greedy.
        seed: run seed; each turn's stream follows from it, the trial's key and the turn number.
        on_turn: called with (key, finished turns) after every completion.
    """

    engine: Engine
    chat: ChatFormat
    limits: AgentLimits
    temperature: float
    seed: int
    on_turn: Callable[[str, int], None] = lambda key, turns: None

    def session(self, key: str) -> AbstractAsyncContextManager[None]:
        """The engine's session of this trial."""
        return self.engine.session(key)

    async def run(self, key: str, task: Task, terminal: Terminal) -> AgentRun:
        """Sample, execute, append, until `exit` or a limit.

        Raises:
            EngineError: the engine cannot serve.
        """
        prompt = self.chat.render_instruction(task.instruction)
        turns: list[AgentTurn] = []
        while True:
            turn, stop = await self._turn(key, len(turns), prompt, terminal)
            turns.append(turn)
            if stop is not None:
                return AgentRun(tuple(turns), stop)
            assert turn.tokens is not None
            observation = self.chat.render_observation(
                turn.output, turn.exit_code, self.limits.max_observation_tokens
            )
            prompt = [*prompt, *turn.tokens.completion_ids.tolist(), *observation]
            if len(prompt) + self.limits.max_completion_tokens > self.limits.max_context_tokens:
                return AgentRun(tuple(turns), StopReason.CONTEXT_LENGTH)

    async def _turn(
        self, key: str, number: int, prompt: list[int], terminal: Terminal
    ) -> tuple[AgentTurn, StopReason | None]:
        """One completion and, unless it ends the trial, its command's result."""
        request = GenerateRequest(
            session=key,
            prompt_ids=np.asarray(prompt, np.int32),
            max_new_tokens=self.limits.max_completion_tokens,
            temperature=self.temperature,
            seed=turn_seed(key, number, self.seed),
        )
        completion = await self.engine.generate(request)
        self.on_turn(key, number + 1)
        tokens = Turn(
            prompt_ids=request.prompt_ids,
            completion_ids=completion.ids,
            logprobs=completion.logprobs,
            version_sent=completion.version_sent,
            version_received=completion.version_received,
            finish_reason=completion.finish_reason,
        )
        command = self.chat.parse_command(completion.ids.tolist())
        if completion.finish_reason is not FinishReason.STOP:
            stop = StopReason.COMPLETION_LENGTH
        elif command.strip() == EXIT_COMMAND:
            stop = StopReason.EXIT
        else:
            seen = await terminal.run(command)
            last = number + 1 >= self.limits.max_turns
            turn = AgentTurn(command, seen.output, seen.exit_code, tokens, completion.payload)
            return turn, StopReason.MAX_TURNS if last else None
        return AgentTurn(command, "", 0, tokens, completion.payload), stop


@dataclass(frozen=True)
class ScriptedAgent:
    """Runs given commands per task, then exits: the oracle, or with no commands the no-op agent.

    Attributes:
        commands: the command lines to run for a task.
    """

    commands: Callable[[Task], Sequence[str]]

    @asynccontextmanager
    async def session(self, key: str) -> AsyncGenerator[None]:
        """Nothing to announce."""
        yield

    async def run(self, key: str, task: Task, terminal: Terminal) -> AgentRun:
        """Run the commands in order."""
        turns: list[AgentTurn] = []
        for command in self.commands(task):
            seen = await terminal.run(command)
            turns.append(AgentTurn(command, seen.output, seen.exit_code))
        return AgentRun(tuple(turns), StopReason.EXIT)
