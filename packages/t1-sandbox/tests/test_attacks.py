"""What an agent does to its own sandbox costs it the reward, never the verdict.

A lost sandbox or a failed seal takes a trial out of the batch, so neither may be the agent's choice.
"""

import asyncio
import errno
import os
import signal

import pytest

from t1_sandbox import LocalProvider, Outcome, SandboxLost, SandboxSpec
from t1_sandbox._arena import ground

_SOCKET_CYCLE = """
import socket
file = open("/app/x", "w")
for _ in range(40):
    left, right = socket.socketpair()
    for sock in (left, right):
        socket.send_fds(sock, [b"x"], [file.fileno(), left.fileno(), right.fileno()])
    left.detach(), right.detach()
"""
_IO_URING = """
import ctypes, os
libc = ctypes.CDLL(None)
ring = libc.syscall(425, 8, ctypes.create_string_buffer(120))
file = os.open("/app/x", os.O_WRONLY | os.O_CREAT)
libc.syscall(427, ring, 2, (ctypes.c_int * 1)(file), 1)
"""
_END_PROCESS_1 = """
memory = open("/proc/1/mem", "r+b", buffering=0)
for line in open("/proc/1/maps"):
    place, rights = line.split()[:2]
    if "x" in rights and "[" not in line:
        start, end = (int(number, 16) for number in place.split("-"))
        memory.seek(start)
        memory.write(b"\\xcc" * (end - start))
open("/proc/1/fd/0", "w").write("x" * 9999)
import signal
signal.pause()  # process 1 runs into it when it is scheduled, and takes this one with it
"""


def _python(program):
    return ["/usr/bin/python3", "-c", program]


@pytest.mark.parametrize("program", [_SOCKET_CYCLE, _IO_URING], ids=["sockets", "io_uring"])
def test_files_that_the_kernel_closes_late_do_not_stop_the_seal(runner, provider, program):
    async def attempt(number):
        sandbox = await provider.create(SandboxSpec(), key=f"late{number}")
        opened = await sandbox.exec(_python(program))
        sealed = await sandbox.seal({})
        written = await sealed.exec("echo x >> x")
        await sealed.delete()
        return opened.exit_code, written.exit_code

    assert [runner.run(attempt(number)) for number in range(4)] == [(0, 1)] * 4


@pytest.mark.parametrize("number", [errno.EBUSY, errno.EPERM])
def test_a_freeze_that_stays_impossible_is_an_error(monkeypatch, tmp_path, number):
    calls = []

    def refuse(*arguments):
        calls.append(arguments)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ground.linux, "mount", refuse)
    monkeypatch.setattr(ground, "_FREEZE_LIMIT_S", 0.05)
    with pytest.raises(OSError, match=os.strerror(number)):
        ground.freeze(tmp_path)
    assert (len(calls) > 1) == (number == errno.EBUSY)


def test_a_locked_work_directory_is_open_to_the_verifier(runner, sandbox, sh):
    sh("echo kept > f; chmod 000 /app")
    sealed = runner.run(sandbox.seal({}))

    assert runner.run(sealed.exec("cat f")).stdout == b"kept\n"


def test_a_locked_work_directory_does_not_lose_the_next_command(sh):
    result = sh("chmod 000 /app; kill -9 -1")

    assert (result.outcome, result.reaped) == (Outcome.LOST, True)
    assert sh("stat -c %a /app", cwd="/").stdout == b"0\n"
    assert sh("true").exit_code == 126
    assert sh("chmod 755 /app", cwd="/").exit_code == 0
    assert sh("pwd").stdout == b"/app\n"


def test_writing_to_the_input_of_process_1_changes_nothing(sh):
    size = "grep VmRSS /proc/1/status"
    result = sh(f"{size}; yes '' | head -c 9000 > /proc/1/fd/0; {size}; echo there")
    flooded = sh(f"yes | tr -d '\\n' | head -c 8M > /proc/1/fd/0; {size}", timeout_s=60)

    lines = result.stdout.split(b"\n")
    assert lines[2] == b"there"
    before, after = (int(line.split()[1]) for line in (lines[0], flooded.stdout))
    assert after - before < 1024, "KiB"


