"""What a stack that keeps text would train on instead of the sampled ids, token by token.

Every completion is read as text and rendered again through the chat template; what was never
sampled keeps its ids. Ids drift because many id sequences spell one text. To compare log-probs, the
sampled and the re-encoded ids of a completion are cut into **spans** at the byte offsets where both
have a boundary: a span is the same bytes on both sides, one token each wherever nothing drifted.

    gap of a span = |sum of the trainer's log p - sum of the sampler's log p|

and each of its sampled tokens carries an equal share of it. By the triangle inequality this is never
more than a comparison token by token could give: the alignment favours the text-keeping stack.
A completion whose bytes are no valid UTF-8 changes as text; it is one span up to its stop id.

A diagnostic: nothing of it enters training. Axes: N tokens of a sample, M sampled ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from t1_tito import FinishReason, Turn, retokenization_drift
from t1_trainer.policy import ChatFormat, Tokenizer
from t1_trainer.policy.tokenizer import END, SPECIALS
from t1_trainer.samples import Sample

__all__ = ["Retokenized", "Retokenizer"]

Offsets = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Retokenized:
    """A sample as a text-keeping stack would train it, and how it lies beside the sampled ids.

    Attributes:
        sample: the re-encoded sample; its routing rows and log-probs are placeholders, since text
            has neither.
        sampled_spans: int64 [M], span of every sampled token, in order.
        spans: int64 [M'], span of every re-encoded trained token; -1 where no sampled token is
            spelled by it.
        completions: how many the trial has.
        drifted: how many of them re-encode to other ids.
    """

    sample: Sample
    sampled_spans: Offsets
    spans: Offsets
    completions: int
    drifted: int


class Retokenizer:
    """Re-encodes samples.

    Args:
        tokenizer: of the policy.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._chat = ChatFormat(tokenizer)
        pieces = [piece.encode() for piece in tokenizer.pieces]
        self._bytes = [b""] * len(SPECIALS) + [bytes([b]) for b in range(256)] + pieces

    def __call__(self, sample: Sample) -> Retokenized:
        """Decode and render every completion again."""
        pieces: list[NDArray[np.int32]] = []
        masks: list[NDArray[np.bool_]] = []
        sampled_spans: list[Offsets] = []
        spans: list[Offsets] = []
        first = position = 0
        turns = _turns(sample)
        for turn in turns:
            start = len(turn.prompt_ids)
            sampled = turn.completion_ids.tolist()
            rendered = self._chat.render_command(self._chat.parse_command(sampled))
            pieces += [sample.tokens[position:start], np.array(rendered, np.int32)]
            masks += [np.zeros(start - position, np.bool_), np.ones(len(rendered), np.bool_)]
            of_sampled, of_rendered, count = self._aligned(sampled, rendered)
            sampled_spans.append(of_sampled + first)
            spans.append(np.where(of_rendered < 0, -1, of_rendered + first))
            first, position = first + count, turn.length
        tail = sample.tokens[position:]
        tokens = np.concatenate([*pieces, tail])
        report = retokenization_drift(turns, self._chat.render_command, self._chat.parse_command)
        return Retokenized(
            sample=replace(
                sample,
                tokens=tokens,
                loss_mask=np.concatenate([*masks, np.zeros(len(tail), np.bool_)]),
                logprobs=np.zeros(len(tokens), np.float32),
                routed_experts=np.zeros(
                    (len(tokens) - 1, *sample.routed_experts.shape[1:]), np.uint8
                ),
            ),
            sampled_spans=np.concatenate(sampled_spans),
            spans=np.concatenate(spans),
            completions=report.turns,
            drifted=len(report.drifted),
        )

    def _aligned(
        self, sampled: Sequence[int], rendered: Sequence[int]
    ) -> tuple[Offsets, Offsets, int]:
        """Span of every sampled and every rendered id, and the number of spans.

        A rendered id behind everything sampled (the stop id of a completion cut short) has none.
        """
        same_bytes = self._text(sampled) == self._text(rendered)
        ends, others = self._ends(sampled, same_bytes), self._ends(rendered, same_bytes)
        borders = np.union1d(np.intersect1d(ends, others), ends[-1:])
        of_rendered = np.searchsorted(borders, others)
        of_rendered[others > ends[-1]] = -1
        return np.searchsorted(borders, ends), of_rendered, len(borders)

    def _text(self, ids: Sequence[int]) -> bytes:
        return b"".join(self._bytes[i] for i in ids)

    def _ends(self, ids: Sequence[int], same_bytes: bool) -> Offsets:
        """Byte offset behind every id; a final stop id is one byte behind the text.

        Where the bytes differ, the text counts as a single byte.
        """
        body = list(ids[:-1] if ids[-1] == END else ids)
        if same_bytes:
            ends = np.cumsum([len(self._bytes[i]) for i in body], dtype=np.int64)
        else:
            ends = np.ones(len(body), np.int64)
        length = ends[-1] if len(ends) else 0
        return np.append(ends, length + 1) if len(body) < len(ids) else ends


def _turns(sample: Sample) -> list[Turn]:
    """The turns of a sample: a completion is a run of sampled tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], sample.loss_mask.view(np.int8), [0]])))
    return [
        Turn(
            sample.tokens[:start],
            sample.tokens[start:stop],
            sample.logprobs[start:stop],
            sample.weight_version,
            sample.weight_version,
            FinishReason.STOP if sample.tokens[stop - 1] == END else FinishReason.LENGTH,
        )
        for start, stop in edges.reshape(-1, 2).tolist()
    ]
