"""The content of `summary.json`."""

from t1_trainer.config import Config
from t1_trainer.evaluation import Evaluation
from t1_trainer.files import json_text
from t1_trainer.rollout.messages import Attempt
from t1_trainer.run_directory import RunDirectory
from t1_trainer.run_summary import run_summary


def evaluation(resolved: bool) -> Evaluation:
    attempts = [
        Attempt(task, ("files",), 1, float(resolved), resolved, 4, skills=("read-mode",))
        for task in "abcdefg"
    ]
    return Evaluation({"greedy": attempts})


def summary_of(tmp_path) -> dict:
    run = RunDirectory.create(tmp_path / "run", Config())
    # the second step launched one task twice: two launches
    for step, launched, admitted in ((1, 3, 2), (2, 2, 2)):
        metrics = {"step": step, "rollout/cancelled": 1, "rollout/invalid": 0, "reward/mean": 0.5}
        retention = {"files": {"launched": launched, "admitted": admitted}}
        run.record_step(metrics, {"retention": retention})
    run.close()
    return run_summary(run, evaluation(False), evaluation(True), 60.0)


def test_retention_adds_up_the_launches_and_not_the_tasks(tmp_path):
    assert summary_of(tmp_path)["retention"] == {"files": {"launched": 5, "admitted": 4}}


def test_the_summary_says_which_groups_moved(tmp_path):
    groups = summary_of(tmp_path)["heldout_groups"]["greedy"]
    moved = {
        kind: {name: g["verdict"] for name, g in members.items()}
        for kind, members in groups.items()
    }
    assert moved == {
        "family": {"files": "moved"},
        "habit": {"read-mode": "moved"},
        "length": {"1": "moved"},
    }


def test_what_no_step_measured_is_absent_and_the_summary_is_json(tmp_path):
    summary = summary_of(tmp_path)
    assert summary["gap_logprob_free"] is None
    assert summary["training_reward_last"] == 0.5
    assert "NaN" not in json_text(summary)
