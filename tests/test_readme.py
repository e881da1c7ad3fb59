"""The README tells the truth: its commands parse, its examples run, every verb is in it."""

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from t1_sandbox import cli as sandbox_cli
from t1_trainer.cli import app, main
from t1_trainer.config_files import load_config

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
VERBS = typer.main.get_command(app).commands
# extras that are no other project's name: the test kit, and the torch of the default run
OWN_EXTRAS = {"testing", "local"}
MODULES_OF_EXTRAS = {"te": "transformer_engine"}


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands():
    """Every line of the README's shell blocks, and every `t1 ...` in its table of commands."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return lines + re.findall(r"^\| `(t1[^`]*)`", README, re.MULTILINE)


def test_the_quick_start_is_two_commands():
    assert blocks("sh")[:2] == [
        "pip install uv && uv run t1 train\n",
        "pip install uv && uv run pytest\n",
    ]


def test_each_verb_is_in_the_readme_and_has_help_with_an_example():
    assert VERBS
    for name, verb in VERBS.items():
        assert f"`t1 {name}" in README
        assert f"t1 {name}" in verb.help
        for parameter in verb.params:
            assert getattr(parameter, "help", None) or parameter.name == "context"


def parse(command):
    """Parse a `t1` command to the end, dotted settings included, and run nothing."""
    _, verb, *arguments = shlex.split(command)
    context = VERBS[verb].make_context(verb, arguments)
    load_config([], "mini", context.args)


@pytest.mark.parametrize("command", commands())
def test_a_command_of_the_readme_parses(command):
    command = command.replace("pip install uv && ", "").replace("uv run ", "")
    if command not in ("pytest", "t1-sandbox doctor"):
        parse(command)


@pytest.mark.parametrize(
    "command", ["t1 eval --no-such-thing", "t1 train --optimizer.no-such-thing 1"]
)
def test_a_command_with_an_unknown_option_is_refused(command, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "no-such-thing" in capsys.readouterr().err


def test_the_commands_are_installed_and_print_help_and_configuration():
    folder = Path(sys.executable).parent
    for words in (["t1", "--help"], ["t1-sandbox", "--help"], ["t1", "train", "--print-config"]):
        done = subprocess.run(
            [folder / words[0], *words[1:]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert tomllib.loads(done.stdout)["pool"]


def test_the_other_command_of_the_readme_has_help(capsys):
    with pytest.raises(SystemExit) as ended:
        sandbox_cli.main(["doctor", "--help"])
    assert ended.value.code == 0
    assert "t1-sandbox doctor" in capsys.readouterr().out


@pytest.mark.parametrize("number", range(3), ids=["stitch", "replay", "reward"])
def test_an_example_of_the_readme_runs(number):
    examples = blocks("python")
    assert len(examples) == 3
    exec(compile(examples[number], "README.md", "exec"), {})


def test_each_package_is_in_the_table_with_its_install_line():
    for folder in ROOT.glob("packages/t1-*"):
        assert f"| [{folder.name}](packages/{folder.name}/README.md) |" in README
        assert f"`pip install {folder.name}`" in README


def test_the_extras_said_to_have_no_code_are_those_that_no_source_imports():
    source = "\n".join(path.read_text() for path in ROOT.glob("packages/*/src/**/*.py"))
    extras = set()
    for path in ROOT.glob("packages/*/pyproject.toml"):
        extras |= set(tomllib.loads(path.read_text())["project"]["optional-dependencies"])
    unused = {
        extra
        for extra in extras - OWN_EXTRAS
        if not re.search(
            rf"^\s*(import|from) {MODULES_OF_EXTRAS.get(extra, extra)}\b", source, re.MULTILINE
        )
    }
    sentence = re.search(r"\* The extras (.*?) resolve in the lock file", README, re.DOTALL)
    assert set(re.findall(r"`([\w-]+)`", sentence[1])) == unused
