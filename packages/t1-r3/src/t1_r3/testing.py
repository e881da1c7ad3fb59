"""Hypothesis strategies for routing captures, for tests of code that builds on this package.

Needs the extra `testing`. A drawn `Session` is what an engine would have captured over the turns
of one stream, together with the rows a correct stitch must return.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from .record import ExpertIds, RoutingRecord, RoutingSpec


@dataclass(frozen=True, eq=False)
class Session:
    """The captures of one stream of N tokens, and the truth about it.

    Attributes:
        spec: what the ids mean.
        records: one per turn.
        lengths: |T| of every turn.
        source_turn: int32 [N].
        source_index: int32 [N].
        loss_mask: bool [N].
        truth: [N - 1, layers, top_k], the experts in use when each token was first an input.
    """

    spec: RoutingSpec
    records: list[RoutingRecord]
    lengths: list[int]
    source_turn: npt.NDArray[np.int32]
    source_index: npt.NDArray[np.int32]
    loss_mask: npt.NDArray[np.bool_]
    truth: ExpertIds


@st.composite
def specs(draw: st.DrawFn) -> RoutingSpec:
    """Draw a spec, on both sides of the uint8 limit."""
    experts = draw(st.integers(2, 9) | st.sampled_from([256, 257, 700]))
    layers = draw(st.lists(st.integers(0, 60), min_size=1, max_size=3, unique=True))
    return RoutingSpec(experts, draw(st.integers(1, min(4, experts - 1))), tuple(sorted(layers)))


@st.composite
def sessions(draw: st.DrawFn, *, max_turns: int = 5) -> Session:
    """Draw a stream of turns that each extend the one before.

    Every turn captures either only what is new to it or its whole T; in the latter case the rows
    of earlier positions are computed anew and differ from the ones first used.
    """
    spec = draw(specs())
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    contexts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=max_turns))
    completions = [draw(st.integers(1, 5)) for _ in contexts]
    lengths = np.cumsum(np.add(contexts, completions)).tolist()
    truth = _choices(random, spec, lengths[-1] - 1)
    records: list[RoutingRecord] = []
    for turn, length in enumerate(lengths):
        new = lengths[turn - 1] - 1 if turn else 0
        start = draw(st.sampled_from([0, new]))
        again = _choices(random, spec, new - start)
        rows = np.concatenate((again, truth[new : length - 1]))
        records.append(RoutingRecord(rows, spec, start, weight_version=turn))
    spans = np.stack((contexts, completions), axis=1)
    return Session(
        spec=spec,
        records=records,
        lengths=lengths,
        source_turn=np.repeat(np.arange(len(lengths), dtype=np.int32), spans.sum(axis=1)),
        source_index=np.arange(lengths[-1], dtype=np.int32),
        loss_mask=np.repeat(np.tile([False, True], len(lengths)), spans.ravel()),
        truth=truth,
    )


def _choices(random: np.random.Generator, spec: RoutingSpec, count: int) -> ExpertIds:
    """Distinct experts per row and layer, [count, layers, top_k]."""
    scores = random.random((count, len(spec.moe_layers), spec.num_experts))
    return np.argsort(scores, axis=-1)[..., : spec.top_k].astype(spec.dtype)
