"""Trial directories: what is in them, what never is, and what Harbor reads from them."""

import dataclasses
import json
import math
import resource
from importlib import import_module

import numpy as np
import pytest

from t1_eval import (
    AgentRun,
    AgentTurn,
    StopReason,
    TrialResult,
    write_trial,
)
from t1_reward import Assertion, Cause, RewardRecord, Verdict, VerifierReport, score
from t1_tito import FinishReason, Turn

TURN = Turn([7, 8], [9, 256], [-0.123456789, -1.5], 3, 3, FinishReason.STOP)
RUN = AgentRun(
    (AgentTurn("echo é\ud800", "é\0\n", 0, TURN), AgentTurn("exit", "", None, TURN)),
    StopReason.EXIT,
)
PARTIAL = Verdict(
    VerifierReport((Assertion("a", True), Assertion("b", False))), Cause.OK, ("a", "b")
)
SOLVED = Verdict(VerifierReport((Assertion("a", True),)), Cause.OK, ("a",))
NO_VERDICT = Verdict(None, Cause.VERIFIER_TIMEOUT, ("a", "b"))


def result_of(verdict, key="s00001-hello", **changes):
    result = TrialResult(
        key=key,
        task_id="hello",
        task_checksum="c0ffee",
        families=("files",),
        length=1,
        run=RUN,
        reward=score(verdict, scale=20),
        verifier_output="seen é\n",
    )
    return dataclasses.replace(result, **changes)


def read(path):
    return json.loads(path.read_text("utf-8"))


def files(path):
    return sorted(p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file())


def test_a_trial_is_six_files(tmp_path):
    path = write_trial(tmp_path / "trials" / "step-00001", result_of(SOLVED))

    assert path == tmp_path / "trials" / "step-00001" / "s00001-hello"
    assert files(path) == [
        "agent/turns.jsonl",
        "config.json",
        "result.json",
        "verifier/reward.txt",
        "verifier/t1_reward.json",
        "verifier/test-stdout.txt",
    ]


def test_the_dense_reward_is_ours_and_the_outcome_is_harbors(tmp_path):
    path = write_trial(tmp_path, result_of(PARTIAL))

    stored = RewardRecord.from_json((path / "verifier" / "t1_reward.json").read_bytes())
    assert stored == result_of(PARTIAL).reward
    assert stored.reward == 1 / 20
    assert (path / "verifier" / "reward.txt").read_text() == "0\n"
    assert read(path / "result.json")["verifier_result"] == {"rewards": {"reward": 0}}
    solved = write_trial(tmp_path, result_of(SOLVED, key="solved"))
    assert (solved / "verifier" / "reward.txt").read_text() == "1\n"


def assert_without_reward(path):
    assert not (path / "verifier" / "reward.txt").exists()
    assert read(path / "result.json")["verifier_result"] is None
    assert read(path / "verifier" / "t1_reward.json")["reward"] is None


def test_an_invalid_trial_has_no_reward_anywhere(tmp_path):
    path = write_trial(tmp_path, result_of(NO_VERDICT))

    assert_without_reward(path)
    assert read(path / "verifier" / "t1_reward.json")["cause"] == "verifier_timeout"


def test_a_reward_left_from_an_earlier_attempt_is_replaced(tmp_path):
    write_trial(tmp_path, result_of(SOLVED))
    (tmp_path / ".s00001-hello.partial").mkdir()

    assert_without_reward(write_trial(tmp_path, result_of(NO_VERDICT)))
    assert [p.name for p in tmp_path.iterdir()] == ["s00001-hello"]


def test_a_zero_in_the_place_of_no_verdict_is_found(tmp_path):
    path = write_trial(tmp_path, result_of(NO_VERDICT))
    (path / "verifier" / "reward.txt").write_text("0\n")

    with pytest.raises(AssertionError):
        assert_without_reward(path)


def fail_to_write(folder, result):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_trial(folder, result)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_directory_that_cannot_be_finished_does_not_appear(tmp_path):
    fail_to_write(tmp_path, result_of(SOLVED))

    assert not (tmp_path / "s00001-hello").exists()
    assert files(write_trial(tmp_path, result_of(SOLVED)))
    assert [p.name for p in tmp_path.iterdir()] == ["s00001-hello"]


