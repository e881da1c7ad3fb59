import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_reward import (
    Assertion,
    Cause,
    RecordError,
    RewardRecord,
    Verdict,
    VerifierReport,
    rescore,
    score,
)

ids = st.sampled_from([f"assertion-{number}" for number in range(8)])
reports = st.dictionaries(ids, st.booleans(), min_size=1).map(
    lambda outcomes: VerifierReport(tuple(Assertion(*pair) for pair in outcomes.items()))
)
with_report = st.builds(
    Verdict,
    report=reports,
    cause=st.just(Cause.OK),
    listed=st.lists(ids, unique=True).map(tuple),
    assertion_count=st.integers(0, 8),
)
without_report = st.builds(
    Verdict,
    report=st.none(),
    cause=st.sampled_from([cause for cause in Cause if cause is not Cause.OK]),
    listed=st.lists(ids, unique=True).map(tuple),
    assertion_count=st.integers(0, 8),
    stated=st.sampled_from([None, 0, 1]),
)
verdicts = with_report | without_report
rules = st.fixed_dictionaries(
    {
        "scale": st.integers(1, 30),
        "variant": st.sampled_from(["test_count", "binary"]),
        "fallback": st.sampled_from(["scaled", "paper"]),
    }
)


def verdict_of(outcomes, **known):
    report = VerifierReport(tuple(Assertion(name, passed) for name, passed in outcomes.items()))
    return Verdict(report, Cause.OK, **known)


@given(verdicts, rules)
def test_a_record_read_back_scores_what_it_scored(verdict, rule):
    record = score(verdict, **rule)
    stored = record.model_dump_json()
    assert RewardRecord.from_json(stored) == record
    assert rescore(RewardRecord.from_json(stored)) == record


@given(verdicts, rules, rules)
def test_rescoring_is_scoring_under_the_other_rule(verdict, one, other):
    assert rescore(score(verdict, **one), **other) == score(verdict, **other)


@given(with_report, rules, st.data())
def test_one_more_passed_assertion_never_lowers_the_reward(verdict, rule, data):
    assertions = list(verdict.report.assertions)
    place = data.draw(st.integers(0, len(assertions) - 1))
    assertions[place] = Assertion(assertions[place].id, True)
    better = Verdict(
        VerifierReport(tuple(assertions)), Cause.OK, verdict.listed, verdict.assertion_count
    )
    assert score(better, **rule).reward >= score(verdict, **rule).reward


@given(with_report, rules, st.data())
def test_the_order_of_a_report_does_not_matter(verdict, rule, data):
    shuffled = tuple(data.draw(st.permutations(verdict.report.assertions)))
    other = Verdict(VerifierReport(shuffled), Cause.OK, verdict.listed, verdict.assertion_count)
    assert score(other, **rule) == score(verdict, **rule)


@given(with_report.filter(lambda verdict: verdict.listed), rules)
def test_assertions_the_task_does_not_list_do_not_count(verdict, rule):
    more = VerifierReport((*verdict.report.assertions, Assertion("planted", True)))
    other = Verdict(more, Cause.OK, verdict.listed, verdict.assertion_count)
    assert score(other, **rule) == score(verdict, **rule)


@given(verdicts, rules)
def test_solved_is_never_worth_zero_and_invalid_is_never_a_number(verdict, rule):
    record = score(verdict, **rule)
    if verdict.binary == 1 and verdict.total > 0:
        assert record.reward > 0
    assert (record.reward is None) is (verdict.report is None and verdict.stated is None)


def test_listed_assertions_that_are_not_reported_count_as_failed():
    verdict = verdict_of({"a": True, "x": True}, listed=("a", "b", "c"))
    assert (verdict.passed, verdict.total, verdict.binary) == (1, 3, 0)


