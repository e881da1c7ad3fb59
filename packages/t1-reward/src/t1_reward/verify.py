"""Verification: run a task's tests on what the agent left, in a sealed sandbox.

The sandbox comes from outside, as anything that satisfies `VerifierSandbox`: sealing it ends the
agent's processes and mounts the tests where the agent never saw them. What can go wrong is in the verdict's cause:
time out, lost sandbox and changed tests make a verdict without outcome (invalid); a
verifier that ends without a readable report may still have stated the outcome in Harbor's reward.txt.
Nothing that infrastructure does becomes a failed assertion.

This module neither creates nor deletes sandboxes, and it does not know rewards.
"""

from collections.abc import Mapping
from typing import Protocol

from t1_reward.report import MAX_REPORT_BYTES, Cause, read_report
from t1_reward.reward import Verdict
from t1_reward.task import Task

__all__ = ["CommandResult", "SealedVerifierSandbox", "VerifierSandbox", "verify"]

# a plain task states its outcome in this directory and expects to find it
_RUN_TESTS = "mkdir -p /logs/verifier; exec bash /tests/test.sh 2>&1"
_STATED_REWARD = "head -c 64 /logs/verifier/reward.txt"
_STATED_REWARD_TIMEOUT_S = 5.0


class CommandResult(Protocol):
    """What came of a command in a sandbox."""

    @property
    def stdout(self) -> bytes:
        """What it printed, bounded."""
        ...

    @property
    def exit_code(self) -> int | None:
        """Its exit code, 128 + n after signal n, None when there is none."""
        ...

    @property
    def outcome(self) -> str:
        """How it ended: "exited", "timeout" or "lost"."""
        ...

    @property
    def report(self) -> bytes | None:
        """What it wrote to the descriptor $T1_REPORT_FD, bounded; None without one."""
        ...


class SealedVerifierSandbox(Protocol):
    """A sandbox whose work directory is read-only and which only the verifier uses."""

    async def exec(
        self, command: str, *, timeout_s: float, report: bool, max_output_bytes: int
    ) -> CommandResult:
        """Runs a command; with `report` it is given a report descriptor.

        Args:
            command: for bash.
            timeout_s: its time, in seconds.
            report: whether it is given the descriptor.
            max_output_bytes: bound on stdout. Of the report at least `MAX_REPORT_BYTES` + 1 bytes
                are kept, so that a longer one is seen.
        """
        ...

    async def mounts_intact(self) -> bool:
        """Returns whether the mounted trees are still what was mounted."""
        ...


class VerifierSandbox(Protocol):
    """A sandbox the agent is done with."""

    async def seal(self, mounts: Mapping[str, bytes]) -> SealedVerifierSandbox:
        """Ends its processes and mounts tar archives read-only at absolute paths."""
        ...


async def verify(task: Task, sandbox: VerifierSandbox, timeout_s: float) -> Verdict:
    """Returns what the task's verifier says about the sandbox's work directory.

    Args:
        task: the task; its assertion ids say which reported assertions count.
        sandbox: where the agent worked; it is sealed here and of no use to the agent afterwards.
        timeout_s: the verifier's time, in seconds.

    Errors of the connection to the sandbox (`OSError`, which includes `TimeoutError`) become the
    causes `verifier_timeout` and `sandbox_lost` with the message in `Verdict.detail`; any other error of
    the sandbox is raised as it is.
    """
    try:
        return await _verify(task, await sandbox.seal({"/tests": task.tests_archive()}), timeout_s)
    except TimeoutError as error:
        return _verdict(task, Cause.VERIFIER_TIMEOUT, detail=str(error))
    except OSError as error:
        return _verdict(task, Cause.SANDBOX_LOST, detail=str(error))


async def _verify(task: Task, sealed: SealedVerifierSandbox, timeout_s: float) -> Verdict:
    result = await sealed.exec(
        _RUN_TESTS, timeout_s=timeout_s, report=True, max_output_bytes=MAX_REPORT_BYTES
    )
    output = result.stdout.decode(errors="replace")
    if result.outcome == "timeout":
        return _verdict(task, Cause.VERIFIER_TIMEOUT, output)
    if result.outcome != "exited":
        return _verdict(task, Cause.SANDBOX_LOST, output)
    if not await sealed.mounts_intact():
        return _verdict(task, Cause.TESTS_CHANGED, output)
    report, cause = read_report(result.report)
    stated = None if report else await _stated_outcome(sealed)
    metadata = task.metadata
    return Verdict(report, cause, metadata.assertions, task.assertion_count, stated, output)


def _verdict(task: Task, cause: Cause, output: str = "", detail: str = "") -> Verdict:
    listed = task.metadata.assertions
    return Verdict(None, cause, listed, task.assertion_count, output=output, detail=detail)


async def _stated_outcome(sealed: SealedVerifierSandbox) -> int | None:
    result = await sealed.exec(
        _STATED_REWARD, timeout_s=_STATED_REWARD_TIMEOUT_S, report=False, max_output_bytes=64
    )
    if result.exit_code != 0:
        return None
    try:
        value = float(result.stdout)
    except ValueError:
        return None
    # anything else is some other scale, of which nothing is known here
    return int(value) if value in {0.0, 1.0} else None