def test_a_sandbox_whose_process_1_was_ended_starts_anew_with_all_its_files(runner, sandbox, sh):
    sh("echo kept | tee f > /tmp/g; chmod 000 /dev/shm /logs")
    for _ in range(2):
        result = sh(_python(_END_PROCESS_1))
        assert (result.outcome, result.reaped) == (Outcome.LOST, True)
        assert sh("cat f /tmp/g").stdout == b"kept\nkept\n"

    sealed = runner.run(sandbox.seal({}))
    assert runner.run(sealed.exec(_python(_END_PROCESS_1))).outcome is Outcome.LOST
    result = runner.run(sealed.exec("cat f; touch f || echo frozen"))
    assert result.stdout == b"kept\nfrozen\n"


def test_whoever_kills_every_helper_is_ended_with_the_first(sh):
    result = sh("(while :; do kill -9 -1; done) 2> /dev/null & sleep 30")

    assert (result.outcome, result.reaped) == (Outcome.LOST, True)
    for _ in range(3):
        count = sh("processes=(/proc/[0-9]*); echo ${#processes[@]}").stdout
        assert count == b"3\n", "process 1, the helper, the command"


def test_a_lost_command_is_reaped_when_everything_is_dead(runner, sh, processes, wait_until):
    marker = f"4301.{os.getpid()}"
    sh(f"for i in {{1..40}}; do sleep {marker} & done; true")
    runner.run(wait_until(lambda: len(processes(f"sleep\0{marker}")) == 40))

    result = sh("kill -9 2; sleep 30")

    assert (result.outcome, result.reaped) == (Outcome.LOST, True)
    assert processes(f"sleep\0{marker}") == []


def test_a_lost_command_is_not_reaped_when_the_sandbox_cannot_start_anew(
    runner, altered_arena, processes
):
    altered_arena(
        "from t1_sandbox._arena import trial\n"
        "def fail(self): raise RuntimeError('everything is still alive')\n"
        "trial.Trial.restart = fail\n"
    )
    marker = f"4302.{os.getpid()}"

    async def lose():
        async with LocalProvider() as provider:
            sandbox = await provider.create(SandboxSpec(), key="a")
            started = f"sleep {marker} & until grep -q sleep /proc/$!/comm; do :; done"
            result = await sandbox.exec(f"{started}; kill -9 2; sleep 30")
            alive = len(processes(f"sleep\0{marker}"))
            with pytest.raises(SandboxLost, match="everything is still alive"):
                await sandbox.get_file("f")
            with pytest.raises(SandboxLost, match="everything is still alive"):
                await sandbox.get_file("f")
            return result, alive

    result, alive = runner.run(lose())
    assert (result.outcome, result.reaped, alive) == (Outcome.LOST, False, 1)


def test_a_lost_sandbox_says_so_and_can_still_be_deleted(runner, provider, processes, parent):
    spec = SandboxSpec(workdir="/lost-sandbox")
    sandbox = runner.run(provider.create(spec, key="lost"))
    below = processes("/lost-sandbox")
    (keeper,) = {parent(process) for process in below} - set(below)
    os.kill(keeper, signal.SIGKILL)

    result = runner.run(sandbox.exec("echo unreachable"))
    assert (result.outcome, result.reaped) == (Outcome.LOST, False)
    with pytest.raises(SandboxLost):
        runner.run(sandbox.get_file("f"))
    runner.run(sandbox.delete())
    assert processes("/lost-sandbox") == []


def test_a_sandbox_whose_bubblewrap_was_killed_starts_anew(runner, provider, processes):
    spec = SandboxSpec(workdir="/killed-sandbox")
    sandbox = runner.run(provider.create(spec, key="killed"))
    runner.run(sandbox.exec("echo kept > f"))
    for process in processes("/killed-sandbox"):
        os.kill(process, signal.SIGKILL)

    async def until_it_works():
        async with asyncio.timeout(10):
            while (result := await sandbox.exec("cat f")).outcome is Outcome.LOST:
                assert result.reaped
        return result.stdout

    assert runner.run(until_it_works()) == b"kept\n"
    runner.run(sandbox.delete())


def test_no_report_is_taken_while_an_earlier_process_outlives_sigkill(runner, altered_arena):
    altered_arena(
        "from t1_sandbox._arena import command\n"
        "command.kill_all_but = lambda kept, reaper: (False, {})\n"
    )

    async def report():
        async with LocalProvider() as provider:
            sandbox = await provider.create(SandboxSpec(), key="a")
            sealed = await sandbox.seal({})
            return await sealed.exec("echo forged >&$T1_REPORT_FD", report=True)

    result = runner.run(report())
    assert (result.outcome, result.report) == (Outcome.LOST, None)
