"""The trainer's handle on the rollout process.

One request is outstanding at a time. A reader thread drains answers and progress, so that the
process never blocks on a trainer that is busy with an update. When the process ends unasked, the
waiting caller and every later one get `RolloutFailed` with the exit code and the last lines of its
log.
"""

import contextlib
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from t1_trainer.errors import RolloutFailed
from t1_trainer.rollout.messages import Close, Done, Failed, Progress
from t1_trainer.rollout.runtime import RolloutSetup

__all__ = ["RolloutClient"]

_LOG_LINES = 12
_CLOSE_DEADLINE_S = 30.0


class RolloutClient:
    """Starts, talks to and ends the rollout process.

    Attributes:
        progress: the latest report of the running request.
        served_version: weight version the process serves; -1 before the first publication.
        answered: when the latest answered request was sent and when its answer arrived, in seconds
            of `time.monotonic`; an answer may have arrived long before anyone waited for it.

    Args:
        setup: what the process needs.
        log: file that receives the process's log.
    """

    def __init__(self, setup: RolloutSetup, log: Path) -> None:
        self.progress: Progress | None = None
        self.served_version = -1
        self.answered = (0.0, 0.0)
        self._log = log
        self._answers: queue.Queue[tuple[Done | Failed, float]] = queue.Queue()
        self._sent = 0.0
        self._obituary: Failed | None = None
        self._busy = False
        ours, theirs = socket.socketpair()
        descriptor = str(theirs.fileno())
        with theirs, log.open("ab") as log_file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "t1_trainer.rollout.process", descriptor, str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
            )
        self._connection = Connection(ours.detach())
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.send(setup)

    @property
    def busy(self) -> bool:
        """Whether a request is outstanding."""
        return self._busy

    @property
    def pid(self) -> int:
        """Process id, for people and fault injection."""
        return self._process.pid

    def send(self, request: Any) -> None:
        """Start a request; `wait` returns its answer.

        Raises:
            RolloutFailed: the process is gone.
        """
        assert not self._busy, "one request at a time"
        self._busy, self._sent = True, time.monotonic()
        # an answer about the death is already queued by the reader
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(request)

    def wait(self) -> Any:
        """The answer to the outstanding request.

        Raises:
            RolloutFailed: the process died, or could not carry the request out.
        """
        answer, arrived = self._answers.get()
        self._busy, self.answered = False, (self._sent, arrived)
        if answer is self._obituary:
            # nobody answers any more: the next caller is told too
            self._answers.put((answer, arrived))
        if isinstance(answer, Failed):
            raise RolloutFailed(answer.message)
        return answer.answer

    def call(self, request: Any) -> Any:
        """Send and wait."""
        self.send(request)
        return self.wait()

    def close(self) -> None:
        """Let the process delete its sandboxes and end; killed if it takes too long."""
        if self._process.poll() is None:
            # an outstanding request is abandoned: killing the process also ends its sandboxes
            if self._busy:
                self._process.send_signal(signal.SIGKILL)
            else:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._connection.send(Close())
        try:
            self._process.wait(_CLOSE_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_CLOSE_DEADLINE_S)
        self._connection.close()

    def _read(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                # an end inside a message is a plain OSError
                self._obituary = Failed(self._last_words())
                self._answers.put((self._obituary, time.monotonic()))
                return
            if isinstance(message, Progress):
                self.progress = message
            else:
                self._answers.put((message, time.monotonic()))

    def _last_words(self) -> str:
        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        if code == -signal.SIGKILL:
            how += " (if nobody sent it, memory ran out: see `dmesg`, or lower rollout.batch_size)"
        tail = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        text = "\n".join(f"    {line}" for line in tail)
        return f"the rollout process ended with {how}; last lines of {self._log}:\n{text}"
