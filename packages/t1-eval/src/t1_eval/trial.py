"""One trial: lease a sandbox, prepare it, let the agent work, verify in a sealed sandbox, score.

    session ┌────────────────────────────┐
    sandbox     ┌───────────────────────────────────┐
                  prepare   agent's turns   verify, score

Training rollouts and evaluation run this same code. The agent's session opens before the sandbox is
requested and closes before verification, so that an engine knows which trials may still ask for
tokens; however the trial ends, both are given up. A failure of the infrastructure raises
`TrialFailed`, and a verifier without a verdict gives no reward: neither is ever a reward of 0.
Defects (of a task, of an agent's code) pass through as they are.
"""

from collections.abc import Generator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace

from t1_eval.agent import Agent, AgentRun
from t1_eval.errors import EngineError, TrialFailed
from t1_eval.terminal import Terminal
from t1_reward import Fallback, RewardRecord, Task, Variant, score, verify
from t1_sandbox import AdmissionController, Deadlines, Sandbox, SandboxError, SandboxSpec

__all__ = ["Scoring", "TrialResult", "TrialRunner"]


@dataclass(frozen=True)
class Scoring:
    """How a verdict becomes a reward; fixed for a run.

    Attributes:
        scale: S of r = P / S.
        variant: `test_count` or `binary`.
        fallback: what a terminal outcome without a report earns: `scaled` or `paper`.
    """

    scale: int
    variant: Variant = "test_count"
    fallback: Fallback = "scaled"


@dataclass(frozen=True)
class TrialResult:
    """What happened in one trial.

    Attributes:
        key: unique key within the run.
        task_id: the task.
        task_checksum: hash of the task's files.
        families: the family of each subgoal.
        length: number of subgoals.
        run: the agent's turns.
        reward: P, T, S, terminal outcome, reward and cause; a reward of None is invalid.
        verifier_output: what the verifier printed, then what the infrastructure said if it failed.
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
    """Runs trials of one kind, many at once if asked.

    Attributes:
        controller: leases sandboxes.
        agent: decides commands.
        scoring: how verdicts become rewards.
        deadlines: bounds per layer, in seconds; the verifier's command may take `verifier_s`,
            sealing the sandbox and reading its verdict `control_s` on top.
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

        Args:
            task: what to work on.
            key: names the trial; no two that run at once may share it.

        Raises:
            TrialFailed: sandbox, engine or a deadline failed; says the phase.
            TaskFormatError: the task's environment is not an archive, or its tests fit in none.
            SpecError: the task's work directory is no place for one.
        """
        # what is wrong with the task itself shows here, before anything is leased
        state, _ = task.environment_archive(), task.tests_archive()
        spec = SandboxSpec(workdir=task.workdir)
        async with AsyncExitStack() as lease:
            with _phase(key, "session"):
                async with self.agent.session(key):
                    sandbox = await self._prepare(spec, key, state, lease)
                    run = await self._work(task, key, sandbox)
            return await self._verify(task, key, sandbox, run)

    async def _prepare(
        self, spec: SandboxSpec, key: str, state: bytes, lease: AsyncExitStack
    ) -> Sandbox:
        """Lease a sandbox for as long as `lease` lasts and unpack the task's initial state."""
        with _phase(key, "sandbox"):
            sandbox = await lease.enter_async_context(self.controller.lease(spec, key=key))
            async with self.deadlines.layer("control"):
                await sandbox.put_tree(state, spec.workdir)
            return sandbox

    async def _work(self, task: Task, key: str, sandbox: Sandbox) -> AgentRun:
        terminal = Terminal(
            sandbox,
            command_timeout_s=self.command_timeout_s,
            max_output_bytes=self.max_output_bytes,
        )
        with _phase(key, "agent"):
            async with self.deadlines.layer("agent"):
                return await self.agent.run(key, task, terminal)

    async def _verify(self, task: Task, key: str, sandbox: Sandbox, run: AgentRun) -> TrialResult:
        limit_s = self.deadlines.verifier_s
        whole = replace(self.deadlines, verifier_s=limit_s + self.deadlines.control_s)
        with _phase(key, "verifier"):
            async with whole.layer("verifier"):
                verdict = await verify(task, sandbox, timeout_s=limit_s)
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
            verifier_output=verdict.output + verdict.detail,
        )


@contextmanager
def _phase(key: str, name: str) -> Generator[None]:
    """Name the phase in which infrastructure failed."""
    try:
        yield
    except (SandboxError, EngineError) as error:
        raise TrialFailed(key, name, str(error) or type(error).__name__) from error
