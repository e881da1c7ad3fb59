"""What a local sandbox costs beside a plain shell, and what is left after its client is killed.

Both sides of every ratio run interleaved in this process. The survivors are counted by a marker in
the command line; the control is the same payload started without a sandbox.
"""

import argparse
import asyncio
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import time
from collections import defaultdict
from pathlib import Path

from t1_sandbox import LocalProvider, SandboxSpec

_TARGETS = {
    "create_ms": 20.0,
    "exec_ms": 2.0,
    "seal_ms": 15.0,
    "seal_and_verify_ms": 50.0,
    "delete_ms": 5.0,
}
_VERIFIER = b'test "$(cat /app/answer)" = 42 && echo pass >&$T1_REPORT_FD\n'
_CLIENT = """
import asyncio, sys
from t1_sandbox import LocalProvider, SandboxSpec
async def main():
    async with LocalProvider() as provider:
        for number in range(int(sys.argv[2])):
            sandbox = await provider.create(SandboxSpec(), key=str(number))
            await sandbox.exec(sys.argv[1])
        print("ready", flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def tests_archive() -> bytes:
    """Returns a tree with one small bash verifier."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo("test.sh")
        member.size = len(_VERIFIER)
        archive.addfile(member, io.BytesIO(_VERIFIER))
    return buffer.getvalue()


def milliseconds(began: float) -> float:
    """Returns the time since `began`."""
    return (time.perf_counter() - began) * 1e3


async def plain_shell() -> float:
    """Returns the milliseconds of one command in a fresh plain shell, the floor of `exec`."""
    began = time.perf_counter()
    shell = await asyncio.create_subprocess_exec(
        *("/bin/bash", "--norc", "-c", "echo 42"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await shell.communicate()
    return milliseconds(began)


async def one_trial(
    provider: LocalProvider, key: str, archive: bytes, times: dict[str, list[float]]
) -> None:
    """Times every step of one trial, and a plain shell between them."""
    began = time.perf_counter()
    sandbox = await provider.create(SandboxSpec(), key=key)
    times["create_ms"].append(milliseconds(began))
    await sandbox.exec("echo 42 > answer")
    for _ in range(3):
        times["shell_ms"].append(await plain_shell())
        began = time.perf_counter()
        await sandbox.exec("echo 42")
        times["exec_ms"].append(milliseconds(began))
    began = time.perf_counter()
    sealed = await sandbox.seal({"/tests": archive})
    times["seal_ms"].append(milliseconds(began))
    result = await sealed.exec("bash /tests/test.sh", report=True)
    intact = await sealed.mounts_intact()
    times["seal_and_verify_ms"].append(milliseconds(began))
    assert (result.report, intact) == (b"pass\n", True)
    began = time.perf_counter()
    await sealed.delete()
    times["delete_ms"].append(milliseconds(began))


async def creations_per_second(provider: LocalProvider, count: int, at_once: int) -> float:
    """Creates and deletes `count` sandboxes, `at_once` at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(number: int) -> None:
        async with slots:
            sandbox = await provider.create(SandboxSpec(), key=f"rate{number}")
            await sandbox.delete()

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)))
    return count / (time.perf_counter() - began)


def marked(marker: str) -> list[int]:
    """Returns the ids of the processes that run the payload itself."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[:1] == [b"sleep"] and marker.encode() in words:
            found.append(int(path.parent.name))
    return found


def survivors(attempts: int, sandboxes: int) -> tuple[int, int]:
    """Kills clients with SIGKILL; returns the survivors with sandboxes and without any."""
    left = 0
    marker = f"605.{os.getpid()}"
    payload = f"setsid -f sleep {marker}"
    for _ in range(attempts):
        client = subprocess.Popen(
            [sys.executable, "-c", _CLIENT, payload, str(sandboxes)], stdout=subprocess.PIPE
        )
        assert client.stdout is not None
        client.stdout.readline()
        assert len(marked(marker)) == sandboxes
        client.kill()
        client.wait()
        client.stdout.close()
        deadline = time.monotonic() + 5
        while marked(marker) and time.monotonic() < deadline:
            os.sched_yield()
        left += len(marked(marker))
    shell = subprocess.Popen(["/bin/bash", "-c", f"{payload}; exec sleep {marker}"])
    while len(marked(marker)) < 2:
        os.sched_yield()
    shell.kill()
    shell.wait()
    control = marked(marker)
    for process in control:
        os.kill(process, signal.SIGKILL)
    return left, len(control)


async def measure(trials: int, rate_count: int) -> list[dict[str, object]]:
    """Returns the timing figures."""
    times: dict[str, list[float]] = defaultdict(list)
    archive = tests_archive()
    async with LocalProvider() as provider:
        for number in range(trials):
            await one_trial(provider, f"trial{number}", archive, times)
        rate = await creations_per_second(provider, rate_count, 8)
    medians = {name: statistics.median(values) for name, values in times.items()}
    figures: list[dict[str, object]] = [
        {"figure": f"sandbox.{name}", "value": medians[name], "target": target, "better": "lower"}
        for name, target in _TARGETS.items()
    ]
    for name in ("create", "exec", "seal"):
        value = medians[f"{name}_ms"] / medians["shell_ms"]
        target = {"create": 8.0, "exec": 1.2, "seal": 8.0}[name]
        figure = f"sandbox.{name}_vs_plain_shell_x"
        figures.append({"figure": figure, "value": value, "target": target, "better": "lower"})
    figures.append(
        {"figure": "sandbox.creates_per_s", "value": rate, "target": 100.0, "better": "higher"}
    )
    return figures


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 40 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    trials, rate_count, kills = (30, 60, 2) if options.quick else (200, 400, 10)
    figures = asyncio.run(measure(trials, rate_count))
    left, control = survivors(kills, 5)
    figures.append(
        {
            "figure": "sandbox.survivors_after_sigkill",
            "value": left,
            "target": 0,
            "better": "lower",
            "attempts": kills * 5,
            "control": control,
        }
    )
    for figure in figures:
        line = f"{figure['figure']:38} {figure['value']:10.2f}  target {figure['target']}"
        print(json.dumps(figure) if options.json else line)


if __name__ == "__main__":
    main()
