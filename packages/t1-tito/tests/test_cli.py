import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from audit_trials import turn

from t1_tito import TokenBytes, _commands, assemble, tokenizer_files
from t1_tito.cli import main
from t1_tito.testing.cases import Case, Failure
from t1_tito.testing.subject import OWN_ASSEMBLER
from t1_tito.tiny import TINY_FOLDER, tiny_tokenizer
from t1_tito.trial_file import TrialRecord, arrays_of, read_trials, write_trials

TURNS = (turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6, 7]))


def written(path, *records):
    write_trials(path, records)
    return str(path)


@pytest.fixture
def turns_file(tmp_path):
    return written(tmp_path / "turns.jsonl", TrialRecord("a", TURNS), TrialRecord("b", TURNS))


@pytest.fixture
def faulty_file(tmp_path):
    chunk = dict(arrays_of(assemble(TURNS).chunks[0]))
    tokens = chunk["tokens"].copy()
    tokens[3] = 99
    record = TrialRecord("broken", TURNS, ({**chunk, "tokens": tokens},))
    return written(tmp_path / "faulty.jsonl", TrialRecord("fine", TURNS), record)


def test_turns_become_trials_that_pass_the_audit(turns_file, tmp_path, capsys):
    output = str(tmp_path / "trials.jsonl")
    assert main(["assemble", turns_file, "-o", output]) == 0
    assert [record.trial_id for record in read_trials(output)] == ["a", "b"]
    assert main(["audit", output]) == 0
    text = capsys.readouterr().out
    assert text.count(": ok") == 2
    assert "emission drift      0" in text


def test_turns_that_are_not_assembled_are_audited_too(turns_file, capsys):
    assert main(["audit", turns_file]) == 0
    assert "no findings" in capsys.readouterr().out


def test_a_fault_is_shown_with_its_place_and_fails(faulty_file, capsys):
    assert main(["audit", faulty_file]) == 1
    text = capsys.readouterr().out
    assert "trial fine: ok" in text
    assert "trial broken: FAILED on findings" in text
    assert "emission (turn 0, chunk 0, position 3)" in text
    assert "⟦ 99 ⟧" in text


def test_what_fails_can_be_chosen(faulty_file, capsys):
    assert main(["audit", faulty_file, "--fail-on", "context_drift"]) == 1
    assert main(["audit", faulty_file, "--fail-on", "emission_drift", "--fail-on", "bytes"]) == 1
    assert main(["audit", faulty_file, "--fail-on", "bytes"]) == 0
    # a status of 0 does not hide what was found
    assert "1 findings" in capsys.readouterr().out


def test_json_is_one_object_a_trial(faulty_file, capsys):
    assert main(["audit", faulty_file, "--json", "--fail-on", "emission"]) == 1
    fine, broken = map(json.loads, capsys.readouterr().out.splitlines())
    assert (fine["trial_id"], fine["ok"], fine["failed_on"]) == ("fine", True, [])
    assert (broken["ok"], broken["failed_on"], broken["emission_drift"]) == (False, ["emission"], 1)
    assert broken["findings"][0]["position"] == 3


def test_samples_of_another_stack_are_audited_without_provenance(tmp_path, capsys):
    sample = arrays_of(assemble(TURNS).chunks[0])
    bare = {name: sample[name] for name in ("tokens", "loss_mask")}
    assert main(["audit", written(tmp_path / "bare.jsonl", TrialRecord("a", TURNS, (bare,)))]) == 0
    assert "conditioning exact  100.000%" in capsys.readouterr().out


def test_the_opener_finds_messages_that_no_turn_recorded(tmp_path, capsys):
    turns = (turn([1, 50], [2, 9]), turn([1, 50, 2, 9, 50, 3, 9, 1, 50], [4, 9]))
    path = written(tmp_path / "lost.jsonl", TrialRecord("a", turns))
    assert main(["audit", path]) == 0
    assert main(["audit", path, "--opener", "50"]) == 1
    assert "unrecorded (turn 1, chunk 0, position 5)" in capsys.readouterr().out


def test_windows_are_text_with_a_tokenizer(tmp_path, capsys):
    tiny = tiny_tokenizer()
    prompt, answer = tiny.encode("<|im_start|>user\nhello"), tiny.encode(" world<|im_end|>")
    spelled = [*map(int, b" world"), tiny.stop_id]
    assert spelled != answer
    turns = (turn(prompt, spelled), turn([*prompt, *answer, *tiny.encode("\n")], [tiny.stop_id]))
    path = written(tmp_path / "respelled.jsonl", TrialRecord("a", turns))
    output = str(tmp_path / "out.jsonl")
    assert main(["audit", path, "--tokenizer", str(TINY_FOLDER)]) == 0
    assert "⟦ world<|im_end|>" in capsys.readouterr().out
    assert (
        main(["assemble", path, "-o", output, "--tokenizer", f"{TINY_FOLDER}/tokenizer.json"]) == 0
    )
    assert [len(record.chunks or ()) for record in read_trials(output)] == [1]


