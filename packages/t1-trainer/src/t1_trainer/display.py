"""What a person sees while a run goes on: a live panel on a terminal, plain lines elsewhere.

Everything here goes to stderr; stdout is for results. Honours NO_COLOR through rich.
"""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from t1_trainer.rollout.messages import Progress

__all__ = ["LiveDisplay", "PlainDisplay", "open_display"]

_SHOWN_STEPS = 12
_Progress = Callable[[], Progress | None]


def step_line(metrics: Mapping[str, Any], steps: int, eta_s: float) -> str:
    """One line that says how a step went."""
    throughput = metrics["rollout/tokens"] / metrics["time/step_s"]
    gap = metrics["gap/logprob_batch"]
    return (
        f"step {metrics['step']:>3}/{steps}  reward {metrics['reward/mean']:.3f}  "
        f"resolved {metrics['reward/resolved']:.2f}  turns {metrics['rollout/turns_mean']:.1f}  "
        f"EV {metrics['critic/explained_variance']:+.2f}  gap {gap:.4f}  "
        f"{throughput:,.0f} tokens/s  {metrics['time/step_s']:.1f} s  ETA {_clock(eta_s)}"
    )


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class _Timer:
    """Remaining time from the pace of the steps so far."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._seconds: list[float] = []

    def add(self, metrics: Mapping[str, Any]) -> float:
        """Seconds left after this step."""
        self._seconds.append(metrics["time/step_s"])
        recent = self._seconds[-10:]
        return (self._steps - metrics["step"]) * sum(recent) / len(recent)


class PlainDisplay(AbstractContextManager["PlainDisplay"]):
    """One line per phase and step."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._timer = _Timer(steps)

    def __exit__(self, *exception: object) -> None:
        """Nothing to restore."""

    def watch(self, progress: _Progress) -> None:
        """Plain lines do not follow progress within a phase."""

    def phase(self, text: str) -> None:
        """Something long begins."""
        print(text, file=sys.stderr, flush=True)  # noqa: T201 (this is the display)

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A step is done."""
        self.phase(step_line(metrics, self._steps, self._timer.add(metrics)))


class LiveDisplay(AbstractContextManager["LiveDisplay"]):
    """Last steps as lines, below them the running phase with counts that move."""

    def __init__(self, steps: int, console: Console) -> None:
        self._steps = steps
        self._timer = _Timer(steps)
        self._lines: list[str] = []
        self._phase = "starting"
        self._since = time.monotonic()
        self._progress: _Progress = lambda: None
        self._live = Live(
            get_renderable=self._render, console=console, refresh_per_second=4, transient=False
        )

    def __enter__(self) -> Self:
        """Start drawing."""
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop drawing; the last frame stays."""
        self._live.stop()

    def watch(self, progress: _Progress) -> None:
        """Where progress within a phase is read from."""
        self._progress = progress

    def phase(self, text: str) -> None:
        """Something long begins."""
        self._phase = text
        self._since = time.monotonic()

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A step is done."""
        self._lines.append(step_line(metrics, self._steps, self._timer.add(metrics)))
        del self._lines[:-_SHOWN_STEPS]

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_row(Text(self._phase, style="bold"), _clock(time.monotonic() - self._since))
        running = self._progress()
        if running is not None:
            table.add_row(
                running.phase,
                f"{running.finished}/{running.total} trials, {running.sandboxes} sandboxes, "
                f"{running.sampled_tokens:,} tokens sampled",
            )
        return Group(*(Text(line) for line in self._lines), table)


def open_display(steps: int, *, quiet: bool) -> LiveDisplay | PlainDisplay:
    """A live panel if stderr is a terminal and `quiet` is off."""
    console = Console(stderr=True)
    if console.is_terminal and not quiet:
        return LiveDisplay(steps, console)
    return PlainDisplay(steps)
