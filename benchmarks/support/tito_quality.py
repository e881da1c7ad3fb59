"""What became of a trial's sampled tokens, judged without any provenance that the samples carry.

No two sampled tokens of a synthetic trial have the same log-probability, so a loss position tells
by its own which token of which turn it stands for. Everything else follows from comparing with the
trial's turns: whether the id is the sampled one, whether all that stands before it is what the
engine saw, and whether the sample's text is the conversation's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from t1_tito import Trial

from .tito_peers import Sample
from .tito_trials import Ids, SyntheticTrial, vocabulary


@dataclass(frozen=True)
class Quality:
    """How good the samples of one trial are.

    Attributes:
        sampled: tokens that were sampled.
        kept: sampled tokens that carry loss in some sample.
        repeated: loss positions beyond the first of each sampled token.
        drifted: loss positions whose id is not the sampled one.
        exact: loss positions whose whole prefix is what the engine saw.
        samples: how many samples there are.
        tokens: tokens of all samples.
        silent: turns with an untrained, repeated or changed token, and samples with text that the
            conversation lacks or without text that it has, none of which raised an error.
        raised: the error that ended it, None where there was none.
    """

    sampled: int
    kept: int = 0
    repeated: int = 0
    drifted: int = 0
    exact: int = 0
    samples: int = 0
    tokens: int = 0
    silent: int = 0
    raised: str | None = None

    def row(self) -> str:
        """Returns the cells of a table, as `HEADER` names them."""
        if self.raised is not None:
            return f"{'-':>8} {'-':>8} {'-':>9} {'-':>6} {'-':>7} {'-':>7}  raised: {self.raised}"
        return (
            f"{100 * self.kept / self.sampled:8.2f} {self.samples:8d} {self.tokens:9d} "
            f"{self.drifted:6d} {100 * self.exact / max(1, self.kept):7.2f} {self.silent:7d}"
        )


HEADER = f"{'kept %':>8} {'samples':>8} {'tokens':>9} {'drift':>6} {'exact %':>7} {'silent':>7}"


@dataclass(frozen=True)
class _Found:
    """Loss positions of one sample: where they are, and the turn and index each stands for."""

    tokens: Ids
    positions: npt.NDArray[np.int64]
    turns: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]


def samples_of(trial: Trial) -> list[Sample]:
    """Returns the chunks of an assembled trial as samples."""
    return [
        Sample(chunk.tokens.tolist(), chunk.loss_mask.astype(int).tolist(), chunk.logprobs.tolist())
        for chunk in trial.chunks
    ]


def judge(samples: Sequence[Sample], trial: SyntheticTrial) -> Quality:
    """Compares samples with the turns that they were made of."""
    lengths = np.array([step.completion.size for step in trial.steps])
    starts = np.concatenate([[0], np.cumsum(lengths)])
    found = [_find(sample, trial, starts) for sample in samples]
    seen = np.zeros(trial.sampled, np.int64)
    for part in found:
        np.add.at(seen, starts[part.turns] + part.indices, 1)
    faulty = set((np.searchsorted(starts, np.flatnonzero(seen != 1), side="right") - 1).tolist())
    drifted = exact = wrong_texts = 0
    said = [np.empty(0, np.int32)] * len(found)
    for turn, (step, prompt) in enumerate(zip(trial.steps, trial.prompts(), strict=True)):
        conversation = np.concatenate([prompt, step.completion])
        for number, part in enumerate(found):
            mine = part.turns == turn
            if not mine.any():
                continue
            at, within = part.positions[mine], part.indices[mine]
            changed = int((part.tokens[at] != step.completion[within]).sum())
            if changed:
                faulty.add(turn)
            drifted += changed
            common = _common(part.tokens, conversation)
            place = prompt.size + within
            exact += int(((at == place) & (place <= common)).sum())
            said[number] = conversation
    for part, conversation in zip(found, said, strict=True):
        wrong_texts += not np.array_equal(_text(part.tokens), _text(conversation))
    return Quality(
        sampled=trial.sampled,
        kept=int((seen > 0).sum()),
        repeated=int(np.maximum(seen - 1, 0).sum()),
        drifted=drifted,
        exact=exact,
        samples=len(samples),
        tokens=sum(part.tokens.size for part in found),
        silent=len(faulty) + wrong_texts,
    )


def _find(sample: Sample, trial: SyntheticTrial, starts: npt.NDArray[np.int64]) -> _Found:
    positions = np.flatnonzero(np.array(sample.loss_mask))
    logprobs = np.concatenate([step.logprobs for step in trial.steps])
    # log-probabilities fall from token to token
    order = np.searchsorted(-logprobs, -np.array(sample.logprobs, np.float32)[positions])
    turns = np.searchsorted(starts, order, side="right") - 1
    return _Found(np.array(sample.tokens, np.int32), positions, turns, order - starts[turns])


def _common(left: Ids, right: Ids) -> int:
    size = min(left.size, right.size)
    different = left[:size] != right[:size]
    return int(different.argmax()) if different.any() else size


def _text(ids: Ids) -> npt.NDArray[np.int32]:
    """The symbols of all ids that no template owns."""
    table = vocabulary().token_bytes
    return table.symbols(ids[~table.template_owned(ids)])
