"""The `t1` command: exit codes, one message without a traceback, and help for every verb."""

import json
import os
import re
import resource
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from t1_trainer import cli
from t1_trainer.config import Config, PoolConfig
from t1_trainer.config_files import load_config
from t1_trainer.pools import ensure_pool

SMALL_POOL = ("--pool.train-tasks", "1", "--pool.heldout-tasks", "2")
VERBS = ("train", "resume", "eval", "warm-start", "fidelity")


@pytest.fixture(autouse=True)
def _folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("T1_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def t1(monkeypatch, capsys):
    """Run `t1 ARGUMENTS` in this process; exit code, stdout, stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["t1", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        return 0 if code is None else int(code), out, err

    return run


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.mark.parametrize("verb", VERBS)
def test_help_teaches_every_verb(t1, verb):
    code, out, _ = t1(verb, "--help")
    text = plain(out)
    assert code == 0
    assert f"Usage: t1 {verb}" in text
    assert f"Example: t1 {verb}" in " ".join(text.split())


def test_the_first_help_names_the_verbs_and_exit_codes(t1):
    code, out, _ = t1("--help")
    text = plain(out)
    assert code == 0
    assert all(verb in text for verb in VERBS)
    assert {c.name or c.callback.__name__ for c in cli.app.registered_commands} == set(VERBS)
    assert "Exit codes: 0 done, 1 checked and failed, 2 usage or configuration" in text


def test_every_setting_is_listed_with_its_explanation(t1):
    code, out, _ = t1("train", "--list-settings")
    text = plain(out)
    assert code == 0
    for name in ("--optimizer.actor-lr", "--rollout.gather", "--ppo.critic-only-steps"):
        assert name in text
    assert "First steps that only re-calibrate the critic." in " ".join(text.split())


def test_the_printed_configuration_is_the_resolved_one(t1, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text("[ppo]\ngamma = 0.9\n")
    code, out, _ = t1("train", "-c", str(file), "--print-config", "--optimizer.actor-lr", "2e-4")
    assert code == 0
    printed = tomllib.loads(out)
    assert (printed["ppo"]["gamma"], printed["optimizer"]["actor_lr"]) == (0.9, 2e-4)
    file.write_text(out)
    again = load_config([file])
    assert Config.model_validate(printed) == again
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["eval", "-k", "0"], "--n-attempts"),
        (["eval", "--nonsense"], "No such option"),
        (["resume"], "Missing argument"),
        (["fidelity", "--temperature", "0"], "--temperature"),
        (["fidelity", "--trials", "1"], "--trials"),
        (["fidelity", "nowhere"], "'nowhere'"),
        (["train", "--preset", "mimi"], "did you mean 'mini'?"),
        (["train", "-c", "nowhere.toml"], "nowhere.toml: cannot be read"),
        (
            ["train", "--steps", "1", "--ppo.critic-only-steps", "2"],
            "(2) must not exceed steps (1)",
        ),
        (["train", "--policy.actor", "nowhere"], "'nowhere'"),
        (["eval", "--agent", "human"], "--agent 'human': expected one of policy, oracle, noop"),
        (["train", "--policy.critic", "nowhere"], "'nowhere'"),
        (["train", "--dry-run", "--policy.critic", "nowhere"], "'nowhere'"),
        (["train", "--evaluation.tasks", "99"], "evaluation needs 99 held-out tasks"),
        (["train", "--rollout.max-context-tokens", "900"], "the policy reads at most 512 ids"),
        (["eval", "nowhere"], "nowhere is not a run directory"),
        (["eval", "--checkpoint", "3"], "--checkpoint 3: needs a run and --agent policy"),
        (["resume", "."], "is not a run directory: it has no config.toml"),
    ],
)
def test_a_usage_error_is_one_message_and_exit_code_2(t1, arguments, message):
    if arguments[0] == "train":
        # a pool is prepared before the policy is read: a small one
        arguments = [*arguments, *SMALL_POOL]
    code, out, err = t1(*arguments)
    assert code == 2
    assert not Path("runs").exists(), "what was refused leaves nothing behind"
    assert message in plain(err)
    assert "Traceback" not in err
    assert out == ""


@pytest.mark.parametrize(
    ("flag", "suggestion"),
    [("--stepz", "--steps"), ("--optimizer.actor-lrr", "--optimizer.actor-lr")],
)
def test_an_unknown_flag_suggests_the_nearest(t1, flag, suggestion):
    code, out, err = t1("train", flag, "3")
    assert code == 2
    assert "Perhaps you meant" in plain(out + err)
    assert f"{suggestion} " in plain(out + err)


def test_a_taken_run_directory_is_left_alone(t1, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    code, _, err = t1("train", "-o", "run")
    assert code == 2
    assert "run already exists: continue it with `t1 resume run`" in err
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["notes.txt"]


@contextmanager
def nothing_can_be_written():
    """What a full disk does: every write to a file fails with an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_one_message_and_exit_code_3(t1):
    ensure_pool(PoolConfig(train_tasks=1, heldout_tasks=2))
    with nothing_can_be_written():
        code, out, err = t1("train", "-q", "-o", "run", *SMALL_POOL)
    assert code == 3
    _, line = err.splitlines()
    assert line.startswith("t1: ")
    assert "config.toml" in line
    assert out == ""


def test_a_pool_that_is_none_is_exit_code_2(t1, tmp_path):
    code, _, err = t1("train", "-o", "run", "-q", "--pool.path", str(tmp_path))
    assert code == 2
    assert "index.jsonl: missing" in err
    assert "Traceback" not in err


def test_an_interrupt_says_how_to_continue(t1, monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "load_config", interrupted)
    code, _, err = t1("train")
    assert code == 130
    assert err == "t1: interrupted; continue with `t1 resume RUN`\n"


def test_a_defect_keeps_its_traceback(monkeypatch):
    def defective(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(cli, "load_config", defective)
    monkeypatch.setattr(sys, "argv", ["t1", "train"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


def test_help_does_not_wait_for_torch():
    program = (
        "import sys, json; sys.argv = ['t1', 'train', '--help']\n"
        "from t1_trainer.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(json.dumps('torch' in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )
    assert json.loads(done.stdout.splitlines()[-1]) is False
