"""Which groups of held-out tasks moved: membership, pairing, rates that add up, and the verdict."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_eval import Interval
from t1_trainer.evaluation import Evaluation
from t1_trainer.heldout_groups import (
    MOVED,
    NOT_SHOWN,
    heldout_groups,
    named_groups,
    verdict,
)
from t1_trainer.rollout.messages import Attempt


def attempt(
    task: str, resolved: bool, *, families=("links",), skills=("make-symlink",), valid=True
):
    reward = float(resolved) if valid else None
    return Attempt(task, families, len(families), reward, resolved, 4, "", skills)


def side(*attempts: Attempt) -> Evaluation:
    return Evaluation({"greedy": attempts})


def groups(before: list[Attempt], after: list[Attempt]) -> dict:
    return heldout_groups(side(*before), side(*after))["greedy"]


MIXED = {"families": ("links", "text", "links"), "skills": ("make-symlink", "cut-column", "rename")}


def test_a_task_counts_once_in_each_group_it_has_a_subgoal_of():
    found = groups([attempt("a", False, **MIXED)], [attempt("a", True, **MIXED)])
    assert found["family"].keys() == {"links", "text"}
    # cut-column has no habit, and an unknown skill is none that is known to
    assert found["habit"].keys() == {"make-symlink"}
    assert found["length"].keys() == {"3"}
    assert found["family"]["links"]["tasks"] == 1


def test_only_tasks_valid_on_both_sides_count():
    before = [attempt("a", False), attempt("b", False), attempt("c", False)]
    after = [attempt("a", True), attempt("b", True, valid=False), attempt("d", True)]
    group = groups(before, after)["family"]["links"]
    assert (group["tasks"], group["attempts_before"], group["attempts_after"]) == (1, 1, 1)
    assert (group["before"], group["after"]) == (0.0, 1.0)


def test_a_group_without_a_paired_task_is_kept_and_has_no_rate():
    text = {"families": ("text",), "skills": ("cut-column",)}
    before = [attempt("a", False), attempt("b", False, **text)]
    after = [attempt("a", True), attempt("b", True, valid=False, **text)]
    assert groups(before, after)["family"]["text"] == {"tasks": 0, "verdict": NOT_SHOWN}


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), min_size=2))
def test_the_change_is_the_difference_of_the_rates_shown(outcomes):
    # one attempt before and two after: the task is the unit on both sides
    before = [attempt(str(n), was) for n, (was, _, _) in enumerate(outcomes)]
    after = [attempt(str(n), now) for n, (_, *both) in enumerate(outcomes) for now in both]
    group = groups(before, after)["length"]["1"]
    assert group["change"]["mean"] == pytest.approx(group["after"] - group["before"])


def test_a_mean_over_attempts_would_be_another_rate():
    before = [attempt("a", True)] * 3 + [attempt("b", False)]
    group = groups(before, [attempt("a", True), attempt("b", True)])["family"]["links"]
    assert group["before"] == 0.5 != 3 / 4


def test_six_unanimous_tasks_moved_and_five_are_no_evidence():
    def of(count: int) -> str:
        tasks = [str(n) for n in range(count)]
        found = groups([attempt(t, False) for t in tasks], [attempt(t, True) for t in tasks])
        return found["family"]["links"]["verdict"]

    assert [of(6), of(5), of(1)] == [MOVED, NOT_SHOWN, NOT_SHOWN]


def test_a_fall_moved_too_and_an_interval_that_touches_zero_did_not():
    assert verdict(Interval(-0.2, -0.3, -0.1, 40)) == MOVED
    assert verdict(Interval(0.1, 0.0, 0.2, 40)) == NOT_SHOWN
    assert verdict(Interval(1.0, math.nan, math.nan, 1)) == NOT_SHOWN


def test_groups_do_not_depend_on_the_order_of_attempts():
    outcomes = [(str(n), n % 3 == 0) for n in range(40)]
    before = [attempt(task, hit) for task, hit in outcomes]
    after = [attempt(task, not hit or task == "0") for task, hit in outcomes]
    assert groups(before, after) == groups(before[::-1], after[::-1])


def test_an_evaluation_stored_without_skills_has_no_habits():
    content = side(attempt("a", True), attempt("b", False)).to_json()
    for stored in content["attempts"]["greedy"]:
        del stored["skills"]
    old = Evaluation.from_json(json.loads(json.dumps(content)))
    found = heldout_groups(old, old)["greedy"]
    assert found["habit"] == {}
    assert found["family"].keys() == {"links"}


def test_a_stored_evaluation_keeps_its_skills():
    stored = json.loads(json.dumps(side(attempt("a", True), attempt("b", True)).to_json()))
    assert Evaluation.from_json(stored).attempts["greedy"][0].skills == ("make-symlink",)


def test_groups_have_names_for_people():
    found = groups([attempt("a", False)], [attempt("a", True)])
    assert [name for _, name, _ in named_groups(found)] == ["links", "make-symlink", "length 1"]
