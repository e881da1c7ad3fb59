"""Running the assembled product as a user does, and watching what it leaves behind."""

import json
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PAUSE = threading.Event()  # never set: waiting on it is a bounded pause

SMALL = (
    "--pool.train-tasks=64",
    "--pool.heldout-tasks=16",
    "--evaluation.tasks=4",
    "--evaluation.attempts=1",
    "--rollout.batch-size=8",
    "--rollout.oversampling=0.25",
    "--deterministic",
)


def records(path: Path) -> list[dict[str, Any]]:
    """Objects of a JSON lines file; none if it is not there yet."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def descendants(pid: int) -> set[int]:
    """All processes below `pid` that are visible in /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found = {pid}
    while True:
        more = {child for child, parent in parents.items() if parent in found} - found
        if not more:
            return found - {pid}
        found |= more


def command_line(pid: int) -> str:
    """A process's command line; empty once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def alive(pids: set[int]) -> set[int]:
    """Those that still exist and are no zombies."""
    left: set[int] = set()
    for pid in pids:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if stat.rpartition(")")[2].split()[0] != "Z":
            left.add(pid)
    return left


def proportional_bytes(pids: set[int]) -> int:
    """Memory of these processes; what several share is counted once (Pss)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def rollout_process(pid: int) -> int | None:
    """The rollout process below a trainer, once it has been started."""
    below = descendants(pid)
    found = (p for p in below if "t1_trainer.rollout.process" in command_line(p))
    return next(found, None)


@dataclass
class Command:
    """One run of `t1`, with all processes it was seen to start."""

    process: subprocess.Popen[str]
    scratch: Path
    seen: set[int] = field(default_factory=set)

    def poll_until(
        self, condition: Callable[[], bool], limit_s: float = 180.0, pause_s: float = 0.1
    ) -> None:
        """Watch until `condition`, collecting descendants on the way."""
        deadline = time.monotonic() + limit_s
        while not condition():
            self.seen |= descendants(self.process.pid)
            assert time.monotonic() < deadline, "the condition was not met in time"
            assert self.process.poll() is None, self.process.communicate()
            _PAUSE.wait(pause_s)

    def finish(self, limit_s: float = 180.0) -> tuple[int, str, str]:
        """Exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=limit_s)
        return self.process.returncode, out, err

    def leaves_nothing(self, limit_s: float = 10.0) -> bool:
        """Whether every process it was seen to start is gone soon, and its TMPDIR is empty."""
        deadline = time.monotonic() + limit_s
        while alive(self.seen) and time.monotonic() < deadline:
            _PAUSE.wait(0.1)
        return not alive(self.seen) and not any(self.scratch.iterdir())


@dataclass(frozen=True)
class WholeRun:
    """An uninterrupted deterministic run, watched from outside."""

    path: Path
    settings: tuple[str, ...]
    command: Command
    code: int
    out: str
