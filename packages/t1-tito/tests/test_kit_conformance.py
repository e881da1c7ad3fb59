"""Conformance runs: which subjects pass, which fail and on what, and that failures run again."""

import json
from functools import cache

import pytest
import subjects

from t1_tito import FidelityError, FileFormatError, Turn
from t1_tito.testing import Case, Conformance, Failure, Status, TinyChat, conforms, run_case
from t1_tito.testing.cases import read_case, write_case
from t1_tito.testing.checks import CHECKS
from t1_tito.testing.samples import read_samples
from t1_tito.testing.subject import Subject, load_subject

REQUIRED = [name for name, check in CHECKS.items() if check.required]


@cache
def checked(subject, invariant, examples=15):
    name = f"subjects:{subject.__name__}"
    return Conformance(subject, name, examples=examples).check(invariant)


def test_this_packages_assembler_passes_every_invariant():
    report = Conformance(examples=6).run()
    assert report.passed, str(report)
    assert all(outcome.status is Status.PASSED for outcome in report.outcomes)


@pytest.mark.parametrize("subject", [subjects.per_turn, subjects.strict_merge])
def test_honest_stacks_pass_what_is_required(subject):
    report = conforms(subject, examples=6)
    assert report.passed, str(report)
    skipped = {o.invariant for o in report.outcomes if o.status is Status.NOT_APPLICABLE}
    assert {"provenance", "ladder", "guard"} <= skipped
    assert ("idempotent" in skipped) == (subject is subjects.per_turn)


@pytest.mark.parametrize(
    ("subject", "invariant"),
    [
        (subjects.reencoding, "emit"),
        (subjects.overwriting, "once"),
        (subjects.overwriting, "append"),
        (subjects.misaligned, "logp"),
        (subjects.forgetful, "once"),
        (subjects.contextless, "cond"),
        (subjects.ragged, "shape"),
    ],
)
def test_a_faulty_stack_fails_on_its_fault(subject, invariant):
    outcome = checked(subject, invariant)
    assert outcome.status is Status.FAILED
    assert outcome.failure.invariant == invariant


def test_a_failure_is_shrunk_to_the_smallest_case():
    failure = checked(subjects.overwriting, "once").failure
    assert len(failure.case.turns) == 2
    assert sum(turn.length for turn in failure.case.turns) < 60


def test_a_subject_that_raises_fails_with_its_own_words():
    outcome = checked(subjects.raising, "emit")
    assert outcome.status is Status.FAILED
    assert "RuntimeError: more than one turn" in outcome.reason


def test_a_tokenizer_may_be_given():
    report = Conformance(chat=TinyChat(), examples=3).run(["emit", "drift_local"])
    assert report.passed


def test_a_report_is_plain_json():
    report = Conformance(subjects.ragged, "subjects:ragged", examples=3).run(["shape", "emit"])
    content = json.loads(json.dumps(report.to_json()))
    assert content["passed"] is False
    assert {outcome["invariant"] for outcome in content["outcomes"]} == {"shape", "emit"}
    assert content["failures"][0]["failure"]["problem"].startswith("loss_mask")
    assert "FAILED" in str(report)


def test_a_case_runs_again_as_it_was(tmp_path):
    failure = checked(subjects.overwriting, "once").failure
    path = write_case(tmp_path, failure, "subjects:overwriting")
    outcome = run_case(path)
    assert not outcome.passed
    assert outcome.failure.problem == failure.problem
    assert "once broken" in str(outcome)


def test_a_case_is_printed_with_its_text(tmp_path):
    turn = Turn([97, 98], [99], [-0.5], 0, 0, "length")
    case = Case([turn], TinyChat().token_bytes)
    lines = ["  0: 0 kept ‖ [97, 98] -> [99] length", "     'ab' -> 'c'"]
    assert repr(case).splitlines()[1:] == lines
    # what is read back knows the bytes of its ids, too
    failure = Failure("emit", 0, 2, "another id", case)
    _, again = read_case(write_case(tmp_path, failure, "subjects:own"))
    assert repr(again) == repr(case)


def test_a_case_whose_subject_is_elsewhere_says_where_to_run_it(tmp_path):
    failure = Failure("emit", 0, 2, "another id", Case([], TinyChat().token_bytes))
    path = write_case(tmp_path, failure, "buggy:assemble")
    with pytest.raises(FileFormatError, match="No module named 'buggy': run it from the folder"):
        run_case(path)


def test_a_case_passes_once_its_subject_is_mended(tmp_path):
    failure = checked(subjects.overwriting, "once").failure
    path = write_case(tmp_path, failure, "subjects:strict_merge")
    assert run_case(path).passed
    assert "holds on this case" in str(run_case(path))


def test_a_case_with_a_byte_table_keeps_its_bytes(tmp_path):
    failure = checked(subjects.overwriting, "once").failure
    _, case = read_case(write_case(tmp_path, failure, "subjects:own"))
    for turn, before in zip(case.turns, failure.case.turns, strict=True):
        ids = turn.prompt_ids.tolist()
        assert ids == before.prompt_ids.tolist()
        assert case.token_bytes.bytes_of(ids) == failure.case.token_bytes.bytes_of(ids)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema_version": 2}, "schema_version"),
        ({"invariant": "unheard"}, "no invariant 'unheard'"),
        ({"subject": "no.such:thing"}, "No module named"),
        ({"subject": "subjects"}, "package.module:callable"),
        ({"subject": "subjects:REQUIRED"}, "REQUIRED"),
        ({"turns": [{"prompt_ids": [1]}]}, "missing"),
        ({"vocabulary": {}}, "pieces"),
        ({"drift": "x"}, "invalid literal"),
    ],
)
def test_a_malformed_case_is_refused_by_name(tmp_path, change, message):
    failure = checked(subjects.ragged, "shape", examples=1).failure
    path = write_case(tmp_path, failure, "subjects:ragged")
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **change}), encoding="utf-8")
    with pytest.raises(FileFormatError, match=message):
        run_case(path)


def test_a_missing_or_torn_case_is_refused(tmp_path):
    with pytest.raises(FileFormatError, match="No such file"):
        run_case(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"schema')
    with pytest.raises(FileFormatError, match="not JSON"):
        run_case(tmp_path / "torn.json")


@pytest.mark.parametrize(
    "returned",
    [
        None,
        [],
        [{"tokens": [1]}],
        [{"tokens": [[1]], "loss_mask": [True], "logprobs": [0.0]}],
        [{"tokens": [1], "loss_mask": [True, False], "logprobs": [0.0]}],
        [{"tokens": [1.5], "loss_mask": [True], "logprobs": [0.0]}],
    ],
)
def test_what_is_no_sample_is_refused(returned):
    with pytest.raises(FidelityError) as caught:
        read_samples(returned)
    assert caught.value.invariant == "shape"


def test_a_subject_gets_the_byte_table_only_if_it_asks():
    assert load_subject("subjects:own") is subjects.own
    case = checked(subjects.ragged, "shape", examples=1).failure.case
    for call in (subjects.own, subjects.per_turn):
        assert len(Subject(call).samples(case)) >= 1


def test_an_unknown_invariant_is_no_invariant():
    with pytest.raises(KeyError):
        Conformance().check("unheard")


def test_every_required_invariant_is_broken_by_some_subject_here():
    broken = {"shape", "emit", "once", "logp", "cond", "append", "bytes"}
    assert broken == set(REQUIRED)