def test_a_known_count_counts_what_is_missing_as_failed():
    verdict = verdict_of({"a": True, "b": True}, assertion_count=5)
    assert (verdict.passed, verdict.total, verdict.binary) == (2, 5, 0)
    assert verdict_of({"a": True, "b": True}, assertion_count=1).binary == 1


def test_the_reward_is_passed_over_scale_and_may_exceed_one():
    verdict = verdict_of({"a": True, "b": True, "c": True, "d": False})
    assert score(verdict, scale=20).reward == 3 / 20
    assert score(verdict, scale=2).reward == 1.5
    assert score(verdict, scale=20, variant="binary").reward == 0.0


def test_without_a_report_the_fallback_decides():
    solved = Verdict(None, Cause.REPORT_MISSING, listed=("a", "b", "c"), stated=1)
    assert score(solved, scale=20).reward == 3 / 20
    assert score(solved, scale=20, fallback="paper").reward == 1.0
    assert score(Verdict(None, Cause.REPORT_MISSING, stated=1), scale=20).reward == 1 / 20
    assert score(Verdict(None, Cause.REPORT_MISSING, stated=0), scale=20).reward == 0.0


def test_a_scale_below_one_is_refused():
    verdict = verdict_of({"a": True})
    with pytest.raises(RecordError, match="scale: Input should be greater than 0, got 0"):
        score(verdict, scale=0)
    with pytest.raises(RecordError, match="scale: Input should be greater than 0, got -3"):
        rescore(score(verdict, scale=2), scale=-3)


@pytest.mark.parametrize("field", ["variant", "fallback"])
def test_a_rule_that_does_not_exist_is_refused(field):
    verdict = verdict_of({"a": True})
    with pytest.raises(RecordError, match=f"reward record: {field}: .* got 'other'"):
        score(verdict, scale=2, **{field: "other"})
    with pytest.raises(RecordError, match=f"reward record: {field}: .* got 'other'"):
        rescore(score(verdict, scale=2), **{field: "other"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cause": Cause.VERIFIER_TIMEOUT}, "expected cause 'ok' where there is a report"),
        ({"passed": 4, "binary": 1}, "expected passed of at most total 3, got 4"),
        ({"passed": 3}, "expected binary to say whether passed is total, got 0"),
        ({"binary": 1}, "expected binary to say whether passed is total, got 1"),
        ({"binary": None}, "expected binary to say whether passed is total, got None"),
        ({"scale": -1}, "scale: Input should be greater than 0, got -1"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused_everywhere(change, message):
    record = score(verdict_of({"a": True, "b": True, "c": False}), scale=20)
    with pytest.raises(RecordError, match=message):
        rescore(record.model_copy(update=change))
    document = json.loads(record.model_dump_json()) | change
    with pytest.raises(RecordError, match=message):
        RewardRecord.from_json(json.dumps(document))


def test_a_verdict_that_contradicts_itself_is_not_scored():
    report = VerifierReport((Assertion("a", True),))
    with pytest.raises(RecordError, match="expected cause 'ok'"):
        score(Verdict(report, Cause.TESTS_CHANGED), scale=20)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("reward", 0.75, r"reward: expected 0\.1 from the other fields, got 0\.75"),
        ("passed", 1, r"reward: expected 0\.05"),
        ("scale", 0, "scale"),
        ("binary", 2, "binary"),
        ("cause", "bad_luck", "cause"),
        ("passed", -1, "passed"),
        ("schema_version", 2, "schema_version"),
        ("comment", "x", "comment"),
    ],
)
def test_a_stored_record_that_was_changed_is_caught(field, value, message):
    record = score(verdict_of({"a": True, "b": True, "c": False}), scale=20)
    document = json.loads(record.model_dump_json())
    document[field] = value
    with pytest.raises(RecordError, match=f"reward record: {message}"):
        RewardRecord.from_json(json.dumps(document))


def test_text_that_is_no_record_is_refused():
    with pytest.raises(RecordError, match="the record"):
        RewardRecord.from_json("{")
