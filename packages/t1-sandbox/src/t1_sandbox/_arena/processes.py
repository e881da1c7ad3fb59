"""The processes of one sandbox as its helper sees them: reap, list, kill.

The helper is the subreaper of everything it starts, so orphans become its children. SIGCHLD only
wakes the helper's poll; `reap` then collects whatever has ended. Zombies count as dead: the ones
whose parent lives are that parent's to collect.
"""

import os
import select
import signal
import time
from collections.abc import Set as AbstractSet
from contextlib import suppress
from types import FrameType

_KILL_LIMIT_S = 2.0
_KILL_ROUND_MS = 5


class Reaper:
    """Collects ended children and wakes a poll when there are some.

    Attributes:
        wakeup: Descriptor that is readable after a child has ended.
    """

    def __init__(self) -> None:
        self.wakeup, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore)

    def reap(self) -> dict[int, int]:
        """Returns the exit codes (negative: signal) of the children that ended, by process id."""
        # nothing signalled does not mean that nothing has ended
        with suppress(BlockingIOError):
            os.read(self.wakeup, 4096)
        ended: dict[int, int] = {}
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ended
            if process == 0:
                return ended
            ended[process] = os.waitstatus_to_exitcode(status)


def _ignore(number: int, frame: FrameType | None) -> None:
    """Handles SIGCHLD; having a handler is what makes the wakeup descriptor readable."""


def present() -> set[int]:
    """Returns the process ids in the sandbox, dead or alive, but for process 1 and the helper."""
    processes = {int(name) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208, 10x
    return processes - {1, os.getpid()}


def living_but(kept: AbstractSet[int]) -> list[int]:
    """Returns the living processes that are neither in `kept` nor the sandbox's own."""
    return [process for process in present() - kept if _is_living(process)]


def kill_all_but(kept: AbstractSet[int], reaper: Reaper) -> tuple[bool, dict[int, int]]:
    """Kills every process that is not in `kept`, whatever its group or session.

    Repeats until nothing is left: a process may fork between being listed and being killed.

    Returns:
        Whether all are gone, and the exit codes of those that were the helper's children.
    """
    ended: dict[int, int] = {}
    deadline = time.monotonic() + _KILL_LIMIT_S
    poll = select.poll()
    poll.register(reaper.wakeup, select.POLLIN)
    while True:
        living = living_but(kept)
        for process in living:
            # it may have ended by itself
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        ended |= reaper.reap()
        if not living or time.monotonic() > deadline:
            return not living, ended
        poll.poll(_KILL_ROUND_MS)


def _is_living(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:  # noqa: PTH123, in a loop under attack
            return file.read().rpartition(b") ")[2][:1] not in b"ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
