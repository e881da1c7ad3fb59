"""The namespaces of one running sandbox: start them through bubblewrap, join them, end them.

The payload is a bash that is process 1 of its pid namespace: signals sent from inside cannot end
it, it reaps orphans while it reads (which not every shell does without ending the read), and it ends
when its standard input does. Processes inside can write to that input, which changes nothing, and to
its memory, which can end it; the keeper then starts anew. When process 1 has ended, the kernel has
ended everything in the namespace.
"""

import json
import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from t1_sandbox._arena import linux

# reads in pieces: whoever writes to the input must not make process 1 grow without bound
_PAYLOAD = "echo ready >&2; exec 2>&-; while read -r -N 4096 _; do :; done"
_READY = b"ready\n"
_ISOLATION = [
    *("--unshare-all", "--unshare-user", "--disable-userns", "--uid", "1000", "--gid", "1000"),
    *("--cap-drop", "ALL", "--die-with-parent", "--new-session", "--as-pid-1"),
    *("--hostname", "sandbox"),
]
_START_LIMIT_S = 20.0
_END_LIMIT_S = 20.0
_JOINED = linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWIPC | linux.CLONE_NEWUTS


@dataclass(frozen=True)
class Namespaces:
    """A running sandbox without its helper.

    Attributes:
        monitor: Process id of the outer bwrap.
        init: pidfd of process 1 inside.
        lifeline: Write end of the payload's standard input.
    """

    monitor: int
    init: int
    lifeline: int

    def join(self) -> None:
        """Moves the caller into all but the pid namespace.

        The user namespace comes last: joining it gives up the rights the other joins need.
        """
        linux.setns(self.init, _JOINED)
        linux.setns(self.init, linux.CLONE_NEWUSER)

    def kill(self) -> None:
        """Kills everything inside; `wait_until_gone` must follow."""
        # Both: the monitor alone may hang, and killing it alone may miss a fresh process 1.
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.init, signal.SIGKILL)
        os.kill(self.monitor, signal.SIGKILL)

    def wait_until_gone(self) -> None:
        """Returns when nothing inside is left; the caller has reaped its own children inside.

        Raises:
            TimeoutError: Something did not end, which only a blocked kernel call explains.
        """
        os.waitpid(self.monitor, 0)
        if not select.select([self.init], [], [], _END_LIMIT_S)[0]:
            raise TimeoutError(f"process 1 of the sandbox still runs after {_END_LIMIT_S} s")
        os.close(self.init)
        os.close(self.lifeline)


def view_arguments(
    base: Path, system: list[str], workdir: str, trees: dict[str, Path] | None
) -> list[str]:
    """Returns bwrap's arguments for the file system: an allow-list, everything else is absent.

    Args:
        base: The arena's base directory.
        system: Arguments for /usr and its relatives.
        workdir: Where the trial's work is seen.
        trees: Read-only trees by the place they are seen at in a sealed sandbox, in which the work
            is read-only too; None in the agent's.
    """
    work = "--bind" if trees is None else "--ro-bind"
    arguments = [*system, "--ro-bind", f"{base}/etc", "/etc", "--proc", "/proc", "--dev", "/dev"]
    # /dev is an unbounded tmpfs: only its shm stays writable, on the bounded tmpfs
    arguments += ["--bind", f"{base}/tmp/shm", "/dev/shm", "--remount-ro", "/dev"]
    arguments += ["--bind", f"{base}/tmp/tmp", "/tmp", "--bind", f"{base}/logs", "/logs"]
    arguments += [work, f"{base}/work", workdir]
    for place, tree in (trees or {}).items():
        arguments += ["--ro-bind", str(tree), place]
    # not the work directory: the agent may have taken its own right to enter it
    return [*arguments, "--remount-ro", "/", "--chdir", "/"]


def start(bwrap: int, libraries: Path, view: list[str]) -> Namespaces:
    """Starts a sandbox and returns when its mounts are complete.

    Args:
        bwrap: Descriptor of the bwrap executable.
        libraries: Where its own shared libraries are.
        view: Result of `view_arguments`.

    Raises:
        RuntimeError: bwrap failed; the message is its own.
        TimeoutError: It neither failed nor became ready.
    """
    input_read, lifeline = os.pipe()
    messages, messages_write = os.pipe()
    info, info_write = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY)
    arguments = ["bwrap", *_ISOLATION, "--info-fd", str(info_write), *view]
    arguments += ["--unsetenv", "LD_LIBRARY_PATH"]  # process 1 has an empty environment
    monitor = os.posix_spawn(
        f"/proc/self/fd/{bwrap}",
        [*arguments, "/bin/bash", "--norc", "-c", _PAYLOAD],
        {"LD_LIBRARY_PATH": str(libraries)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, input_read, 0),
            (os.POSIX_SPAWN_DUP2, null, 1),
            (os.POSIX_SPAWN_DUP2, messages_write, 2),
            (os.POSIX_SPAWN_DUP2, info_write, info_write),  # only to make it inheritable
        ],
        setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
    )
    for descriptor in (input_read, null, messages_write, info_write):
        os.close(descriptor)
    try:
        init = _wait_until_ready(info, messages)
    except BaseException:
        os.kill(monitor, signal.SIGKILL)
        os.waitpid(monitor, 0)
        os.close(lifeline)
        raise
    finally:
        os.close(info)
        os.close(messages)
    return Namespaces(monitor, init, lifeline)


def _wait_until_ready(info: int, messages: int) -> int:
    # The info arrives in several writes, its end tells that it is complete. The payload speaks
    # only after every mount is in place.
    description = _read(info, until=b"")
    text = _read(messages, until=_READY)
    if not text.endswith(_READY):
        raise RuntimeError(text.decode(errors="replace").strip() or "bwrap ended without a word")
    return os.pidfd_open(json.loads(description)["child-pid"])


def _read(descriptor: int, *, until: bytes) -> bytes:
    text = b""
    while not (until and text.endswith(until)):
        if not select.select([descriptor], [], [], _START_LIMIT_S)[0]:
            raise TimeoutError(f"the sandbox did not start within {_START_LIMIT_S} s: {text!r}")
        part = os.read(descriptor, 4096)
        if not part:
            break
        text += part
    return text
