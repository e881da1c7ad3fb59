"""One trial: lease a sandbox, prepare it, let the agent work, verify in a sealed sandbox, score.

Training rollouts and evaluation run this same code. The agent's session opens before the sandbox is
requested and closes before verification, so that an engine knows which trials may still ask for
tokens. A failure of the infrastructure raises `TrialFailed`; it is never a reward of 0.
"""

from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

from t1_eval.agent import Agent, AgentRun
from t1_eval.errors import EngineError, TrialFailed
from t1_eval.terminal import Terminal
from t1_reward import RewardRecord, Task, score, verify
from t1_sandbox import (
    AdmissionController,
    DeadlineExceeded,
    Deadlines,
    Sandbox,
    SandboxError,
    SandboxSpec,
)

__all__ = ["Scoring", "TrialResult", "TrialRunner"]


@dataclass(frozen=True)
class Scoring:
    """How a verdict becomes a reward; fixed for a run.

    Attributes:
        scale: S of r = P / S.
        variant: `test_count` or `binary`.
        fallback: what a verdict without a report earns.
    """

    scale: int
    variant: Literal["test_count", "binary"] = "test_count"
    fallback: Literal["scaled", "paper"] = "scaled"


@dataclass(frozen=True)
class TrialResult:
    """What happened in one trial.

    Attributes:
        key: unique key within the run.
        task_id: the task.
        task_checksum: hash of the task's files.
        families: the family of each subgoal.
        length: its subgoals.
        run: the agent's turns.
        reward: P, T, S, terminal outcome, reward and cause.
        verifier_output: what the verifier printed.
    """

    key: str
    task_id: str
    task_checksum: str
    families: tuple[str, ...]
    length: int
    run: AgentRun
    reward: RewardRecord
    verifier_output: str

    @property
    def resolved(self) -> bool:
        """Whether the terminal outcome is 1: every assertion passed."""
        return self.reward.binary == 1


@dataclass(frozen=True)
class TrialRunner:
    """Runs trials of one kind.

    Attributes:
        controller: leases sandboxes.
        agent: decides commands.
        scoring: how verdicts become rewards.
        deadlines: bounds per layer.
        command_timeout_s: bound on one command.
        max_output_bytes: output kept per command.
    """

    controller: AdmissionController
    agent: Agent
    scoring: Scoring
    deadlines: Deadlines
    command_timeout_s: float
    max_output_bytes: int

    async def run(self, task: Task, key: str) -> TrialResult:
        """Run one trial to its reward.

        Raises:
            TrialFailed: sandbox, engine or a deadline failed; says the phase.
        """
        async with AsyncExitStack() as lease_stack:
            async with self.agent.session(key):
                with _phase(key, "sandbox"):
                    spec = SandboxSpec(workdir=task.workdir)
                    sandbox = await lease_stack.enter_async_context(
                        self.controller.lease(spec, key=key)
                    )
                    await sandbox.put_tree(task.environment_archive(), task.workdir)
                with _phase(key, "agent"):
                    run = await self._work(task, key, sandbox)
            with _phase(key, "verifier"):
                return await self._verify(task, key, sandbox, run)

    async def _work(self, task: Task, key: str, sandbox: Sandbox) -> AgentRun:
        terminal = Terminal(
            sandbox,
            command_timeout_s=self.command_timeout_s,
            max_output_bytes=self.max_output_bytes,
        )
        async with self.deadlines.layer("agent"):
            return await self.agent.run(key, task, terminal)

    async def _verify(self, task: Task, key: str, sandbox: Sandbox, run: AgentRun) -> TrialResult:
        verdict = await verify(task, sandbox, timeout_s=self.deadlines.verifier_s)
        reward = score(
            verdict,
            scale=self.scoring.scale,
            variant=self.scoring.variant,
            fallback=self.scoring.fallback,
        )
        return TrialResult(
            key=key,
            task_id=task.id,
            task_checksum=task.content_hash(),
            families=task.families,
            length=task.length,
            run=run,
            reward=reward,
            verifier_output=verdict.output,
        )


@contextmanager
def _phase(key: str, name: str) -> Generator[None]:
    """Name the phase in which infrastructure failed."""
    try:
        yield
    except (SandboxError, EngineError, DeadlineExceeded) as error:
        raise TrialFailed(key, name, str(error)) from error
