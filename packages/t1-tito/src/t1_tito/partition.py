"""The partition of equation 11: every stream position is aligned, re-tokenized or a placeholder.

    P  placeholder    no capture holds the position's per-token row: the last index of T where the
                      next prompt of the sample does not repeat T id by id, and context of no turn
    D  re-tokenized   not P, and the token differs from what its owner holds: of a sampled token the
                      owner is the turn that sampled it; of context, every turn that was shown it
    A  aligned        the rest

The three are disjoint and sum to N. Among the positions with loss, D counts what emission drift
counts, and P the losses that would read a missing row: that of the position before (equation 14).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Partition:
    """Sizes of the three sets.

    Attributes:
        aligned: |A|.
        retokenized: |D|.
        placeholder: |P|.
    """

    aligned: int = 0
    retokenized: int = 0
    placeholder: int = 0

    @property
    def total(self) -> int:
        """N."""
        return self.aligned + self.retokenized + self.placeholder

    def __add__(self, other: "Partition") -> "Partition":
        """Both samples together."""
        return Partition(
            self.aligned + other.aligned,
            self.retokenized + other.retokenized,
            self.placeholder + other.placeholder,
        )

    def __str__(self) -> str:
        """The three sizes, A/D/P."""
        return f"{self.aligned}/{self.retokenized}/{self.placeholder}"


def partition(
    loss_mask: Bools, wrong: Bools, drifted: Bools, rowless: Bools
) -> tuple[Partition, Partition]:
    """Partition the positions of one sample.

    Args:
        loss_mask: bool [N].
        wrong: bool [N], the token differs from its own source.
        drifted: bool [N], a later turn was shown other ids there.
        rowless: bool [N], no capture holds a row for the position.

    Returns:
        The partition of all positions, and that of the positions with loss.
    """
    retokenized = np.where(loss_mask, wrong, drifted | wrong) & ~rowless
    reads_missing = np.zeros_like(loss_mask)
    reads_missing[1:] = loss_mask[1:] & rowless[:-1]
    everything = _sizes(retokenized, rowless, loss_mask.size)
    losses = int(np.count_nonzero(loss_mask))
    return everything, _sizes(loss_mask & wrong & ~reads_missing, reads_missing, losses)


def _sizes(retokenized: Bools, rowless: Bools, total: int) -> Partition:
    d, p = int(np.count_nonzero(retokenized)), int(np.count_nonzero(rowless))
    return Partition(total - d - p, d, p)
