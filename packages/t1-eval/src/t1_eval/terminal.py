"""The terminal an agent sees: one command in, output text and exit code out.

A command that times out or takes its shell down is an ordinary failed command (124, 137), as it
would be for a person. A sandbox that is gone is not: that raises, since nothing the agent does can
matter any more.
"""

from dataclasses import dataclass

from t1_sandbox import Outcome, Sandbox, SandboxLost

__all__ = ["Observation", "Terminal"]

_TIMED_OUT = 124
_KILLED = 137


@dataclass(frozen=True)
class Observation:
    """What a command showed and returned.

    Attributes:
        output: stdout and stderr in order, cut at the terminal's bound; bytes that are not UTF-8
            become U+FFFD.
        exit_code: 124 after a timeout, 137 when the command took its shell down.
    """

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
        """Run one command line in bash at the work directory.

        Raises:
            SandboxLost: the sandbox has ended.
        """
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
            if not result.reaped:
                raise SandboxLost(f"{self._sandbox.id}: the sandbox ended while a command ran")
            exit_code = _KILLED
        # merged, stderr holds only why a command could not be started
        output = result.stdout + result.stderr
        return Observation(output.decode("utf-8", "replace"), exit_code)
