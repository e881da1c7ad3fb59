"""A chunk under construction: what each turn added to it, in order.

Adding a turn costs the same however long the chunk is; the flat arrays are laid out when a chunk is
asked for, in O(tokens). Turns are only ever added, but for `cut`, by which a rewriting policy removes
the end of a prompt and of its completion. Their arrays are never written to, so that a copy shares
them.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .trial import Chunk, Kind
from .turn import Floats, Ids


class _Addition(NamedTuple):
    """What one turn adds: ids of its prompt from `first_index` on, then its completion.

    The first `synthetic` of the prompt's ids were made up.
    """

    turn: int
    kind: Kind
    first_index: int
    synthetic: int
    context: Ids
    completion_index: int
    completion: Ids
    logprobs: Floats


class ChunkBuilder:
    """The growing chunk of the last turn.

    Attributes:
        length: its tokens.
    """

    def __init__(self, additions: Iterable[_Addition] = ()) -> None:
        self.length = 0
        self._additions: list[_Addition] = []
        for addition in additions:
            self.append(*addition)

    @property
    def last_context_length(self) -> int:
        """Tokens that the last turn added before its completion."""
        return self._additions[-1].context.size

    def copy(self) -> "ChunkBuilder":
        """An independent builder with the same turns, in O(turns)."""
        return ChunkBuilder(self._additions)

    def append(
        self,
        turn: int,
        kind: Kind,
        first_index: int,
        synthetic: int,
        context: Ids,
        completion_index: int,
        completion: Ids,
        logprobs: Floats,
    ) -> None:
        """Add a turn; the arrays are kept, not copied.

        Args:
            turn: its index.
            kind: what its context is.
            first_index: index of the first context id in its prompt ‖ completion.
            synthetic: leading context ids that were made up.
            context: ids of its prompt.
            completion_index: P of the turn.
            completion: the sampled ids.
            logprobs: of each.
        """
        self._additions.append(
            _Addition(
                turn, kind, first_index, synthetic, context, completion_index, completion, logprobs
            )
        )
        self.length += context.size + completion.size

    def cut(self, scaffold: int, tail: int) -> None:
        """Remove `scaffold` positions before the last completion, and `tail` from its end."""
        last = self._additions[-1]
        kept = last.completion.size - tail
        context = last.context[: last.context.size - scaffold]
        self._additions[-1] = last._replace(
            context=context,
            synthetic=min(last.synthetic, context.size),
            completion=last.completion[:kept],
            logprobs=last.logprobs[:kept],
        )
        self.length -= scaffold + tail

    def chunk(self) -> Chunk:
        """The positions so far as arrays."""
        columns = tuple(zip(*self._additions, strict=True))
        turns, kinds, first_indices, synthetic, contexts, completion_indices, completions, lps = (
            columns
        )
        # per turn: made-up ids, the rest of its context, its completion
        made_up = np.array(synthetic)
        lengths = np.stack(
            [made_up, _sizes(contexts) - made_up, _sizes(completions)], axis=1
        ).ravel()
        firsts = np.stack(
            [first_indices, made_up + first_indices, completion_indices], axis=1
        ).ravel()
        sampled, synthetics = np.full(len(turns), Kind.SAMPLED), np.full(len(turns), Kind.SYNTHETIC)
        kinds_of = np.stack([synthetics, kinds, sampled], axis=1).ravel().astype(np.uint8)
        shifts = firsts - (np.cumsum(lengths) - lengths)
        source_index = np.arange(self.length, dtype=np.int32)
        source_index += np.repeat(shifts.astype(np.int32), lengths)
        kind = np.repeat(kinds_of, lengths)
        loss_mask = kind == Kind.SAMPLED
        logprobs = np.zeros(self.length, np.float32)
        logprobs[loss_mask] = np.concatenate(lps)
        pieces = [ids for pair in zip(contexts, completions, strict=True) for ids in pair]
        return Chunk(
            tokens=np.concatenate(pieces),
            loss_mask=loss_mask,
            logprobs=logprobs,
            source_turn=np.repeat(np.repeat(np.array(turns, np.int32), 3), lengths),
            source_index=source_index,
            kind=kind,
        )


def _sizes(arrays: Sequence[Ids]) -> npt.NDArray[np.int64]:
    return np.array([array.size for array in arrays], np.int64)
