"""The report page: one file that needs no network, whatever a run did not measure."""

import json
import re

import pytest

from t1_trainer.config import Config
from t1_trainer.report import write_report
from t1_trainer.report.chart import line_chart
from t1_trainer.run_directory import RunDirectory

INTERVAL = {"mean": 0.5, "low": 0.25, "high": 0.75, "tasks": 3}
SIDE = {"resolved": INTERVAL, "reward": INTERVAL, "turns_mean": 4.0, "invalid": 1}
SUMMARY = {
    "steps": 2,
    "seconds": 90.0,
    "cancelled_trials": 3,
    "invalid_trials": 1,
    "heldout_before": {"greedy": SIDE},
    "heldout_after": {"greedy": SIDE},
    "heldout_change": {"greedy": {"resolved": INTERVAL, "reward": INTERVAL}},
    "retention": {"<files>": {"launched": 4, "admitted": 3}},
}


@pytest.fixture
def page(tmp_path) -> str:
    run = RunDirectory.create(tmp_path / "run", Config())
    # the second step has no explained variance, and neither has a gap
    run.record_step({"step": 1, "reward/mean": 0.5, "critic/explained_variance": 0.25}, {})
    run.record_step({"step": 2, "reward/mean": 0.75, "critic/explained_variance": float("nan")}, {})
    write_report(run, SUMMARY)
    run.close()
    return (run.path / "report.html").read_text()


def test_the_page_shows_what_was_gained(page):
    assert "+50.0 (+25.0 to +75.0)" in page
    assert "no data" in page
    assert page.count("<svg") == 2


def test_the_page_loads_nothing(page):
    assert re.findall(r"(?:src|href)=|https?://|<script|@import|url\(", page) == []


def test_text_from_a_run_is_escaped(page):
    assert "&lt;files&gt;" in page
    assert "<files>" not in page


def test_a_chart_has_one_line_per_series_and_leaves_nan_out():
    svg = line_chart({"a": [(0, 1.0), (1, float("nan")), (2, 3.0)], "b": [(0, 2.0)]}, "step")
    lines = re.findall(r'points="([^"]*)"', svg)
    assert [len(line.split()) for line in lines] == [2, 1]
    assert "nan" not in svg


def test_the_axes_say_what_the_data_spans():
    svg = line_chart({"a": [(1, 0.0), (42, 1.0)]}, "step")
    assert ">step 1<" in svg
    assert ">42<" in svg
    assert ">0<" in svg
    assert "-0.05" in line_chart({"a": [(1, -0.0001), (42, 1.0)]}, "step")


def test_a_chart_of_equal_values_does_not_divide_by_zero():
    assert "<svg" in line_chart({"a": [(1, 0.0)]}, "step")


def test_the_records_the_page_was_made_from_are_json(tmp_path, page):
    for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines():
        assert json.loads(line)["step"] in (1, 2)