def test_a_line_that_cannot_be_read_is_named_and_passed_over(turns_file, capsys):
    with Path(turns_file).open("a", encoding="utf-8") as lines:
        lines.write('{"schema_version": 1, "trial')
    assert main(["audit", turns_file]) == 2
    shown = capsys.readouterr()
    assert shown.out.count(": ok") == 2
    assert "line 3: not a JSON line" in shown.err
    assert "cut off" in shown.err


def test_a_trial_that_cannot_be_assembled_is_named_and_left_out(tmp_path, capsys):
    bad = (turn([1], [2]), turn([3], [4], base_length=9))
    path = written(tmp_path / "t.jsonl", TrialRecord("bad", bad), TrialRecord("good", TURNS))
    output = str(tmp_path / "out.jsonl")
    assert main(["assemble", path, "-o", output]) == 2
    told = f"{path}, line 1: trial bad: turn 1, base_length"
    assert told in capsys.readouterr().err
    assert [record.trial_id for record in read_trials(output)] == ["good"]
    assert main(["audit", path]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["audit", "{turns}", "--tokenizer", "nowhere"], "nowhere: No such file"),
        (["audit", "{turns}", "--tokenizer", "{turns}"], "not JSON"),
        (["audit", "{turns}", "--tokenizer", "{object}"], "not a tokenizer"),
        (["assemble", "{turns}", "-o", "no/where.jsonl"], "where.jsonl: No such file"),
        (["check-template", "--tokenizer", "{object}", "--template", "{turns}"], "not a tokenizer"),
        (["check-template", "--tokenizer", "{object}"], "no chat template"),
        (["check-template", "--tokenizer", "{tiny}", "--template", "{torn}"], "line 2: syntax err"),
        (
            ["check-template", "--tokenizer", "{tiny}", "--verify-pin", "nowhere"],
            "nowhere: No such",
        ),
        (["check-template", "--tokenizer", "{tiny}", "--verify-pin", "{object}"], "not a template"),
        (["audit", "{empty}"], "no trials"),
        (["check-template", "--tokenizer", "{tiny}", "--template", "nowhere"], "nowhere: No such"),
        (["check-template", "--tokenizer", "{tiny}", "--tools", "{object}"], "a JSON list"),
    ],
)
def test_bad_input_is_status_2_and_one_line(arguments, message, turns_file, tmp_path, capsys):
    contents = {"object": "{}", "torn": "{% if true %}\n{% endfor %}", "empty": "\n"}
    names = {"turns": turns_file, "tiny": TINY_FOLDER}
    for name, content in contents.items():
        names[name] = tmp_path / name
        names[name].write_text(content)
    assert main([argument.format(**names) for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith(f"t1-tito {arguments[0]}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["polish"],
        ["audit"],
        ["assemble", "x.jsonl"],
        ["audit", "x.jsonl", "--fail-on", "luck"],
        ["audit", "x.jsonl", "--opener", "1,two"],
        ["audit", "x.jsonl", "--opener", "-1"],
    ],
)
def test_wrong_usage_is_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: t1-tito" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("tokenizers", ["audit", "{turns}", "--tokenizer", "{tiny}"]),
        ("transformers", ["check-template", "--tokenizer", "{tiny}"]),
        ("hypothesis", ["replay", "case.json"]),
    ],
)
def test_a_missing_extra_is_named(module, arguments, turns_file, monkeypatch, capsys):
    for user in (_commands, tokenizer_files):
        monkeypatch.setattr(user, "find_spec", lambda n: None if n == module else find_spec(n))
    given = [argument.format(turns=turns_file, tiny=TINY_FOLDER) for argument in arguments]
    assert main(given) == 2
    assert "pip install 't1-tito[" in capsys.readouterr().err


def test_a_template_is_checked_and_pinned(tmp_path, capsys):
    pin = tmp_path / "pin.json"
    given = ["check-template", "--tokenizer", str(TINY_FOLDER)]
    assert main([*given, "--write-pin", str(pin)]) == 0
    shown = capsys.readouterr()
    assert "closed prefix" in shown.out
    assert shown.err == f"wrote the pin to {pin}\n"
    assert json.loads(pin.read_text())["opener_ids"]
    assert main([*given, "--verify-pin", str(pin)]) == 0
    assert capsys.readouterr().out == f"{pin}: the pin holds\n"


