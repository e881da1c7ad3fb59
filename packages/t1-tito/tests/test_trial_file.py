import json

import numpy as np
import pytest
from audit_trials import TABLE, trials, turn
from hypothesis import given

from t1_tito import FileFormatError, assemble
from t1_tito.audit import audit
from t1_tito.trial_file import (
    TrialRecord,
    arrays_of,
    format_trial,
    parse_trial,
    read_trials,
    write_trials,
)

TURN = {
    "prompt_ids": [1, 2],
    "completion_ids": [3],
    "logprobs": [-0.5],
    "version_sent": 0,
    "version_received": 0,
    "finish_reason": "stop",
}
CHUNK = {"tokens": [1, 2, 3], "loss_mask": [False, False, True]}


def line(turn_=None, chunk=None, **fields):
    content = {"schema_version": 1, "trial_id": "a", "turns": [TURN | (turn_ or {})]}
    if chunk is not None:
        content["chunks"] = [CHUNK | chunk]
    return json.dumps(content | fields)


def refused(text):
    with pytest.raises(FileFormatError) as caught:
        parse_trial(text, "line 7")
    assert str(caught.value).startswith("line 7: ")
    return str(caught.value).removeprefix("line 7: ")


@given(trials())
def test_a_trial_comes_back_as_it_was_written(turns):
    chunks = tuple(arrays_of(chunk) for chunk in assemble(turns, TABLE).chunks)
    back = parse_trial(format_trial(TrialRecord("a", tuple(turns), chunks)))
    for one, other in zip(turns, back.turns, strict=True):
        assert one.prompt_ids.tolist() == other.prompt_ids.tolist()
        assert one.completion_ids.tolist() == other.completion_ids.tolist()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()
        assert (one.base_length, one.finish_reason) == (other.base_length, other.finish_reason)
    assert back.chunks is not None
    for first, second in zip(chunks, back.chunks, strict=True):
        for name, array in first.items():
            assert second[name].dtype == array.dtype
            assert second[name].tobytes() == array.tobytes()
    assert audit(back.chunks, back.turns, token_bytes=TABLE).ok


def test_a_file_is_read_trial_by_trial(tmp_path):
    path = tmp_path / "trials.jsonl"
    records = [TrialRecord(name, (turn([1], [2]),)) for name in "ab"]
    assert write_trials(path, records) == 2
    back = list(read_trials(path))
    assert [record.trial_id for record in back] == ["a", "b"]
    assert [record.where for record in back] == [f"{path}, line 1", f"{path}, line 2"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_fails_while_it_is_written_leaves_the_old_one(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text("old")

    def records():
        yield TrialRecord("a", (turn([1], [2]),))
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError):
        write_trials(path, records())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_optional_fields_may_be_left_out():
    record = parse_trial(line(chunk={"source_turn": None}))
    assert record.chunks is not None
    assert set(record.chunks[0]) == {"tokens", "loss_mask"}
    assert parse_trial(line()).chunks is None
    assert record.turns[0].base_length == 0


def test_masks_may_be_numbers():
    record = parse_trial(line(chunk={"loss_mask": [0, 0, 1]}))
    assert record.chunks is not None
    assert record.chunks[0]["loss_mask"].dtype == np.bool_


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (line(turn_={"logprobs": [-0.5, 1]}), "turns[0].logprobs: expected one per sampled id"),
        (line(turn_={"prompt_ids": [1, -2]}), "turns[0].prompt_ids[1]: expected an id"),
        (line(turn_={"prompt_ids": "12"}), "turns[0]: prompt_ids: expected a list, got str"),
        (line(turn_={"finish_reason": "tired"}), "turns[0].finish_reason: expected one of"),
        (line(turn_={"base_length": -1}), "turns[0].base_length: expected a number of ids"),
        (line(turn_={"logprobs": [float("nan")]}), "turns[0].logprobs[0]: expected a finite value"),
        (line(note=float("inf")), "holds Infinity; only finite numbers"),
        (line(chunk={"tokens": [1, 2]}), "chunks[0].loss_mask: 3 entries for 2 tokens"),
        (line(chunk={"tokens": [1, 2, True]}), "chunks[0].tokens[2]: expected int32 values"),
        (line(chunk={"tokens": [1, 2, 2**31]}), "chunks[0].tokens[2]: 2147483648 does not fit"),
        (line(chunk={"loss_mask": [0, 2, 0]}), "chunks[0].loss_mask[1]: expected bool values"),
        (
            line(chunk={"logprobs": [0, float("nan"), 0]}),
            "chunks[0].logprobs[1]: expected a finite",
        ),
        (line(chunk={"logprobs": [0, 0, 10**400]}), "chunks[0].logprobs: a value does not fit"),
        ("[" * 100_000, "not a JSON line"),
        (line(chunk={"tokens": None}), "chunks[0]: tokens: expected a list, got NoneType"),
        (line(chunks=[1]), "chunks[0]: expected an object, got int"),
        (line(turns=[]), "turns: expected at least one"),
        (line(turns={}), "turns: expected a list, got dict"),
        (line(schema_version=2), "schema_version is 2, this reads 1"),
        ('{"schema_version": 1, "trial_id": "a"}', "turns is missing"),
        ("[1]", "expected an object, got list"),
        (json.dumps({"schema_version": 1, "trial_id": "a", "turns": [{}]}), "turns[0]: prompt_ids"),
    ],
)
def test_a_malformed_line_is_refused_by_field_and_position(text, message):
    assert refused(text).startswith(message)


def test_a_torn_last_line_is_said_to_be_torn(tmp_path):
    assert "no line break" in refused(line()[:40])
    # the place is one in this line, and not the decoder's own "line 2 column 1"
    told = refused('{"trial_id": "a"\n')
    assert told == "not a JSON line: Expecting ',' delimiter at character 18"
    assert "no line break" not in refused(line()[:40] + "\n")
    path = tmp_path / "trials.jsonl"
    path.write_text(line() + "\n\n" + line()[:40])
    trials_ = read_trials(path)
    assert next(trials_).trial_id == "a"
    with pytest.raises(FileFormatError, match=r"line 3: not a JSON line.*cut off"):
        next(trials_)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_bytes(b'{"trial_id": "\xff\xfe"}\n')
    with pytest.raises(FileFormatError, match="line 1: not a JSON line"):
        list(read_trials(path))


def test_lines_are_independent(tmp_path):
    path = tmp_path / "trials.jsonl"
    path.write_text("\n".join([line(), line(turn_={"logprobs": []}), "{", line()]))
    errors = []
    assert len(list(read_trials(path, on_error=errors.append))) == 2
    assert ["line 2" in str(errors[0]), "line 3" in str(errors[1])] == [True, True]


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileFormatError, match=r"nowhere\.jsonl: No such file"):
        list(read_trials(tmp_path / "nowhere.jsonl"))
    with pytest.raises(FileFormatError, match=r"out\.jsonl: No such file"):
        write_trials(tmp_path / "nowhere" / "out.jsonl", [])
