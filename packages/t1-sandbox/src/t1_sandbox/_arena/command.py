"""One command in a sandbox: start it, collect bounded output, end it in time.

The command leads a new session with standard input from /dev/null. Its reply never waits for the
pipes to close: a background process may hold them, and what it writes later is discarded. Output
beyond the bound is read and counted, so the command never blocks on it.
"""

import os
import select
import shutil
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from t1_sandbox._arena.processes import Reaper, kill_all_but, living_but, present
from t1_sandbox.frames import MAX_REPORT_BYTES, Header

_REPORT_DESCRIPTOR = 3
_CANNOT_START = 126
_MESSAGE_CHARACTERS = 1000  # of why; the cause may quote the whole command
_READ_BYTES = 1 << 16
_LATE_READS = 16  # 1 MiB, the largest pipe an unprivileged process can make


@dataclass
class Stream:
    """What was read from one pipe: at most `limit` bytes, and a count of the rest."""

    descriptor: int
    limit: int
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0
    open: bool = True

    def read(self) -> bool:
        """Takes what is there and tells whether there was something; `open` ends with the pipe."""
        try:
            part = os.read(self.descriptor, _READ_BYTES)
        except BlockingIOError:
            return False  # a process of the sandbox may read from the same pipe
        kept = part[: self.limit - len(self.data)]
        self.data += kept
        self.dropped += len(part) - len(kept)
        self.open = bool(part)
        return self.open


class Discards:
    """Pipes of ended commands that background processes still hold: read and thrown away."""

    def __init__(self) -> None:
        self._descriptors: set[int] = set()

    def add(self, stream: Stream) -> None:
        """Takes over the pipe of a stream."""
        self._descriptors.add(stream.descriptor)

    def register(self, poll: select.poll) -> None:
        """Makes `poll` report the pipes."""
        for descriptor in self._descriptors:
            poll.register(descriptor, select.POLLIN)

    def __contains__(self, descriptor: int) -> bool:
        """Tells whether the descriptor is one of these pipes."""
        return descriptor in self._descriptors

    def read(self, descriptor: int) -> bool:
        """Empties a pipe that a poll reported; False when it ended and was closed."""
        try:
            part = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return True  # a process of the sandbox was faster
        if part:
            return True
        self._descriptors.remove(descriptor)
        os.close(descriptor)
        return False


def _pipe(limit: int) -> tuple[Stream, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(read, False)
    return Stream(read, limit), write


class Command:
    """A command from its request to its reply."""

    def __init__(self, request: Header, workdir: str, reaper: Reaper, discards: Discards) -> None:
        self._request = request
        self._workdir = workdir
        self._reaper = reaper
        self._discards = discards
        if request["report"]:
            # whoever lived on from an earlier command could open the descriptor through /proc
            killed, _ = kill_all_but(set(), reaper)
            if not killed:
                raise RuntimeError("processes of earlier commands outlived SIGKILL")
        self._before = present()
        self._began = time.monotonic()
        self._exit: int | None = None
        limit = request["max_output_bytes"]
        self._streams: list[Stream] = []
        self._writes: list[int] = []
        limits = [limit, 0 if request["merge_stderr"] else limit]
        for stream_limit in [*limits, MAX_REPORT_BYTES] if request["report"] else limits:
            stream, write = _pipe(stream_limit)
            self._streams.append(stream)
            self._writes.append(write)
        self._by_descriptor = {stream.descriptor: stream for stream in self._streams}

    def run(self, client: socket.socket) -> tuple[Header, bytes]:
        """Runs the command; ends it early when the client speaks or leaves.

        Returns:
            The reply's header and payload (standard output, standard error, report).
        """
        try:
            process = self._start()
        except (OSError, ValueError) as error:
            self._exit = _CANNOT_START
            cause = str(error)[:_MESSAGE_CHARACTERS]
            message = f"t1-sandbox: cannot start the command: {cause}\n"
            self._streams[1].data += message.encode(errors="replace")
            return self._reply("exited", reaped=True)
        finally:
            for write in self._writes:
                os.close(write)
        if self._wait(process, client):
            return self._reply("exited", reaped=not living_but(self._before))
        reaped, ended = kill_all_but(self._before, self._reaper)
        self._exit = ended.get(process)
        return self._reply("timeout", reaped=reaped)

    def _start(self) -> int:
        request, environment = self._request, dict(self._request["env"])
        os.chdir(Path(self._workdir, request["cwd"]))
        output, error = self._writes[0], self._writes[0 if request["merge_stderr"] else 1]
        null = os.open(os.devnull, os.O_RDONLY)
        actions = [(null, 0), (output, 1), (error, 2)]
        if request["report"]:
            actions.append((self._writes[2], _REPORT_DESCRIPTOR))
            environment["T1_REPORT_FD"] = str(_REPORT_DESCRIPTOR)
        try:
            arguments = _arguments(request["command"])
            return os.posix_spawn(
                _executable(arguments[0], environment),
                arguments,
                environment,
                file_actions=[(os.POSIX_SPAWN_DUP2, source, target) for source, target in actions],
                setsid=True,
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
            )
        finally:
            os.close(null)

    def _wait(self, process: int, client: socket.socket) -> bool:
        """Collects output until the command has ended; False when its time is up."""
        deadline = self._began + self._request["timeout_s"]
        poll = select.poll()
        for descriptor in (*self._by_descriptor, self._reaper.wakeup, client.fileno()):
            poll.register(descriptor, select.POLLIN)
        self._discards.register(poll)
        while (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in poll.poll(left * 1000 + 1):
                if descriptor == client.fileno():
                    return False
                if descriptor == self._reaper.wakeup:
                    self._exit = self._reaper.reap().get(process)
                elif not self._read(descriptor):
                    poll.unregister(descriptor)
            if self._exit is not None:
                return True
        return False

    def _read(self, descriptor: int) -> bool:
        """Empties a pipe that the poll reported; False when it has ended."""
        if descriptor in self._discards:
            return self._discards.read(descriptor)
        stream = self._by_descriptor[descriptor]
        stream.read()
        return stream.open

    def _reply(self, outcome: str, *, reaped: bool) -> tuple[Header, bytes]:
        for stream in self._streams:
            for _ in range(_LATE_READS):
                if not stream.read():
                    break
        wall = time.monotonic() - self._began
        for index, stream in enumerate(self._streams):
            if stream.open and index < 2:
                self._discards.add(stream)
            else:
                os.close(stream.descriptor)
        code = self._exit if self._exit is None or self._exit >= 0 else 128 - self._exit
        header: Header = {
            "outcome": outcome,
            "exit_code": code if outcome == "exited" else None,
            "reaped": reaped,
            "wall_s": wall,
            "sizes": [len(stream.data) for stream in self._streams],
            "dropped": [stream.dropped for stream in self._streams],
        }
        return header, b"".join(stream.data for stream in self._streams)


def _arguments(command: str | list[str]) -> list[str]:
    if isinstance(command, str):
        return ["/bin/bash", "--norc", "--noprofile", "-c", command]
    if not command:
        raise ValueError("the command is an empty list")
    return command


def _executable(name: str, environment: dict[str, str]) -> str:
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is None:
        raise FileNotFoundError(f"{name!r} is not an executable on PATH")
    return found
