"""Fixtures that run the assembled product as a user does."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import Command


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """TMPDIR of the commands: must be empty when they are over."""
    path = tmp_path / "scratch"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def t1(cache: Path, scratch: Path, tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start `t1 ARGUMENTS`; whatever is still running at the end is killed."""
    started: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        env = {**os.environ, "T1_CACHE_DIR": str(cache), "TMPDIR": str(scratch), **environment}
        process = subprocess.Popen(
            [sys.executable, "-c", "from t1_trainer.cli import main; main()", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env=env,
        )
        started.append(Command(process))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.communicate()