def test_a_pin_that_does_not_hold_names_the_field_and_both_values(tmp_path, capsys):
    pin = tmp_path / "pin.json"
    given = ["check-template", "--tokenizer", str(TINY_FOLDER)]
    assert main([*given, "--write-pin", str(pin)]) == 0
    pinned = json.loads(pin.read_text())
    template = tmp_path / "other.jinja"
    template.write_text((TINY_FOLDER / "chat_template.jinja").read_text() + "{# changed #}")
    changed = hashlib.sha256(template.read_bytes()).hexdigest()
    capsys.readouterr()
    assert main([*given, "--template", str(template), "--verify-pin", str(pin)]) == 1
    values = f"template_sha256 changed: was '{pinned['template_sha256']}', is '{changed}'"
    assert values in capsys.readouterr().out
    # what needs rendering is compared as well
    pin.write_text(json.dumps(pinned | {"closing_ids": [1]}))
    assert main([*given, "--verify-pin", str(pin), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["pin_holds"] is False
    assert told["problem"].startswith("closing_ids changed: was (1,), is (")


def test_a_template_that_renders_nothing_is_not_proven(tmp_path, capsys):
    template = tmp_path / "refuses.jinja"
    template.write_text("{{ raise_exception('out of order') }}")
    given = ["check-template", "--tokenizer", str(TINY_FOLDER), "--template", str(template)]
    assert main([*given, "--write-pin", str(tmp_path / "pin.json")]) == 1
    shown = capsys.readouterr()
    assert "out of order" in shown.out
    assert "not pinned: sessions need suffix locality only, and it does not hold" in shown.err
    assert not (tmp_path / "pin.json").exists()


def test_a_template_that_rewrites_history_is_pinned_for_sessions_and_fails_the_check(
    tmp_path, capsys
):
    template = tmp_path / "rewrites.jinja"
    # an answer is trimmed once it is history: what follows it stays the same
    template.write_text(
        "{% for m in messages %}{% if m.role == 'assistant' and loop.last %}<|im_start|>said\n"
        "{% else %}<|im_start|>{{ m.role }}\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    given = ["check-template", "--tokenizer", str(TINY_FOLDER), "--template", str(template)]
    assert main([*given, "--write-pin", str(tmp_path / "pin.json")]) == 1
    told = capsys.readouterr().err
    assert "sessions need suffix locality only, and it holds for appended user, tool" in told
    assert main([*given, "--verify-pin", str(tmp_path / "pin.json")]) == 0


def test_what_transformers_could_do_besides_is_not_our_message():
    hidden = "import sys; sys.modules['torch'] = None; from t1_tito.cli import main; "
    given = ["check-template", "--tokenizer", str(TINY_FOLDER)]
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}sys.exit(main({given}))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""


def test_the_total_closes_an_audit(faulty_file, capsys):
    with Path(faulty_file).open("a", encoding="utf-8") as lines:
        lines.write("{\n")
    assert main(["audit", faulty_file]) == 2
    assert capsys.readouterr().out.endswith("\n3 trials: 1 failed, 1 unreadable\n")
    assert main(["audit", faulty_file, "--json"]) == 2
    shown = capsys.readouterr()
    assert len([json.loads(line) for line in shown.out.splitlines()]) == 2
    assert shown.err.endswith("3 trials: 1 failed, 1 unreadable\n")


@pytest.mark.parametrize("command", [["audit"], ["assemble", "-o", "{output}"]])
def test_boundaries_that_bytes_could_prove_ask_for_a_tokenizer(command, tmp_path, capsys):
    tiny = tiny_tokenizer()
    stop, said = tiny.stop_id, tiny.encode(" world")
    spelled = [*map(int, b" world")]
    assert spelled != said
    turns = (turn([1, 2], [*spelled, stop]), turn([1, 2, *said, stop, 3], [stop]))
    path = written(tmp_path / "respelled.jsonl", TrialRecord("a", turns))
    given = [part.format(output=tmp_path / "out.jsonl") for part in [*command, path]]
    main(given)
    assert "pass --tokenizer" in capsys.readouterr().err
    main([*given, "--tokenizer", str(TINY_FOLDER)])
    assert "pass --tokenizer" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "guess"),
    [
        (["adit", "x.jsonl"], "did you mean audit?"),
        (["audit", "x.jsonl", "--tokeniser=t"], "did you mean --tokenizer?"),
        (["check-template", "--tokeniser", "t"], "did you mean --tokenizer?"),
        (["check-template", "--tokenizer", "t", "--pin", "p"], "did you mean --write-pin?"),
        (["audit", "x.jsonl", "--write-pn"], None),
        (["polish"], None),
    ],
)
def test_a_misspelt_word_is_guessed(arguments, guess, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    told = capsys.readouterr().err
    assert "did you mean" not in told if guess is None else guess in told


def test_every_argument_is_explained(capsys):
    for command, words in (
        ("audit", ["FILE.jsonl", "--opener"]),
        ("assemble", ["FILE.jsonl", "-o"]),
        ("replay", ["CASE.json"]),
        ("check-template", ["--write-pin", "--verify-pin"]),
    ):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        # the explanation stands behind the name or on the line below
        explained = capsys.readouterr().out
        for word in words:
            assert re.search(rf"^  {word}[^\n]*(  +\w|\n {{8,}}\w)", explained, re.MULTILINE), word


def test_a_template_that_forgets_fails_the_check(tmp_path, capsys):
    template = tmp_path / "forgetful.jinja"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content if loop.last or "
        "m.role != 'assistant' else 'said' }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tools = tmp_path / "tools.json"
    tools.write_text('[{"type": "function", "function": {"name": "run", "parameters": {}}}]')
    given = ["check-template", "--tokenizer", str(TINY_FOLDER), "--template", str(template)]
    assert main([*given, "--tools", str(tools), "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["failures"] > 0
    assert {"closed prefix"} <= {c["property"] for c in content["cells"] if c["outcome"] == "FAIL"}


def test_progress_goes_to_standard_error(turns_file, monkeypatch, capsys):
    monkeypatch.setattr(_commands, "_SECONDS_BETWEEN_NOTES", 0.0)
    assert main(["audit", turns_file]) == 0
    assert capsys.readouterr().err == "audited 1 trials\naudited 2 trials\n"


def run(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "t1_tito", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONWARNINGS": "error"},
        **options,
    )


def test_the_module_runs_and_tells_its_version():
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"t1-tito {version('t1-tito')}\n")


def test_the_example_in_the_help_runs_as_printed(tmp_path):
    text = run("--help").stdout
    command = re.search(r"^  echo (.*) > turns\.jsonl$", text, re.MULTILINE)
    assert command is not None
    (line,) = shlex.split(command[1])
    (tmp_path / "turns.jsonl").write_text(line + "\n")
    assert run("audit", "turns.jsonl", cwd=tmp_path).returncode == 0
    assert run("assemble", "turns.jsonl", "-o", "trials.jsonl", cwd=tmp_path).returncode == 0
    assert run("audit", "trials.jsonl", cwd=tmp_path).returncode == 0
    assert "Traceback" not in run("audit", "missing.jsonl", cwd=tmp_path).stderr


def test_a_reader_that_has_seen_enough_is_no_error(turns_file):
    command = f"{shlex.quote(sys.executable)} -m t1_tito audit {shlex.quote(turns_file)}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""


def test_every_command_is_in_the_help():
    text = run("--help").stdout
    assert all(name in text for name in ("audit", "assemble", "check-template", "replay"))


def replaying_the_prompt(turns):
    """A subject that trains what the next prompt has instead of what was sampled."""
    samples = [assemble([turn(t["prompt_ids"], t["completion_ids"])]).chunks[0] for t in turns]
    return [
        {"tokens": s.tokens + 1, "loss_mask": s.loss_mask, "logprobs": s.logprobs} for s in samples
    ]


def saved_case(folder, subject):
    case = Case(TURNS, TokenBytes.from_tokens([b"x"] * 8))
    failure = Failure("emit", 0, 2, "as it was found", case)
    path = folder / "case.json"
    path.write_text(json.dumps(failure.to_json(subject)))
    return str(path)


def test_a_saved_case_is_run_again(tmp_path, monkeypatch, capsys):
    assert main(["replay", saved_case(tmp_path, OWN_ASSEMBLER)]) == 0
    assert "emit holds" in capsys.readouterr().out
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    assert main(["replay", saved_case(tmp_path, "test_cli:replaying_the_prompt")]) == 1
    assert "emit" in capsys.readouterr().out


def test_a_case_that_is_none_is_status_2(tmp_path, capsys):
    (tmp_path / "case.json").write_text("{}")
    assert main(["replay", str(tmp_path / "case.json")]) == 2
    assert main(["replay", str(tmp_path / "nowhere.json")]) == 2
    assert "Traceback" not in capsys.readouterr().err
