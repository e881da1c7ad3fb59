"""One provider and one event loop for all tests; a fresh sandbox for each that asks for one."""

import asyncio
import io
import tarfile
from pathlib import Path

import pytest

from t1_sandbox import LocalProvider, SandboxSpec, arena_client


@pytest.fixture(scope="session")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def provider(runner):
    provider = LocalProvider()
    runner.run(provider.__aenter__())
    yield provider
    runner.run(provider.aclose())
    assert provider.statistics().left_open == ()


@pytest.fixture
def sandbox(runner, provider, request):
    sandbox = runner.run(provider.create(SandboxSpec(), key=request.node.name))
    yield sandbox
    runner.run(sandbox.delete())


@pytest.fixture
def sh(runner, sandbox):
    """Runs a command in the test's sandbox."""
    return lambda command, **options: runner.run(sandbox.exec(command, **options))


@pytest.fixture(scope="session")
def tar():
    """Makes a tar archive from names and contents."""

    def build(files, mode=0o644):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.mode = mode
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    return build


@pytest.fixture(scope="session")
def processes():
    """Finds this machine's processes whose command line has a marker."""

    def find(marker):
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if marker.encode() in path.read_bytes():
                    found.append(int(path.parent.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    return find


def _stat(process):
    """Returns the state, the parent and what follows."""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()


@pytest.fixture(scope="session")
def descendants():
    """Finds the living processes below a process, without itself."""

    def find(ancestor):
        children = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = _stat(path.parent.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] not in "ZX":
                children.setdefault(int(fields[1]), []).append(int(path.parent.name))
        found, pending = set(), [ancestor]
        while pending:
            below = children.get(pending.pop(), [])
            found.update(below)
            pending += below
        return found

    return find


@pytest.fixture(scope="session")
def parent():
    """Finds the parent of a process."""
    return lambda process: int(_stat(process)[1])


@pytest.fixture
def altered_arena(monkeypatch):
    """Makes providers entered from now on start arenas in which some code has run first."""

    def alter(code):
        whole = arena_client._BOOTSTRAP.replace("\nmain()\n", f"\n{code}\nmain()\n")
        assert code in whole
        monkeypatch.setattr(arena_client, "_BOOTSTRAP", whole)

    return alter


@pytest.fixture(scope="session")
def wait_until():
    """Polls a condition for at most ten seconds."""

    async def poll(condition):
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110, other processes set no event
                await asyncio.sleep(0.005)

    return poll
