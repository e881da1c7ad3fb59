"""The benchmark of whole runs: its figures come from a run's own files, under the names they keep."""

import dataclasses
import importlib.util
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from running import WholeRun

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "trainer_mini.py"
LEARNING = {"mini_total_s", "mini_heldout_gain_points", "mini_heldout_gain_low"}
RATES = {
    *("generation_tokens_per_s", "train_tokens_per_s", "trials_per_s", "overlap_ratio"),
    *("gap_none", "gap_tito", "gap_replay"),
}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    """The script, imported."""
    spec = importlib.util.spec_from_file_location("trainer_mini", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_its_help_names_its_options():
    shown = subprocess.run(
        [sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert all(option in shown for option in ("--quick", "--json", "--seeds"))


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_every_figure_is_a_number_with_a_target_under_its_name(
    benchmark: ModuleType, whole: WholeRun
):
    run = benchmark.read_run(whole.path, 0, 12.0, 20.0)
    for figures, names in (
        (benchmark.learning_figures([run]), LEARNING),
        (benchmark.rate_figures(run), RATES),
    ):
        assert {figure["figure"] for figure in figures} == {f"trainer.{name}" for name in names}
        for figure in figures:
            assert figure.keys() == {"figure", "value", "target", "better"}
            assert math.isfinite(figure["value"])
            assert figure["target"] > 0
            assert figure["better"] in {"lower", "higher"}
    assert "12 s wall, 20 s processor" in benchmark.account(run)


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_several_seeds_give_mean_times_and_gains_and_the_least_bound(
    benchmark: ModuleType, whole: WholeRun
):
    def run(seed: int, wall_s: float, mean: float, low: float) -> object:
        real = benchmark.read_run(whole.path, seed, wall_s, 0.0)
        gain = {"sampled": {"resolved": {"mean": mean, "low": low, "high": 1.0, "tasks": 4}}}
        return dataclasses.replace(real, summary={**real.summary, "heldout_change": gain})

    figures = benchmark.learning_figures([run(0, 400.0, 0.3, 0.2), run(1, 500.0, 0.2, 0.1)])
    assert [figure["value"] for figure in figures] == pytest.approx([450.0, 25.0, 10.0])


@pytest.mark.e2e
@pytest.mark.timeout(300)
def test_rates_of_a_step_leave_the_last_out_which_generates_nothing(
    benchmark: ModuleType, whole: WholeRun
):
    run = benchmark.read_run(whole.path, 0, 0.0, 0.0)
    figures = {figure["figure"]: figure["value"] for figure in benchmark.rate_figures(run)}
    seconds = sum(line["time/step_s"] for line in run.metrics[:-1])
    assert figures["trainer.trials_per_s"] == pytest.approx(4 * 8 / seconds)
    overlaps = [line["time/overlap_ratio"] for line in run.metrics[:-1]]
    assert figures["trainer.overlap_ratio"] == pytest.approx(sum(overlaps) / 4)
