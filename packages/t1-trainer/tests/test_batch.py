"""Packing: one index for all streams, and take/restore as inverses."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_trainer.batch import Batch, pack

lengths = st.lists(st.integers(2, 9), min_size=1, max_size=7)


def batch_of(make_samples, lengths, seed=0):
    return Batch(tuple(make_samples(seed, lengths)))


@given(lengths, st.integers(0, 9))
def test_all_streams_share_one_index(make_samples, lengths, seed):
    samples = make_samples(seed, lengths)
    packed = pack(samples)
    expected = [
        (int(s.tokens[j]), int(s.tokens[j + 1]), s.routed_experts[j].tolist(), s.logprobs[j + 1])
        for s in samples
        for j in range(len(s.tokens) - 1)
        if s.loss_mask[j + 1]
    ]
    found = [
        (int(packed.tokens_N[n]), int(target), packed.routed_NLK[n].tolist(), logprob)
        for n, target, logprob in zip(
            packed.trainable_M, packed.targets_M, packed.sampler_logprobs_M.numpy(), strict=True
        )
    ]
    assert found == expected
    assert packed.lengths_B.tolist() == [length - 1 for length in lengths]


def test_what_stands_outside_the_mask_is_never_read(make_samples):
    sample = make_samples(0, [8])[0]
    assert not sample.loss_mask.all()
    garbage = np.where(sample.loss_mask, sample.logprobs, np.nan).astype(np.float32)
    spoilt = pack([dataclasses.replace(sample, logprobs=garbage)])
    assert torch.equal(spoilt.sampler_logprobs_M, pack([sample]).sampler_logprobs_M)


@given(lengths, st.integers(1, 8))
def test_restore_is_the_inverse_of_take(make_samples, lengths, size):
    batch = batch_of(make_samples, lengths)
    vector_M = torch.arange(int(batch.counts_B.sum()))
    groups = batch.micro_batches(range(len(lengths)), size)
    assert torch.equal(batch.restore([batch.take(vector_M, g) for g in groups], groups), vector_M)


def test_parts_put_back_in_pass_order_are_not_restored(make_samples):
    batch = batch_of(make_samples, [3, 9, 5])
    vector_M = torch.arange(int(batch.counts_B.sum()))
    groups = batch.micro_batches(range(3), 1)
    assert not torch.equal(torch.cat([batch.take(vector_M, g) for g in groups]), vector_M)


@given(lengths, st.integers(1, 8))
def test_micro_batches_cover_every_sample_once(make_samples, lengths, size):
    batch = batch_of(make_samples, lengths)
    groups = batch.micro_batches(range(len(lengths)), size)
    assert sorted(i for g in groups for i in g) == list(range(len(lengths)))
    assert all(len(g) <= size for g in groups)


@given(lengths, st.integers(1, 9), st.integers(0, 5))
def test_minibatches_are_a_seeded_partition_of_even_parts(make_samples, lengths, count, seed):
    batch = batch_of(make_samples, lengths)
    parts = batch.minibatches(count, seed)
    assert parts == batch.minibatches(count, seed)
    assert sorted(i for part in parts for i in part) == list(range(len(lengths)))
    assert len(parts) == min(count, len(lengths))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


def test_another_seed_is_another_permutation(make_samples):
    batch = batch_of(make_samples, [3] * 12)
    assert batch.minibatches(3, 0) != batch.minibatches(3, 1)


@settings(max_examples=10)
@given(lengths)
def test_counts_and_denominators_are_mask_sums(make_samples, lengths):
    batch = batch_of(make_samples, lengths)
    sums = [int(s.loss_mask[1:].sum()) for s in batch.samples]
    assert batch.counts_B.tolist() == sums
    assert batch.trainable_tokens(range(len(lengths))) == sum(sums)
    assert batch.rewards_B.tolist() == pytest.approx([s.reward for s in batch.samples])
