"""Retokenization drift: how often text would have lost the ids that were sampled.

A diagnostic only. It answers "what would training on re-encoded text have changed?" and nothing
of it enters a chunk. It knows no tokenizer; it is given one as two functions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .errors import TurnError
from .turn import Turn


@dataclass(frozen=True)
class RetokenizationReport:
    """Which completions do not survive decoding and encoding again.

    Attributes:
        turns: number of turns examined.
        drifted: indices of the turns whose completion re-encodes to other ids.
    """

    turns: int
    drifted: tuple[int, ...]

    @property
    def share(self) -> float:
        """Share of turns that drifted, in [0, 1]."""
        return len(self.drifted) / self.turns


def retokenization_drift(
    turns: Sequence[Turn],
    encode: Callable[[str], Sequence[int]],
    decode: Callable[[list[int]], str],
) -> RetokenizationReport:
    """Re-encode every completion on its own and compare it with the sampled ids.

    Args:
        turns: at least one turn.
        encode: text to ids, adding no special tokens of its own.
        decode: ids to text, keeping special tokens.

    Raises:
        TurnError: there is no turn.
    """
    if not turns:
        raise TurnError("turns", None, "expected at least one turn, got none")
    drifted = tuple(
        index
        for index, turn in enumerate(turns)
        if not np.array_equal(encode(decode(turn.completion_ids.tolist())), turn.completion_ids)
    )
    return RetokenizationReport(turns=len(turns), drifted=drifted)
