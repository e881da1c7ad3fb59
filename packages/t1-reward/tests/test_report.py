import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_reward import MAX_REPORT_BYTES, Assertion, Cause, read_report

ids = st.text("abc-", min_size=1, max_size=6).map(lambda text: f"x{text}y")
outcomes = st.dictionaries(ids, st.booleans(), min_size=1, max_size=12)


def tap(outcomes, plan=None):
    lines = [f"1..{len(outcomes) if plan is None else plan}"]
    for number, (name, passed) in enumerate(outcomes.items(), start=1):
        lines.append(f"{'ok' if passed else 'not ok'} {number} - {name}")
    return ("\n".join(lines) + "\n").encode()


def cause_of(data):
    report, cause = read_report(data)
    assert (report is None) is (cause is not Cause.OK)
    return cause


@given(outcomes)
def test_a_report_reads_back(outcomes):
    report, cause = read_report(tap(outcomes))
    assert cause is Cause.OK
    assert report.assertions == tuple(Assertion(*pair) for pair in outcomes.items())
    assert report.passed == {name for name, passed in outcomes.items() if passed}


@given(st.binary(max_size=300) | st.text("ok 1.#-n\nt\r", max_size=80).map(str.encode))
def test_any_bytes_give_a_report_or_a_cause(data):
    cause_of(data)


@given(outcomes, st.integers(0, 400))
def test_a_report_cut_anywhere_is_never_taken_for_complete(outcomes, cut):
    data = tap(outcomes)
    cut = min(cut, len(data) - 1)
    report, _ = read_report(data[:cut])
    # only the last assertion's text may be shorter: the plan counts the lines
    assert report is None or len(report.assertions) == len(outcomes)


def test_each_way_of_having_no_report_has_its_cause():
    assert cause_of(None) is Cause.REPORT_MISSING
    assert cause_of(b"") is Cause.REPORT_MISSING
    assert cause_of(b"1..0\n") is Cause.REPORT_EMPTY
    assert cause_of(b"1..2\nok 1 - a\n") is Cause.REPORT_TRUNCATED
    assert cause_of(b"ok 1 - a\n") is Cause.REPORT_TRUNCATED
    assert cause_of(b"1..1\nok 1 - a\nBail out! disk full\n") is Cause.REPORT_TRUNCATED
    assert cause_of(b"1..1\nok 1 - a\nok 2 - b\n") is Cause.REPORT_MALFORMED
    assert cause_of(b"hello\n") is Cause.REPORT_MALFORMED
    assert cause_of(b"1..1\nokay\n") is Cause.REPORT_MALFORMED
    assert cause_of(b"\xff") is Cause.REPORT_MALFORMED
    assert cause_of(b" " * (MAX_REPORT_BYTES + 1)) is Cause.REPORT_OVERSIZE


def test_what_a_report_may_contain_besides_outcomes_is_passed_over():
    text = "TAP version 14\n# hello\n1..2 # two\nok 1 - a\n  ---\n  x: 1\n  ...\n\nnot ok 2 - b\n"
    report, cause = read_report(text.encode())
    assert cause is Cause.OK
    assert report.assertions == (Assertion("a", True), Assertion("b", False))


def test_skipped_and_expected_failures_did_not_pass():
    report, _ = read_report(
        b"1..3\nok 1 - a # SKIP no tty\nok 2 - b # todo later\nok 3 - c # note\n"
    )
    assert report.passed == {"c"}


def test_a_number_sign_inside_an_id_belongs_to_it():
    report, _ = read_report(
        b"1..6\nok 1 - issue #12\nok 2 - C#\nok 3 - a#b # note\nok 4 - d #skip\n"
        b"ok 5 - e\\# TODO f\nok 6 - g\\#h #Todo\n"
    )
    assert [assertion.id for assertion in report.assertions] == [
        "issue #12",
        "C#",
        "a#b",
        "d",
        "e# TODO f",
        "g#h",
    ]
    assert report.passed == {"issue #12", "C#", "a#b", "e# TODO f"}


def test_an_id_reported_twice_counts_as_its_worst():
    for lines in (b"ok 1 - a\nnot ok 2 - a\n", b"not ok 1 - a\nok 2 - a\n"):
        report, _ = read_report(b"1..2\n" + lines)
        assert report.assertions == (Assertion("a", False),)


def test_assertions_without_a_name_are_named_by_their_place():
    report, _ = read_report(b"1..2\nok 1\r\nnot ok\n")
    assert report.assertions == (Assertion("1", True), Assertion("2", False))


@pytest.mark.parametrize("filler", [b" ", b"-", b"#", b"ok\n", b"1..1\n", b"ok 1 - a\n"])
def test_the_longest_report_is_read_at_once(filler):
    data = (b"1..1\nok 1 - " + filler * MAX_REPORT_BYTES)[:MAX_REPORT_BYTES]
    start = time.perf_counter()
    cause_of(data)
    # linear readers need a tenth of a second, quadratic ones many minutes
    assert time.perf_counter() - start < 5
