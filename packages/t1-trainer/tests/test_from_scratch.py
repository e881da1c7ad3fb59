"""A run that starts from scratch: its own warm start first, once, also if it is resumed before that."""

import pytest

from t1_trainer import commands, session
from t1_trainer.config import Config, PoolConfig
from t1_trainer.config_files import load_config
from t1_trainer.run_directory import RunDirectory

SMALL = load_config([]).model_copy(update={"pool": PoolConfig(train_tasks=1, heldout_tasks=2)})


class Killed(Exception):
    """Whatever ends a session."""


@pytest.fixture
def built(monkeypatch, tmp_path):
    """Directories and configurations that a warm start was trained for; training itself is left out."""
    monkeypatch.setenv("T1_CACHE_DIR", str(tmp_path / "cache"))
    seen: list[tuple[str, Config]] = []

    def build(output_dir, config, command, display):
        seen.append((output_dir.name, config))
        if len(seen) == 1:
            raise Killed
        output_dir.mkdir()
        (output_dir / "origin.json").touch()

    monkeypatch.setattr(commands, "_build_warm_start", build)
    monkeypatch.setattr(session, "carry_out", lambda run, display: {"policy": run.config.policy})
    return seen


def test_a_run_killed_in_its_warm_start_builds_it_again_and_a_later_one_does_not(built, tmp_path):
    run = tmp_path / "run"
    with pytest.raises(Killed):
        commands.train(SMALL, run, from_scratch=True, quiet=True)
    policy = commands.resume(run, quiet=True)["policy"]
    assert policy.actor == str(run / "warm_start" / "actor")
    assert policy.critic == str(run / "warm_start" / "critic")
    commands.resume(run, quiet=True)
    assert built == [("warm_start", RunDirectory.open(run, lock=False).config)] * 2


def test_an_ordinary_run_trains_no_warm_start(built, tmp_path):
    commands.train(SMALL, tmp_path / "run", from_scratch=False, quiet=True)
    assert built == []
