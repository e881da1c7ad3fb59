"""Fixtures that run the assembled product as a user does."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from running import SMALL, Command, WholeRun, records


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pools generated once for all runs."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def commands(
    cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Command]]:
    """Start `t1 ARGUMENTS` with a TMPDIR of its own; what still runs at the end is killed."""
    started: list[Command] = []

    t1_program = (sys.executable, "-c", "from t1_trainer.cli import main; main()")

    def start(
        *arguments: str, program: tuple[str, ...] = t1_program, **environment: str
    ) -> Command:
        scratch = tmp_path_factory.mktemp("scratch")
        scratch.chmod(0o755)
        process = subprocess.Popen(
            # a test run started in the background ignores interrupts, and its children would too
            ["env", "--default-signal=INT", *program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=scratch.parent,
            env={**os.environ, "T1_CACHE_DIR": str(cache), "TMPDIR": str(scratch), **environment},
        )
        started.append(Command(process, scratch))
        return started[-1]

    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
            command.process.communicate()


@pytest.fixture
def t1(commands: Callable[..., Command]) -> Callable[..., Command]:
    """Short name of `commands`."""
    return commands


@pytest.fixture(scope="session")
def whole(commands: Callable[..., Command], tmp_path_factory: pytest.TempPathFactory) -> WholeRun:
    """Five steps, checkpoints at 0, 2, 4 and 5, two actor minibatches."""
    path = tmp_path_factory.mktemp("whole") / "run"
    settings = (*SMALL, "--steps=5", "--checkpoint.every-steps=2", "--ppo.critic-only-steps=2")
    command = commands("train", "-q", "-o", str(path), *settings)
    command.poll_until(lambda: len(records(path / "metrics.jsonl")) >= 2)
    code, out, err = command.finish()
    assert code == 0, err
    return WholeRun(path, settings, command, code, out)
