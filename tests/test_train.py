"""The assembled trainer, run as a user runs it: real processes, real sandboxes, real verifiers."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from running import SMALL, Command, WholeRun, command_line, descendants, records

from t1_reward import Pool
from t1_sandbox import Event, read_journal
from t1_trainer.config_files import load_config
from t1_trainer.pools import ensure_pool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
Start = Callable[..., Command]


def measured(run: Path) -> list[dict]:
    """Metrics without what depends on the clock: times, and work done for cancelled trials."""
    return [
        {k: v for k, v in line.items() if not k.startswith(("time/", "engine/", "sandbox/"))}
        for line in records(run / "metrics.jsonl")
    ]


def final_state(run: Path) -> dict[str, bytes]:
    newest = max((run / "checkpoints").glob("step-*.resumable"))
    return {
        str(p.relative_to(newest)): p.read_bytes() for p in sorted(newest.rglob("*.safetensors"))
    }


def test_a_run_leaves_its_directory_and_nothing_else(whole: WholeRun):
    run = whole.path
    assert "held-out resolved, sampled" in whole.out
    assert len(whole.command.seen) > 3, "the rollout process and sandboxes were seen"
    assert whole.command.leaves_nothing()
    for name in ("config.toml", "summary.json", "journal.jsonl", "tasks.jsonl"):
        assert (run / name).is_file()
    assert len(list((run / "samples").glob("*.safetensors"))) == 5
    assert len(list((run / "trials" / "step-00001").iterdir())) == 8
    journal = read_journal(run / "journal.jsonl")
    trials = 5 * 10 + 2 * (4 + 4)  # launched in training; sampled and greedy, before and after
    assert len({r.key for r in journal.records if r.event is Event.INTENT}) == trials
    assert journal.unfinished() == []


def test_the_metrics_hold_the_invariants_of_every_step(whole: WholeRun):
    metrics = records(whole.path / "metrics.jsonl")
    assert [line["step"] for line in metrics] == [1, 2, 3, 4, 5]
    assert [line["policy/version"] for line in metrics] == [0, 0, 1, 2, 3]
    # one step stale: batch t+1 was generated while update t ran
    assert [line["rollout/version"] for line in metrics] == [0, 0, 0, 0, 1]
    assert all(line["gap/routing_disagreement_replay"] == 0 for line in metrics)
    assert all(line["rollout/admitted"] == 8 for line in metrics)
    assert all(line["rollout/cancelled"] == 2 for line in metrics)


def test_every_launched_task_has_one_fate(whole: WholeRun):
    launched: list[str] = []
    for line in records(whole.path / "tasks.jsonl"):
        fates = [*line["admitted"], *line["cancelled"], *(t["task_id"] for t in line["invalid"])]
        assert len(fates) == len(set(fates)) == 10
        launched += fates
    assert len(launched) == len(set(launched)), "a task of one epoch was launched twice"


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(
    t1: Start, whole: WholeRun, tmp_path: Path
):
    broken = tmp_path / "broken"
    command = t1("train", "-q", "-o", str(broken), *whole.settings)
    command.poll_until(lambda: len(records(broken / "metrics.jsonl")) >= 3)
    command.process.send_signal(signal.SIGKILL)
    command.finish()
    assert command.leaves_nothing()
    code, _, err = t1("resume", "-q", str(broken)).finish()
    assert code == 0, err

    assert measured(broken) == measured(whole.path)
    assert final_state(broken) == final_state(whole.path)
    assert records(broken / "tasks.jsonl") == records(whole.path / "tasks.jsonl")


def test_weights_do_not_depend_on_diagnostics(t1: Start, whole: WholeRun, tmp_path: Path):
    run = tmp_path / "run"
    command = t1("train", "-q", "-o", str(run), *whole.settings, "--diagnostics.no-enabled")
    code, _, err = command.finish()
    assert code == 0, err
    assert "gap/logprob_free" in records(whole.path / "metrics.jsonl")[0]
    assert "gap/logprob_free" not in records(run / "metrics.jsonl")[0]
    assert final_state(run) == final_state(whole.path)


def test_an_interrupt_ends_everything_and_the_run_can_be_resumed(t1: Start, tmp_path: Path):
    run = tmp_path / "run"
    command = t1("train", "-q", "-o", str(run), *SMALL, "--steps=3", "--checkpoint.every-steps=1")
    command.poll_until(lambda: len(records(run / "metrics.jsonl")) >= 1)
    command.process.send_signal(signal.SIGINT)
    code, _, err = command.finish()
    assert code == 130, err
    assert "t1 resume" in err
    assert "Traceback" not in err
    assert command.leaves_nothing()
    code, _, err = t1("resume", "-q", str(run)).finish()
    assert code == 0, err
    assert [line["step"] for line in records(run / "metrics.jsonl")] == [1, 2, 3]


def test_a_killed_rollout_process_is_one_clear_error(t1: Start, tmp_path: Path):
    run = tmp_path / "run"
    command = t1("train", "-q", "-o", str(run), *SMALL, "--steps=50", "--checkpoint.every-steps=1")
    command.poll_until(lambda: len(records(run / "metrics.jsonl")) >= 1)
    rollout = next(
        pid
        for pid in descendants(command.process.pid)
        if "t1_trainer.rollout.process" in command_line(pid)
    )
    os.kill(rollout, signal.SIGKILL)
    code, _, err = command.finish()
    assert code == 3
    assert "the rollout process ended with signal SIGKILL" in err
    assert "memory ran out" in err
    assert "Traceback" not in err
    assert command.leaves_nothing()
    assert list((run / "checkpoints").glob("*.resumable")), "nothing was lost"


def test_the_reward_scale_of_the_default_is_its_pools_90th_percentile(
    cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("T1_CACHE_DIR", str(cache))
    config = load_config([])
    assert Pool.open(ensure_pool(config.pool)).percentile_assertions(90) == config.reward.scale


def test_the_oracle_solves_every_task_and_the_idle_agent_none(t1: Start, tmp_path: Path):
    rates = {}
    for agent in ("oracle", "noop"):
        command = t1(
            "eval", "-q", "--json", "--agent", agent, "--tasks=64", "-o", str(tmp_path / agent)
        )
        code, out, err = command.finish()
        assert code == 0, err
        rates[agent] = json.loads(out)
    assert rates["oracle"]["resolved"]["mean"] == 1.0
    assert rates["oracle"]["resolved"]["tasks"] == 64
    assert not list(tmp_path.rglob("config.toml")), "an evaluation does not pass for a run"
    assert rates["noop"]["reward"]["mean"] == 0.0
