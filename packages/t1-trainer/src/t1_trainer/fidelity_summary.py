"""The figures of `t1 fidelity`: three gaps, their differences, and intervals over trials.

Tokens of a trial are not independent, so trials are resampled, not tokens; the three figures of one
resample share its trials, so their differences are paired. A figure is a ratio of sums: gaps over
tokens.

Axes: B trials, M sampled tokens, R resamples.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from t1_trainer.fidelity import TokenGaps

__all__ = ["BootstrapInterval", "fidelity_text", "summarize_gaps"]

_RESAMPLES = 4000
_ROWS = {
    "none": "no TITO, no replay",
    "tito": "TITO, no replay",
    "both": "TITO and replay",
    "none_minus_tito": "TITO takes away",
    "tito_minus_both": "replay takes away",
}


@dataclass(frozen=True)
class BootstrapInterval:
    """A figure and its 95 % interval from resampled trials."""

    mean: float
    low: float
    high: float


def summarize_gaps(gaps: TokenGaps, seed: int) -> dict[str, Any]:
    """Means with 95 % intervals, over all sampled tokens and over flipped ones.

    Trials are resampled with replacement; the three figures of one resample share its trials, so
    their differences are paired.

    Args:
        gaps: measured with a retokenizer.
        seed: of the resampling.
    """
    assert gaps.retokenized_M is not None, "measured with a retokenizer"
    flipped = gaps.flipped_M
    everywhere = np.ones_like(flipped)
    return {
        "trials": len(gaps.counts_B),
        "tokens": len(flipped),
        "all_tokens": _figures(gaps, everywhere, seed),
        "flipped_tokens": _figures(gaps, flipped, seed) if flipped.any() else None,
        "flipped_share": float(flipped.mean()),
        "routing_disagreement_free": gaps.differs_free,
        "routing_disagreement_replay": gaps.differs_replay,
        "commands": int(gaps.completions_B.sum()),
        "commands_drifted_share": float(gaps.drifted_B.sum() / gaps.completions_B.sum()),
        "trials_drifted_share": float((gaps.drifted_B > 0).mean()),
    }


def _figures(gaps: TokenGaps, chosen_M: NDArray[np.bool_], seed: int) -> dict[str, Any]:
    """The three means over the chosen tokens, and the two differences."""
    trial_M = np.repeat(np.arange(len(gaps.counts_B)), gaps.counts_B)[chosen_M]
    series = (gaps.retokenized_M, gaps.free_M, gaps.replay_M)
    count = len(gaps.counts_B)
    sums_B3 = np.stack(
        [np.bincount(trial_M, s[chosen_M], count) for s in series if s is not None], 1
    )
    tokens_B = np.bincount(trial_M, minlength=count)
    draws = np.random.default_rng(seed).multinomial(count, np.full(count, 1 / count), _RESAMPLES)
    # a resample without any chosen token says nothing
    draws = draws[draws @ tokens_B > 0]
    mean_3 = sums_B3.sum(0) / tokens_B.sum()
    resampled_R3 = (draws @ sums_B3) / (draws @ tokens_B)[:, None]

    def interval(weights: Sequence[int]) -> dict[str, float]:
        low, high = np.percentile(resampled_R3 @ weights, [2.5, 97.5])
        return asdict(BootstrapInterval(float(mean_3 @ weights), float(low), float(high)))

    return {
        "tokens": int(tokens_B.sum()),
        "none": interval((1, 0, 0)),
        "tito": interval((0, 1, 0)),
        "both": interval((0, 0, 1)),
        "none_minus_tito": interval((1, -1, 0)),
        "tito_minus_both": interval((0, 1, -1)),
    }


def fidelity_text(result: dict[str, Any]) -> str:
    """The figures for people.

    Args:
        result: a summary with the policy, temperature and sampler's dtype beside it.
    """
    return "\n".join([*_heading(result), "", *_table(result), "", *_shares(result)])


def _heading(result: dict[str, Any]) -> tuple[str, str]:
    arithmetic = f"sampler in {result['sampler_dtype']}, trainer in float32"
    counts = f"{result['trials']} trials, {result['commands']} commands"
    flipped = f"{100 * result['flipped_share']:.2f} % of them flipped"
    return (
        f"policy {result['policy']} at temperature {result['temperature']:g}, {arithmetic}",
        f"{counts}, {result['tokens']} sampled tokens; {flipped}",
    )


def _table(result: dict[str, Any]) -> list[str]:
    everywhere, flipped = result["all_tokens"], result["flipped_tokens"]
    last = "flipped tokens" if flipped else "no token is flipped"
    lines = [f"{'mean |delta log p| [95 % interval]':<36}{'all tokens':<28}{last}"]
    for name, text in _ROWS.items():
        cell = _cell(flipped[name]) if flipped else ""
        lines.append(f"{text:<36}{_cell(everywhere[name]):<28}{cell}".rstrip())
    return lines


def _shares(result: dict[str, Any]) -> tuple[str, str]:
    commands, trials, free, replay = (
        f"{100 * result[name]:.3g} %"
        for name in (
            "commands_drifted_share",
            "trials_drifted_share",
            "routing_disagreement_free",
            "routing_disagreement_replay",
        )
    )
    return (
        f"commands that re-encode to other ids: {commands} (in {trials} of trials)",
        f"routing disagreement: {free} free, {replay} under replay",
    )


def _cell(figure: dict[str, float]) -> str:
    return f"{figure['mean']:.4f} [{figure['low']:.4f}, {figure['high']:.4f}]"