def test_a_directory_that_cannot_be_finished_leaves_the_one_before_it(tmp_path):
    path = write_trial(tmp_path, result_of(SOLVED))
    before = {name: (path / name).read_bytes() for name in files(path)}

    fail_to_write(tmp_path, result_of(NO_VERDICT))

    assert {name: (path / name).read_bytes() for name in files(path)} == before


def test_turns_are_kept_line_by_line(tmp_path):
    path = write_trial(tmp_path, result_of(SOLVED))

    lines = (path / "agent" / "turns.jsonl").read_text("utf-8").splitlines()
    first, last = (json.loads(line) for line in lines)
    assert next(iter(first)) == "schema_version"
    assert first == {
        "schema_version": 1,
        "command": "echo é\ud800",
        "output": "é\0\n",
        "exit_code": 0,
        "prompt_tokens": 2,
        "completion_ids": [9, 256],
        "logprobs": [-0.123457, -1.5],
        "weight_version": 3,
        "finish_reason": "stop",
    }
    assert last["exit_code"] is None


def test_log_probabilities_stay_numbers_json_knows(tmp_path):
    tiny = Turn([7], [9], np.array([-1e-9], np.float32), 0, 0, FinishReason.STOP)
    run = AgentRun((AgentTurn("exit", "", None, tiny),), StopReason.EXIT)

    path = write_trial(tmp_path, result_of(SOLVED, run=run))

    (logprob,) = read(path / "agent" / "turns.jsonl")["logprobs"]
    assert math.isclose(logprob, 0.0, abs_tol=1e-6)


def test_the_result_says_why_the_agent_stopped_and_what_it_used(tmp_path):
    result = read(write_trial(tmp_path, result_of(SOLVED)) / "result.json")

    assert result["agent_result"] == {
        "n_input_tokens": 4,
        "n_output_tokens": 4,
        "metadata": {"stop_reason": "exit", "n_episodes": 2},
    }
    assert result["task_checksum"] == "c0ffee"
    scripted = AgentRun((AgentTurn("true", "", 0),), StopReason.EXIT)
    result = read(write_trial(tmp_path, result_of(SOLVED, run=scripted)) / "result.json")
    assert result["agent_result"] == {"metadata": {"stop_reason": "exit", "n_episodes": 1}}


def test_ids_are_those_of_the_place(tmp_path):
    def written(folder, key):
        return read(write_trial(folder, result_of(SOLVED, key=key)) / "result.json")["id"]

    places = [(tmp_path / "a", "x"), (tmp_path / "a", "y"), (tmp_path / "b", "x")]
    ids = [written(*place) for place in places]
    assert len(set(ids)) == 3
    assert [written(*place) for place in places] == ids


@pytest.mark.slow
def test_harbor_reads_a_trial(tmp_path):
    pytest.importorskip("harbor")
    TrialPaths = import_module("harbor.models.trial.paths").TrialPaths
    TrialConfig = import_module("harbor.models.trial.config").TrialConfig
    HarborResult = import_module("harbor.models.trial.result").TrialResult
    compute_pass_at_k_by_evals = import_module("harbor.utils.pass_at_k").compute_pass_at_k_by_evals

    def attempts(verdicts):
        for number, verdict in enumerate(verdicts):
            paths = TrialPaths(write_trial(tmp_path, result_of(verdict, key=f"try-{number}")))
            TrialConfig.model_validate_json(paths.config_path.read_text())
            yield paths, HarborResult.model_validate_json(paths.result_path.read_text())

    for (paths, result), reward in zip(attempts([SOLVED, PARTIAL]), [1, 0], strict=True):
        assert result.reward_valid
        assert result.verifier_result.rewards == {"reward": reward}
        assert float(paths.reward_text_path.read_text()) == reward
        assert paths.test_stdout_path.read_text("utf-8") == "seen é\n"
        assert result.task_id.get_name() == result.task_name == "hello"
        assert result.compute_token_cost_totals() == (4, None, 4, None)
        assert result.agent_result.metadata["stop_reason"] == "exit"

    ((_, invalid),) = attempts([NO_VERDICT])
    assert not invalid.reward_valid
    four = [result for _, result in attempts([SOLVED, PARTIAL, PARTIAL, NO_VERDICT])]
    ((name, rates),) = compute_pass_at_k_by_evals(four).items()
    assert name.startswith("t1")
    assert rates == {2: pytest.approx(2 / 3)}
    # the dense reward in its place would be no pass@k at all
    four[1].verifier_result.rewards["reward"] = 1 / 20
    assert compute_pass_at_k_by_evals(four) == {}
