"""CPU time of everything below this process: what sandboxes cost is spent in processes not waited for."""

import os
import resource
from pathlib import Path

__all__ = ["descendants_cpu_seconds"]

# of /proc/PID/stat behind the name, counted from 0: the parent, then user, system and what was reaped
_PARENT, _TIMES = 1, slice(11, 15)


def descendants_cpu_seconds() -> float:
    """CPU seconds of all processes below this one, living and reaped; grows except by races."""
    times: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended meanwhile: its parent counts it
            ticks = sum(int(field) for field in fields[_TIMES])
            times[int(entry.name)] = int(fields[_PARENT]), ticks / os.sysconf("SC_CLK_TCK")
    below = _below(os.getpid(), {process: parent for process, (parent, _) in times.items()})
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    return reaped.ru_utime + reaped.ru_stime + sum(times[process][1] for process in below)


def _below(root: int, parents: dict[int, int]) -> set[int]:
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {root}
