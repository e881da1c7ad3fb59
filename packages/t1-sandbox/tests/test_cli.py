"""The command line: its table, its exit codes, its help."""

import json
import re

import pytest

from t1_sandbox import SandboxSpec, doctor
from t1_sandbox.cli import main


def test_doctor_prints_what_was_tried_and_succeeds_here(monkeypatch, capsys):
    # all rows are tried one by one in test_isolation
    monkeypatch.setattr(doctor, "_CHECKS", dict(list(doctor._CHECKS.items())[:4]))
    assert main(["doctor", "--json"]) == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows if row["holds"] is None] == ["bubblewrap", "kernel"]
    assert {row["holds"] for row in rows} == {True, None}
    seen = {row["name"]: row["detail"] for row in rows}
    started = re.fullmatch(r"(\d+) of 60 started, 32 allowed", seen["processes bounded"])
    assert 0 < int(started[1]) <= 32
    assert seen["timeout ends every process"] == "timeout, nothing alive afterwards"


def test_doctor_fails_when_something_does_not_hold(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_CHECKS", {"disk bounded": "echo 5 GiB written >&2; false"})

    assert main(["doctor"]) == 3
    assert "disk bounded                 NO   5 GiB written" in capsys.readouterr().out


def test_doctor_without_a_usable_bubblewrap_says_what_to_do(monkeypatch, capsys):
    monkeypatch.setenv("T1_BWRAP", "/nowhere/bwrap")

    assert main(["doctor"]) == 3
    assert "T1_BWRAP=/nowhere/bwrap" in capsys.readouterr().err


def test_doctor_says_why_a_sandbox_could_not_be_made(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "_SPEC", SandboxSpec(workdir="/" + "x" * 300))

    assert main(["doctor"]) == 3
    assert capsys.readouterr().err.startswith(
        "t1-sandbox: sandbox 'commands run': bwrap: Can't mkdir"
    )


@pytest.mark.parametrize("words", [[], ["dotcor"], ["doctor", "--no-such"]])
def test_usage_errors_exit_with_2(words, capsys):
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2


def test_help_and_version(capsys):
    for words in (["--help"], ["doctor", "--help"], ["--version"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 0
    assert "exit codes" in capsys.readouterr().out
