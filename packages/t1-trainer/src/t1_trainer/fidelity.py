"""How far the trainer's log-probs of sampled tokens are from the sampler's, and what narrows it.

    retokenized   text is kept and encoded again, the trainer routes freely    (no TITO, no replay)
    free          the sampled ids, the trainer routes freely                   (TITO alone)
    replay        the sampled ids, the experts the sampler used                (TITO and replay)

Each is |log p(trainer) - log p(sampler)| per sampled token. A token is **flipped** where the
recorded experts and the trainer's own choice differ in some layer: a sharp policy has small gaps
nearly everywhere, and there the effect of replay is visible. Nothing here changes a weight or draws
from a random stream that others use.

Axes: B samples, M sampled tokens, S spans.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from t1_r3 import disagreement
from t1_trainer.batch import pack
from t1_trainer.forward import routed_logprobs, token_logprobs
from t1_trainer.policy import MoEModel
from t1_trainer.retokenization import Retokenized, Retokenizer
from t1_trainer.samples import Sample

__all__ = ["TokenGaps", "join_gaps", "measure_gaps"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TokenGaps:
    """Gaps per sampled token of some samples, in sample order.

    Attributes:
        retokenized_M: float64, or None where it was not measured.
        free_M: float64.
        replay_M: float64.
        flipped_M: bool, whether the token's recorded and freely chosen experts differ.
        counts_B: int64, sampled tokens per sample.
        differs_free: share of (token, layer) pairs, over all inputs, whose experts differ freely.
        differs_replay: the same under replay; 0 unless replay is broken.
        inputs: number of (token, layer) pairs.
        completions_B: int64, completions per sample.
        drifted_B: int64, completions that re-encode to other ids.
    """

    retokenized_M: Floats | None
    free_M: Floats
    replay_M: Floats
    flipped_M: NDArray[np.bool_]
    counts_B: NDArray[np.int64]
    differs_free: float
    differs_replay: float
    inputs: int
    completions_B: NDArray[np.int64]
    drifted_B: NDArray[np.int64]


@torch.no_grad()
def measure_gaps(
    model: MoEModel, samples: Sequence[Sample], retokenizer: Retokenizer | None, temperature: float
) -> TokenGaps:
    """Measure in one forward pass per kind; re-encoded samples only where they drifted.

    Args:
        model: the weights that generated the samples, in the trainer's arithmetic.
        samples: at least one.
        retokenizer: None leaves the text-keeping stack out.
        temperature: the sampler's.
    """
    packed = pack(samples)
    recorded = packed.routed_NLK.numpy()
    with_replay, replayed = routed_logprobs(model, packed, replay=True, temperature=temperature)
    free, chosen = routed_logprobs(model, packed, replay=False, temperature=temperature)
    differs = disagreement(recorded, chosen.numpy())
    sampler_M = _wide(packed.sampler_logprobs_M)
    free_M = np.abs(_wide(free) - sampler_M)
    counts_B = np.array([int(s.loss_mask[1:].sum()) for s in samples])
    texts = [] if retokenizer is None else [retokenizer(sample) for sample in samples]
    return TokenGaps(
        retokenized_M=_retokenized(model, texts, sampler_M, free_M, counts_B, temperature)
        if texts
        else None,
        free_M=free_M,
        replay_M=np.abs(_wide(with_replay) - sampler_M),
        flipped_M=differs[packed.trainable_M.numpy()].any(1),
        counts_B=counts_B,
        differs_free=float(differs.mean()),
        differs_replay=float(disagreement(recorded, replayed.numpy()).mean()),
        inputs=differs.size,
        completions_B=np.array([text.completions for text in texts], np.int64),
        drifted_B=np.array([text.drifted for text in texts], np.int64),
    )


def _wide(logprobs: torch.Tensor) -> Floats:
    return logprobs.numpy().astype(np.float64)


def _retokenized(
    model: MoEModel,
    texts: Sequence[Retokenized],
    sampler_M: Floats,
    free_M: Floats,
    counts_B: NDArray[np.int64],
    temperature: float,
) -> Floats:
    """Gaps [M] of the text-keeping stack: where nothing drifted they are the free ones."""
    gaps_M = free_M.copy()
    drifted = [i for i, text in enumerate(texts) if text.drifted]
    if not drifted:
        return gaps_M
    readable = [_cut(texts[i].sample, model.config.max_position_embeddings) for i in drifted]
    packed = pack(readable)
    logprobs = token_logprobs(model, packed, replay=False, temperature=temperature)
    kept = [int(sample.loss_mask[1:].sum()) for sample in readable]
    ends = counts_B.cumsum()
    parts = np.split(_wide(logprobs), np.cumsum(kept)[:-1])
    for i, part in zip(drifted, parts, strict=True):
        own = slice(ends[i] - counts_B[i], ends[i])
        gaps_M[own] = _span_gaps(texts[i], sampler_M[own], part)
    return gaps_M


def _cut(sample: Sample, inputs: int) -> Sample:
    """As much of a re-encoded sample as the model can read: text may need more ids."""
    if len(sample.tokens) <= inputs + 1:
        return sample
    return replace(
        sample,
        tokens=sample.tokens[: inputs + 1],
        loss_mask=sample.loss_mask[: inputs + 1],
        logprobs=sample.logprobs[: inputs + 1],
        routed_experts=sample.routed_experts[:inputs],
    )


def _span_gaps(text: Retokenized, sampler: Floats, trainer: Floats) -> Floats:
    """Gap of every sampled token of one sample; 0 where no re-encoded id was read for its span."""
    spans_S = int(text.sampled_spans.max()) + 1
    spans = text.spans[: len(trainer)]
    spelled = spans >= 0
    sampled_S = np.bincount(text.sampled_spans, sampler, spans_S)
    trained_S = np.bincount(spans[spelled], trainer[spelled], spans_S)
    read_S = np.bincount(spans[spelled], minlength=spans_S) > 0
    gaps_S = np.where(read_S, np.abs(trained_S - sampled_S), 0.0)
    return (gaps_S / np.bincount(text.sampled_spans, minlength=spans_S))[text.sampled_spans]


def join_gaps(parts: Sequence[TokenGaps]) -> TokenGaps:
    """One after another; at least one part, all with or all without the text-keeping stack."""
    weights = np.array([part.inputs for part in parts], np.float64) / sum(p.inputs for p in parts)
    texts = [part.retokenized_M for part in parts if part.retokenized_M is not None]
    return TokenGaps(
        retokenized_M=np.concatenate(texts) if texts else None,
        free_M=np.concatenate([part.free_M for part in parts]),
        replay_M=np.concatenate([part.replay_M for part in parts]),
        flipped_M=np.concatenate([part.flipped_M for part in parts]),
        counts_B=np.concatenate([part.counts_B for part in parts]),
        differs_free=float(weights @ [part.differs_free for part in parts]),
        differs_replay=float(weights @ [part.differs_replay for part in parts]),
        inputs=sum(part.inputs for part in parts),
        completions_B=np.concatenate([part.completions_B for part in parts]),
        drifted_B=np.concatenate([part.drifted_B for part in parts]),
    )
