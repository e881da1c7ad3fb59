"""A run that starts from scratch: its own warm start first, once, also if it is resumed before that."""

import functools
import hashlib
import json
from pathlib import Path

import pytest

from t1_trainer import commands, session
from t1_trainer.config import Config, PoolConfig
from t1_trainer.config_files import load_config
from t1_trainer.run_directory import RunDirectory

SMALL = load_config([]).model_copy(update={"pool": PoolConfig(train_tasks=1, heldout_tasks=2)})

SHORT_SUPERVISION = {"steps": 3, "batch_size": 2, "curriculum_steps": 1}
SHORT_CRITIC = {"trials": 16, "fresh_trials": 8, "epochs": 1, "batch_size": 8}


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


@pytest.fixture
def short(monkeypatch, tmp_path):
    """The real recipe, cut to a few steps and trials; what a run does after it is left out."""
    monkeypatch.setenv("T1_CACHE_DIR", str(tmp_path / "cache"))
    supervision = functools.partial(commands.SupervisedSettings, **SHORT_SUPERVISION)
    critic = functools.partial(commands.CriticSettings, **SHORT_CRITIC)
    config = SMALL.model_copy(update={"pool": PoolConfig(train_tasks=24, heldout_tasks=2)})
    monkeypatch.setattr(commands, "SupervisedSettings", supervision)
    monkeypatch.setattr(commands, "CriticSettings", critic)
    monkeypatch.setattr(commands, "load_config", lambda files: config)
    monkeypatch.setattr(session, "carry_out", lambda run, display: {})
    return config


def recorded(warm_start: Path) -> dict[str, str]:
    """Hashes of `origin.json`, which are those of the files beside it."""
    hashes = json.loads((warm_start / "origin.json").read_text())["sha256"]
    for name, digest in hashes.items():
        weights = (warm_start / name / "model.safetensors").read_bytes()
        assert hashlib.sha256(weights).hexdigest() == digest
    return hashes


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_same_seed_builds_the_same_warm_start_for_both_commands_and_another_seed_another(
    short, tmp_path
):
    """The committed one is reproduced likewise, in minutes: `t1 warm-start DIR --seed 0`.

    The hashes it prints are those of `data/mini/origin.json` on the same versions of torch and
    numpy and the same kind of processor.
    """
    commands.warm_start(tmp_path / "first", 0, quiet=True)
    commands.train(short, tmp_path / "run", from_scratch=True, quiet=True)
    commands.warm_start(tmp_path / "other", 1, quiet=True)
    first = recorded(tmp_path / "first")
    assert recorded(tmp_path / "run" / "warm_start") == first
    other = recorded(tmp_path / "other")
    assert other["actor"] != first["actor"]
    assert other["critic"] != first["critic"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_recipe_that_differs_in_one_step_is_noticed(short, monkeypatch, tmp_path):
    commands.warm_start(tmp_path / "first", 0, quiet=True)
    longer = functools.partial(commands.CriticSettings, **{**SHORT_CRITIC, "epochs": 2})
    monkeypatch.setattr(commands, "CriticSettings", longer)
    commands.warm_start(tmp_path / "again", 0, quiet=True)
    first, again = recorded(tmp_path / "first"), recorded(tmp_path / "again")
    assert first["actor"] == again["actor"], "the actor does not depend on the critic's recipe"
    assert first["critic"] != again["critic"]
