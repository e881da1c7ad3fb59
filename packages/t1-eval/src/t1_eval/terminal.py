"""The terminal an agent sees: one command in, merged output text and exit code out.

A command that times out or takes its shell down is an ordinary failed command (124, 137), as it
would be for a person.
"""

from dataclasses import dataclass

from t1_sandbox import Outcome, Sandbox

__all__ = ["Observation", "Terminal"]

_TIMED_OUT = 124
_KILLED = 137


@dataclass(frozen=True)
class Observation:
    """What a command printed (stdout and stderr merged, at most the terminal's bound) and returned."""

    output: str
    exit_code: int


class Terminal:
    """Runs an agent's commands in its sandbox.

    Args:
        sandbox: where commands run.
        command_timeout_s: bound on one command, in seconds.
        max_output_bytes: bytes of output kept per command.
    """

    def __init__(
        self, sandbox: Sandbox, *, command_timeout_s: float, max_output_bytes: int
    ) -> None:
        self._sandbox = sandbox
        self._timeout_s = command_timeout_s
        self._max_output_bytes = max_output_bytes

    async def run(self, command: str) -> Observation:
        """Run one command line in bash at the work directory."""
        result = await self._sandbox.exec(
            command,
            timeout_s=self._timeout_s,
            max_output_bytes=self._max_output_bytes,
            merge_stderr=True,
        )
        exit_code = result.exit_code
        if result.outcome is Outcome.TIMEOUT:
            exit_code = _TIMED_OUT
        elif exit_code is None:
            exit_code = _KILLED
        return Observation(result.stdout.decode("utf-8", "replace"), exit_code)
