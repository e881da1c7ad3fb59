"""What the default run learns and how long it takes; with --quick, how fast its parts are.

Every run is the `t1` command in a process of its own, with real sandboxes, an empty cache (so that
the task pool is generated within the time measured) and a temporary directory that is deleted.

    without --quick   one whole default run per seed, alone on the machine: minutes each
    with --quick      two steps of 32 trials each, one of them critic-only, evaluation cut to two
                      tasks: rates and gaps, nothing about learning

The quick run samples at temperature 1.5: where the shipped policy is sure of itself it hardly ever
samples ids that its text would not give again, and routes hardly anything differently.

Targets of rates are what the default's 36 steps in eight minutes less both evaluations need, those
of gaps the upper bounds that `t1 fidelity --temperature 1.5` printed. All else goes to stderr.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_QUICK = (
    *("--steps=2", "--ppo.critic-only-steps=1", "--rollout.temperature=1.5"),
    *("--rollout.batch-size=32", "--pool.train-tasks=80", "--pool.heldout-tasks=4"),
    *("--evaluation.tasks=2", "--evaluation.attempts=0"),
    # commands whose text gives other ids are rare: measured on whole batches
    "--diagnostics.trials=96",
)
_CURVE = ("reward/mean", "reward/resolved", "critic/explained_variance", "rollout/turns_mean")
_WINDOW = 5


@dataclass(frozen=True)
class FinishedRun:
    """What a run left and what it cost.

    Attributes:
        seed: of the run.
        summary: content of `summary.json`.
        metrics: lines of `metrics.jsonl`, one a step.
        wall_s: seconds from the start of the command to its end; the report is written by then.
        cpu_s: processor seconds of the command and of everything below it, sandboxes included.
    """

    seed: int
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    wall_s: float
    cpu_s: float


def train(seed: int, settings: Sequence[str] = ()) -> FinishedRun:
    """Runs `t1 train` to its end."""
    with tempfile.TemporaryDirectory(prefix="t1-benchmark-") as folder:
        run = Path(folder) / "run"
        program = Path(sys.executable).with_name("t1")
        began, cpu = time.perf_counter(), _children_cpu_s()
        subprocess.run(
            [program, "train", "-q", "-o", run, f"--seed={seed}", *settings],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "T1_CACHE_DIR": str(Path(folder) / "cache")},
        )
        seconds, cpu = time.perf_counter() - began, _children_cpu_s() - cpu
        assert (run / "report.html").is_file(), "the report is part of the time"
        return read_run(run, seed, seconds, cpu)


def read_run(run: Path, seed: int, wall_s: float, cpu_s: float) -> FinishedRun:
    """Reads what a finished run left."""
    summary = json.loads((run / "summary.json").read_text())
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return FinishedRun(seed, summary, [json.loads(line) for line in lines], wall_s, cpu_s)


def learning_figures(runs: Sequence[FinishedRun]) -> list[dict[str, object]]:
    """Returns what whole runs gained on held-out tasks, in points, and how long they took."""
    gains = [run.summary["heldout_change"]["sampled"]["resolved"] for run in runs]
    gain = 100 * statistics.mean(gain["mean"] for gain in gains)
    low = 100 * min(gain["low"] for gain in gains)
    return [
        _figure("mini_total_s", statistics.mean(run.wall_s for run in runs), 480.0, "lower"),
        _figure("mini_heldout_gain_points", gain, 25.0, "higher"),
        _figure("mini_heldout_gain_low", low, 15.0, "higher"),
    ]


def rate_figures(run: FinishedRun) -> list[dict[str, object]]:
    """Returns rates and gaps of a run of two steps or more."""
    lines = run.metrics
    # nothing is generated during the last step: it is no measure of a step's time and overlap
    overlapped = lines[:-1]

    def total(name: str, of: list[dict[str, Any]]) -> float:
        return sum(line[name] for line in of)

    def mean(name: str, of: list[dict[str, Any]]) -> float:
        return total(name, of) / len(of)

    generation = total("engine/sampled_tokens", lines) / total("time/rollout_s", lines)
    update_s = total("time/update_s", lines) - total("time/diagnostics_s", lines)
    training = total("rollout/tokens", lines) / update_s
    trials = total("rollout/admitted", overlapped) / total("time/step_s", overlapped)
    return [
        _figure("generation_tokens_per_s", generation, 330.0, "higher"),
        _figure("train_tokens_per_s", training, 950.0, "higher"),
        _figure("trials_per_s", trials, 10.0, "higher"),
        _figure("overlap_ratio", mean("time/overlap_ratio", overlapped), 0.7, "higher"),
        _figure("gap_none", mean("gap/logprob_retokenized", lines), 0.272, "lower"),
        _figure("gap_tito", mean("gap/logprob_free", lines), 0.0134, "lower"),
        _figure("gap_replay", mean("gap/logprob_replay", lines), 0.0094, "lower"),
    ]


def account(run: FinishedRun) -> str:
    """Returns what a person wants to know of one run beside its figures."""
    lines = [f"seed {run.seed}: {run.wall_s:.0f} s wall, {run.cpu_s:.0f} s processor"]
    before, after = run.summary["heldout_before"], run.summary["heldout_after"]
    for decoding, change in run.summary["heldout_change"].items():
        rates, gain = (before[decoding], after[decoding]), change["resolved"]
        resolved = " -> ".join(f"{100 * rate['resolved']['mean']:.1f}" for rate in rates)
        turns = " -> ".join(f"{rate['turns_mean']:.2f}" for rate in rates)
        interval = (
            f"{100 * gain['mean']:+.1f} [{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
        )
        lines.append(f"  {decoding}: resolved {resolved} % ({interval} points), turns {turns}")
    explained = [line["critic/explained_variance"] for line in run.metrics]
    first, least, last = explained[0], min(explained), explained[-1]
    lines.append(f"  explained variance: first {first:.3f}, least {least:.3f}, last {last:.3f}")
    for name in _CURVE:
        values = [line[name] for line in run.metrics]
        parts = [values[i : i + _WINDOW] for i in range(0, len(values), _WINDOW)]
        curve = " ".join(f"{statistics.mean(part):.3f}" for part in parts)
        lines.append(f"  {name}, means of {_WINDOW} steps: {curve}")
    return "\n".join(lines)


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _figure(name: str, value: float, target: float, better: str) -> dict[str, object]:
    return {"figure": f"trainer.{name}", "value": value, "target": target, "better": better}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="end within 40 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="one run for each")
    options = parser.parse_args()
    settings, seeds = (_QUICK, options.seeds[:1]) if options.quick else ((), options.seeds)
    runs: list[FinishedRun] = []
    for seed in seeds:
        runs.append(train(seed, settings))
        print(account(runs[-1]), file=sys.stderr)
    figures = rate_figures(runs[0]) if options.quick else learning_figures(runs)
    for figure in figures:
        line = f"{figure['figure']:34} {figure['value']:10.4f}  target {figure['target']}"
        print(json.dumps(figure) if options.json else line)


if __name__ == "__main__":
    main()
