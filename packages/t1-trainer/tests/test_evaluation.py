"""Evaluation: paired tasks, invalid attempts left out, and the closing words of a run."""

import json
import math
import random

import pytest

from t1_trainer.errors import RolloutFailed
from t1_trainer.evaluation import Evaluation, compare
from t1_trainer.heldout_groups import heldout_groups
from t1_trainer.rollout.messages import Attempt
from t1_trainer.summary import evaluation_text, summary_text


def attempt(task: str, reward: float | None, *, length: int = 1, turns: int = 4) -> Attempt:
    resolved = reward == 1.0
    return Attempt(task, ("files",), length, reward, resolved, turns, "" if reward else "cause")


def evaluation(*attempts: Attempt) -> Evaluation:
    return Evaluation({"sampled": attempts})


BEFORE = evaluation(
    attempt("a", 0.0), attempt("a", 1.0), attempt("b", 0.5), attempt("c", 0.0, length=2)
)


def test_differences_pair_the_same_tasks():
    # in another order, and easy tasks were attempted more often
    after = evaluation(
        attempt("c", 0.0, length=2), attempt("b", 1.0), attempt("a", 1.0), attempt("a", 1.0)
    )
    change = compare(BEFORE, after)["sampled"]["reward"]
    assert change.tasks == 3
    assert change.mean == pytest.approx((0.5 + 0.5 + 0.0) / 3)


def test_an_unpaired_mean_is_another_number():
    after = evaluation(attempt("b", 1.0))
    change = compare(BEFORE, after)["sampled"]["reward"]
    assert change.mean == pytest.approx(0.5)
    before_mean = BEFORE.summary()["sampled"]["reward"]["mean"]
    assert 1.0 - before_mean != pytest.approx(0.5)


def test_what_infrastructure_failed_is_counted_and_left_out():
    # before ever scoring, an invalid attempt has no turns and no length worth a rate
    spoilt = evaluation(
        *BEFORE.attempts["sampled"],
        attempt("a", None, turns=0),
        attempt("d", None, length=3, turns=0),
    )
    clean, summary = BEFORE.summary()["sampled"], spoilt.summary()["sampled"]
    assert (summary["attempts"], summary["invalid"]) == (6, 2)
    for name in ("resolved", "reward", "turns_mean", "resolved_by_length"):
        assert summary[name] == clean[name]
    assert compare(BEFORE, spoilt)["sampled"]["reward"].mean == 0


def test_counting_a_failure_as_zero_would_be_noticed():
    spoilt = evaluation(*BEFORE.attempts["sampled"], attempt("b", 0.0, turns=0))
    assert spoilt.summary()["sampled"]["reward"] != BEFORE.summary()["sampled"]["reward"]


def test_decodings_are_compared_only_where_both_sides_have_them():
    greedy = Evaluation({"greedy": [attempt("a", 1.0)], **BEFORE.attempts})
    assert compare(greedy, BEFORE).keys() == {"sampled"}


def test_an_evaluation_reads_back_equal():
    stored = json.loads(json.dumps(BEFORE.to_json()))
    assert Evaluation.from_json(stored).summary() == BEFORE.summary()
    assert list(Evaluation.from_json(stored).attempts["sampled"]) == list(
        BEFORE.attempts["sampled"]
    )


def test_an_evaluation_without_any_verdict_is_none():
    with pytest.raises(
        RolloutFailed, match="sampled: no attempt has a verdict; first cause: cause"
    ):
        evaluation(attempt("a", None), attempt("b", None))


def test_an_evaluation_is_a_few_lines_for_people():
    text = evaluation_text({"agent": "policy", **BEFORE.summary()["sampled"]})
    assert "3 held-out tasks, 4 attempts of agent policy, 0 invalid" in text
    assert "resolved 16.7 % (95 % interval" in text
    assert "length 1 33.3%, length 2 0.0%" in text
    assert "reward 0.333 (95 % interval" in text


def summary(**changes: float | None) -> dict:
    side = BEFORE.summary()
    change = {
        field: {"mean": i.mean, "low": i.low, "high": i.high}
        for field, i in compare(BEFORE, BEFORE)["sampled"].items()
    }
    return {
        "steps": 3,
        "seconds": 90.0,
        "heldout_before": side,
        "heldout_after": side,
        "heldout_change": {"sampled": change},
        "heldout_groups": heldout_groups(BEFORE, BEFORE),
        "training_reward_first": 0.25,
        "training_reward_last": 0.5,
        "explained_variance_first": 0.1,
        "explained_variance_last": 0.9,
        "gap_logprob_replay": 0.002,
        "gap_logprob_free": 0.005,
        "cancelled_trials": 4,
        "invalid_trials": 1,
        "retention": {"files": {"launched": 4, "admitted": 3}},
        **changes,
    }


def test_the_closing_words_name_what_was_gained(tmp_path):
    text = summary_text(summary(), tmp_path)
    assert "3 steps in 1.5 min" in text
    assert "change +0.0 (95 % interval" in text
    assert "training reward 0.250 -> 0.500; explained variance +0.10 -> +0.90" in text
    assert "admitted share by family and length: files 75%" in text
    assert f"t1 eval {tmp_path}" in text


def test_the_closing_words_name_what_moved_and_what_did_not(tmp_path):
    still = {"verdict": "not shown to move", "change": {"mean": 0.2}}
    moved = {"verdict": "moved", "change": {"mean": -0.125}}
    groups = {"family": {"files": moved}, "length": {"1": still, "2": moved}}
    text = summary_text(summary() | {"heldout_groups": {"sampled": groups}}, tmp_path)
    assert "moved, sampled, in points: files -12, length 2 -12; not shown to move: length 1" in text
    assert "not shown to move: files, length 1, length 2" in summary_text(summary(), tmp_path)


def test_the_same_numbers_come_out_whatever_the_order():
    draw = random.Random(0)
    tasks = [(f"task {n}", draw.random()) for n in range(50)]
    before = evaluation(*(attempt(name, value) for name, value in tasks))
    after = evaluation(*(attempt(name, value**2) for name, value in tasks))
    backwards = evaluation(*reversed(after.attempts["sampled"]))
    assert compare(before, after) == compare(before, backwards)


def test_what_was_not_measured_does_not_spoil_the_closing_words(tmp_path):
    text = summary_text(
        summary(explained_variance_first=None, explained_variance_last=None, gap_logprob_free=None),
        tmp_path,
    )
    assert "explained variance undefined -> undefined" in text
    assert "without not measured" in text


def test_a_single_task_has_a_mean_and_no_interval():
    one = evaluation(attempt("a", 1.0))
    change = compare(one, one)["sampled"]["reward"]
    assert change.mean == 0
    assert math.isnan(change.low)
