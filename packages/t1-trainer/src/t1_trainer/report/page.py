"""Renders a run's records into one HTML file."""

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2

from t1_trainer.files import write_atomically
from t1_trainer.report.chart import line_chart
from t1_trainer.run_directory import RunDirectory

__all__ = ["write_report"]

_CHARTS: Mapping[str, Mapping[str, str]] = {
    "Reward of admitted trials": {"mean reward": "reward/mean"},
    "Resolved share of admitted trials": {"resolved": "reward/resolved"},
    "Explained variance of the critic": {"explained variance": "critic/explained_variance"},
    "Mean |log p(trainer) - log p(sampler)|": {
        "with routing replay": "gap/logprob_replay",
        "free routing": "gap/logprob_free",
    },
    "Routing disagreement": {
        "free routing": "gap/routing_disagreement_free",
        "under replay": "gap/routing_disagreement_replay",
    },
    "Turns per trial": {"turns": "rollout/turns_mean"},
    "Seconds per step": {
        "step": "time/step_s",
        "rollout": "time/rollout_s",
        "critic": "time/critic_s",
        "actor": "time/actor_s",
    },
    "Clip fraction of the policy": {"clipped": "policy/clip_fraction"},
}


def write_report(run: RunDirectory, summary: Mapping[str, Any]) -> None:
    """Write `report.html` into the run directory.

    Raises:
        StorageError: it cannot be written.
    """
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = resources.files("t1_trainer") / "report" / "page.html"
    text = environment.from_string(template.read_text()).render(
        name=run.path.name,
        summary=summary,
        charts=_charts(run.lines("metrics.jsonl")),
        config=(run.path / "config.toml").read_text(),
    )
    write_atomically(run.path / "report.html", text)


def _charts(steps: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        title: line_chart({label: _points(steps, key) for label, key in keys.items()}, "step")
        for title, keys in _CHARTS.items()
    }


def _points(steps: Sequence[Mapping[str, Any]], key: str) -> list[tuple[float, float]]:
    return [(line["step"], line[key]) for line in steps if line.get(key) is not None]
