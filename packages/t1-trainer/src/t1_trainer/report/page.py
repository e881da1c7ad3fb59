"""Renders a run's records into one HTML file."""

from collections.abc import Mapping
from importlib import resources
from typing import Any

import jinja2

from t1_trainer.files import write_atomically
from t1_trainer.report.drawing import number
from t1_trainer.report.figures import retention_figures, sections
from t1_trainer.report.forest import interval_text
from t1_trainer.report.outcome import headlines, heldout_picture, movements
from t1_trainer.report.series import smoothing_window
from t1_trainer.run_directory import RunDirectory

__all__ = ["write_report"]


def write_report(run: RunDirectory, summary: Mapping[str, Any]) -> None:
    """Write `report.html` into the run directory.

    Args:
        run: its `metrics.jsonl` and `config.toml` are read.
        summary: content of `summary.json`.

    Raises:
        StorageError: it cannot be written.
    """
    folder = resources.files("t1_trainer") / "report"
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    records = run.lines("metrics.jsonl")
    text = environment.from_string((folder / "page.html").read_text()).render(
        interval=interval_text,
        number=number,
        name=run.path.name,
        style=(folder / "page.css").read_text(),
        summary=summary,
        headlines=headlines(summary),
        heldout_picture=heldout_picture(summary),
        movements=movements(summary),
        sections=sections(records, run.config.launched_trials),
        retention=retention_figures(records, summary["retention"]),
        window=smoothing_window(len(records)),
        config=(run.path / "config.toml").read_text(),
    )
    write_atomically(run.path / "report.html", text)
