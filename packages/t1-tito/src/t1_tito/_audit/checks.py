"""Token-level checks of samples against the turns: sources, log-probabilities, once.

Everything is a comparison of whole arrays. The sampled tokens of all turns are laid end to end, the
*sampled index* of a position says which of them it claims to be.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from t1_tito.audit_report import FindingKind
from t1_tito.trial import Kind

from .findings import Findings
from .history import History
from .sample import Placement, Sample

Bools = npt.NDArray[np.bool_]


def stretches(mask: Bools) -> list[tuple[int, int]]:
    """Bounds (start, stop) of the maximal stretches of True."""
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


class SampledTokens:
    """The completions of all turns, end to end."""

    def __init__(self, history: History) -> None:
        self._history = history
        sizes = history.lengths - history.prompt_lengths
        self.starts = np.cumsum(sizes) - sizes
        self.total = int(sizes.sum())
        values = [turn.logprobs for turn in history.turns]
        self.logprobs = np.concatenate(values) if values else np.empty(0, np.float32)

    def index(self, sample: Sample, known: Bools) -> npt.NDArray[np.int64]:
        """Int64 [N], the sampled index of each position; -1 where its source is no completion."""
        if not len(self._history):
            return np.full(known.size, -1, np.int64)
        turn = np.where(known, sample.source_turn, 0)
        within = sample.source_index - self._history.prompt_lengths[turn]
        return np.where(known & (within >= 0), self.starts[turn] + within, -1)

    def turn_of(self, index: int) -> tuple[int, int]:
        """(turn, position in its completion) of a sampled index."""
        # empty completions share their start with the next one, which is the one meant
        turn = int(np.searchsorted(self.starts, index, side="right")) - 1
        return turn, index - int(self.starts[turn])


def check_sources(
    chunk: int, sample: Sample, known: Bools, sampled: npt.NDArray[np.int64], findings: Findings
) -> None:
    """A source exists, a position with loss comes from a completion, and its kind says so."""
    mask = sample.loss_mask
    if sample.recovered:
        # of what no turn explains, only sampled tokens can be judged
        _report(
            findings,
            FindingKind.EMISSION,
            chunk,
            sample,
            mask & (~known | (sampled < 0)),
            "no turn sampled these tokens",
        )
        return
    _report(
        findings,
        FindingKind.PROVENANCE,
        chunk,
        sample,
        ~known,
        "the source is outside of the turns",
    )
    _report(
        findings,
        FindingKind.PROVENANCE,
        chunk,
        sample,
        mask & known & (sampled < 0),
        "loss on a token that comes from a prompt",
    )
    if sample.kind is not None:
        contradicts = mask != (sample.kind == Kind.SAMPLED)
        _report(
            findings,
            FindingKind.PROVENANCE,
            chunk,
            sample,
            contradicts,
            "the kind is SAMPLED exactly where there is loss",
        )


def check_logprobs(
    chunk: int,
    sample: Sample,
    sampled: npt.NDArray[np.int64],
    laid: SampledTokens,
    findings: Findings,
) -> None:
    """The turn's own log-probability bit for bit where there is loss, 0 elsewhere."""
    if sample.logprobs is None:
        return
    # compared as bits, so that NaN and the sign of zero count as differences
    bits = sample.logprobs.view(np.uint32)
    judged = sample.loss_mask & (sampled >= 0)
    different = ~sample.loss_mask & (bits != 0)
    different[judged] = bits[judged] != laid.logprobs.view(np.uint32)[sampled[judged]]
    _report(
        findings,
        FindingKind.LOGPROB,
        chunk,
        sample,
        different,
        "not the sampler's value bit for bit (0 where there is no loss)",
    )


def check_tokens(chunk: int, sample: Sample, wrong: Bools, findings: Findings) -> None:
    """The token is the one that its source holds."""
    mask = sample.loss_mask
    for kind, bad, owner in (
        (FindingKind.EMISSION, wrong & mask, "sampled"),
        (FindingKind.CONTEXT, wrong & ~mask, "holds"),
    ):
        _report(findings, kind, chunk, sample, bad, f"not the ids that the source {owner}")


def _report(
    findings: Findings, kind: FindingKind, chunk: int, sample: Sample, bad: Bools, why: str
) -> None:
    if not bad.any():
        return
    for start, stop in stretches(bad):
        turn = int(sample.source_turn[start])
        findings.add(
            kind,
            f"{why} ({stop - start} tokens)" if stop - start > 1 else why,
            turn=turn if turn >= 0 else None,
            chunk=chunk,
            span=(start, stop),
            tokens=sample.tokens,
        )


def check_once(
    samples: Mapping[int, Sample],
    sampled: Sequence[npt.NDArray[np.int64]],
    placements: Sequence[Placement],
    laid: SampledTokens,
    findings: Findings,
) -> None:
    """Every sampled token carries loss in exactly one position over all samples, keyed by index."""
    count = np.zeros(laid.total, np.int64)
    for sample, index in zip(samples.values(), sampled, strict=True):
        trained = index[sample.loss_mask]
        count += np.bincount(trained[trained >= 0], minlength=laid.total)
    wrong = np.flatnonzero(count != 1)
    if not wrong.size:
        return
    placed: dict[int, list[Placement]] = {}
    for placement in placements:
        placed.setdefault(placement.turn, []).append(placement)
    turns = np.searchsorted(laid.starts, wrong, side="right") - 1
    cuts = np.flatnonzero(
        (np.diff(wrong) != 1) | (np.diff(count[wrong]) != 0) | (np.diff(turns) != 0)
    )
    for group in np.split(wrong, cuts + 1):
        turn, first = laid.turn_of(int(group[0]))
        times = int(count[group[0]])
        often = "never" if not times else f"{times} times"
        # where it should be, or where it is once more
        at = placed.get(turn, [])[-1:]
        span = (at[0].start + first, at[0].start + first + group.size) if at else None
        inside = at and span and span[1] <= at[0].stop
        findings.add(
            FindingKind.ONCE,
            f"completion tokens {first} to {first + group.size - 1} are trained {often}",
            turn=turn,
            chunk=at[0].chunk if inside else None,
            span=span if inside else None,
            tokens=samples[at[0].chunk].tokens if inside else None,
        )
