"""What a person sees: one line per step, remaining time, counts that move; nothing on stdout."""

import io

import pytest
from rich.console import Console

from t1_trainer.display import LiveDisplay, PlainDisplay, open_display, step_line
from t1_trainer.rollout.messages import Progress


def metrics(step: int, seconds: float = 8.0) -> dict[str, float]:
    return {
        "step": step,
        "time/step_s": seconds,
        "rollout/tokens": 8000,
        "rollout/turns_mean": 4.5,
        "reward/mean": 0.4,
        "reward/resolved": 0.375,
        "critic/explained_variance": 0.25,
        "gap/logprob_batch": 0.00134,
    }


def test_a_step_is_one_line_with_pace_and_remaining_time():
    assert step_line(metrics(3), 42, 312.0) == (
        "step   3/42  reward 0.400  resolved 0.38  turns 4.5  EV +0.25  gap 0.0013  "
        "1,000 tokens/s  8.0 s  ETA 5:12"
    )


def test_plain_lines_go_to_stderr_and_the_remaining_time_follows_the_pace(capsys):
    with PlainDisplay(10) as display:
        display.phase("training")
        display.step(metrics(1, 10.0))
        display.step(metrics(2, 20.0))
    out, err = capsys.readouterr()
    assert out == ""
    phase, first, second = err.splitlines()
    assert phase == "training"
    assert first.endswith("ETA 1:30")  # nine steps of 10 s
    assert second.endswith("ETA 2:00")  # eight steps of 15 s


def test_the_panel_shows_the_phase_its_counts_and_the_last_steps():
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with LiveDisplay(42, console) as display:
        display.watch(lambda: Progress("rollout 15", 7, 96, 31, 12_345))
        display.phase("training")
        for step in range(1, 15):
            display.step(metrics(step))
        with console.capture() as shown:
            console.print(display._render())
    text = shown.get()
    assert "training" in text
    assert "rollout 15" in text
    assert "7/96 trials, 31 sandboxes, 12,345 tokens sampled" in text
    assert "step  14/42" in text
    assert "step   2/42" not in text, "only the last twelve"


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_there_is_no_panel(quiet):
    assert isinstance(open_display(3, quiet=quiet), PlainDisplay)
