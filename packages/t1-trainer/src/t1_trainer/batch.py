"""Samples packed for the model, and per-token vectors that follow them.

A sample of N tokens feeds N - 1 inputs; input j predicts token j + 1 and was routed by row j. All
streams (targets, mask, sampler log-probs, routing rows) are cut and concatenated by one function,
so that they share an index. Vectors over the trainable tokens of a batch ("_M") are in sample
order; `take` selects the parts of some samples.

Axes: N packed inputs, B samples, M trainable tokens, L MoE layers, K experts per token.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from t1_trainer.samples import Sample

__all__ = ["Batch", "Packed", "pack"]


@dataclass(frozen=True)
class Packed:
    """Model inputs of some samples.

    Attributes:
        tokens_N: int64 input ids.
        lengths_B: int64 inputs per sample.
        routed_NLK: int64 recorded experts.
        trainable_M: int64 positions in N whose target is trained on.
        targets_M: int64 ids predicted there.
        sampler_logprobs_M: float32 log-probs the sampler reported for them.
    """

    tokens_N: Tensor
    lengths_B: Tensor
    routed_NLK: Tensor
    trainable_M: Tensor
    targets_M: Tensor
    sampler_logprobs_M: Tensor


def pack(samples: Sequence[Sample]) -> Packed:
    """Concatenate samples; O(total tokens)."""
    mask_N = np.concatenate([s.loss_mask[1:] for s in samples])
    targets_N = np.concatenate([s.tokens[1:] for s in samples])
    logprobs_N = np.concatenate([s.logprobs[1:] for s in samples])
    return Packed(
        tokens_N=torch.from_numpy(np.concatenate([s.tokens[:-1] for s in samples])).long(),
        lengths_B=torch.tensor([len(s.tokens) - 1 for s in samples]),
        routed_NLK=torch.from_numpy(np.concatenate([s.routed_experts for s in samples])).long(),
        trainable_M=torch.from_numpy(np.flatnonzero(mask_N)),
        targets_M=torch.from_numpy(targets_N[mask_N]).long(),
        sampler_logprobs_M=torch.from_numpy(logprobs_N[mask_N]),
    )


@dataclass(frozen=True)
class Batch:
    """The admitted samples of one step."""

    samples: tuple[Sample, ...]

    @cached_property
    def counts_B(self) -> Tensor:
        """Trainable tokens per sample, int64."""
        return torch.tensor([int(s.loss_mask[1:].sum()) for s in self.samples])

    @cached_property
    def rewards_B(self) -> Tensor:
        """Reward per sample, float32."""
        return torch.tensor([s.reward for s in self.samples], dtype=torch.float32)

    @cached_property
    def sampler_logprobs_M(self) -> Tensor:
        """Sampler log-probs of all trainable tokens, in sample order."""
        return pack(self.samples).sampler_logprobs_M

    def minibatches(self, count: int, seed: int) -> list[list[int]]:
        """Sample indices of `count` optimizer steps: a seeded permutation, split evenly.

        A batch of fewer samples gives one step per sample.
        """
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(len(self.samples), generator=generator)
        return [part.tolist() for part in order.tensor_split(min(count, len(order)))]

    def micro_batches(self, indices: Sequence[int], size: int) -> list[list[int]]:
        """The indices in passes of at most `size` samples, longest first so that pads are few."""
        ordered = sorted(indices, key=lambda i: -len(self.samples[i].tokens))
        return [ordered[i : i + size] for i in range(0, len(ordered), size)]

    def pack(self, indices: Sequence[int]) -> Packed:
        """Model inputs of the given samples."""
        return pack([self.samples[i] for i in indices])

    def take(self, vector_M: Tensor, indices: Sequence[int]) -> Tensor:
        """The parts of a per-trainable-token vector that belong to the given samples."""
        parts = vector_M.split(self.counts_B.tolist())
        return torch.cat([parts[i] for i in indices])

    def restore(self, parts: Sequence[Tensor], indices: Sequence[Sequence[int]]) -> Tensor:
        """Inverse of `take` over micro-batches that cover the batch: back to sample order."""
        counts = self.counts_B.tolist()
        by_sample: dict[int, Tensor] = {}
        for part, group in zip(parts, indices, strict=True):
            by_sample.update(zip(group, part.split([counts[i] for i in group]), strict=True))
        return torch.cat([by_sample[i] for i in range(len(self.samples))])

    def trainable_tokens(self, indices: Sequence[int]) -> int:
        """Mask sum of the given samples: the denominator of an optimizer step."""
        return int(self.counts_B[list(indices)].sum())
