"""One provider and one event loop for all tests; a fresh sandbox for each that asks for one."""

import asyncio
import io
import tarfile
from pathlib import Path

import pytest

from t1_sandbox import LocalProvider, SandboxSpec


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
def survivors():
    """Counts this machine's processes whose command line has a marker."""

    def count(marker):
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += marker.encode() in path.read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
        return found

    return count
