"""The full-sequence forward: packing changes nothing, replaying its own choice changes no bit."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_r3 import disagreement

lengths = st.lists(st.integers(1, 8), min_size=1, max_size=5)


def tokens_of(lengths: list[int], seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 60, (sum(lengths),), generator=torch.Generator().manual_seed(seed))


def gradients(model, hidden: torch.Tensor) -> list[torch.Tensor]:
    loss = model.logits(hidden).log_softmax(-1)[:, 7].sum()
    return list(torch.autograd.grad(loss, list(model.parameters())))


@settings(max_examples=15)
@given(lengths, st.integers(0, 9))
@torch.no_grad()
def test_packed_sequences_equal_each_sequence_alone(make_model, lengths, seed):
    model, tokens_N = make_model(), tokens_of(lengths, seed)
    packed = model(tokens_N, torch.tensor(lengths))
    for part, hidden, selected in zip(
        tokens_N.split(lengths),
        packed.hidden_ND.split(lengths),
        packed.selected_NLK.split(lengths),
        strict=True,
    ):
        alone = model(part, torch.tensor([len(part)]))
        # hidden states have unit scale: some tens of float32 roundings
        assert torch.allclose(hidden, alone.hidden_ND, atol=1e-5)
        assert not disagreement(selected.numpy(), alone.selected_NLK.numpy()).any()


@torch.no_grad()
def test_sequences_that_run_into_each_other_are_noticed(make_model):
    model, tokens_N = make_model(), tokens_of([4, 4])
    apart = model(tokens_N, torch.tensor([4, 4])).hidden_ND
    joined = model(tokens_N, torch.tensor([8])).hidden_ND
    assert torch.allclose(apart[:4], joined[:4], atol=1e-5)
    assert not torch.allclose(apart[4:], joined[4:], atol=1e-2)


@torch.no_grad()
def test_a_later_token_changes_nothing_before_it(make_model):
    model, tokens_N = make_model(), tokens_of([6])
    changed = tokens_N.clone()
    changed[5] = (changed[5] + 1) % 60
    before = model(tokens_N, torch.tensor([6])).hidden_ND
    after = model(changed, torch.tensor([6])).hidden_ND
    assert torch.equal(before[:5], after[:5])
    assert not torch.equal(before[5], after[5])


@settings(max_examples=8)
@given(lengths, st.integers(0, 9))
def test_replaying_the_free_choice_changes_no_bit_of_results_or_gradients(
    make_model, lengths, seed
):
    model, tokens_N = make_model(), tokens_of(lengths, seed)
    free = model(tokens_N, torch.tensor(lengths))
    replayed = model(tokens_N, torch.tensor(lengths), free.selected_NLK)
    assert torch.equal(free.hidden_ND, replayed.hidden_ND)
    pairs = zip(gradients(model, free.hidden_ND), gradients(model, replayed.hidden_ND), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_replayed_experts_are_the_ones_used(make_model):
    model, tokens_N = make_model(), tokens_of([5])
    free = model(tokens_N, torch.tensor([5])).selected_NLK
    other = (free + 3) % 8
    result = model(tokens_N, torch.tensor([5]), other)
    assert torch.equal(result.selected_NLK, other)
    assert not torch.allclose(
        result.hidden_ND, model(tokens_N, torch.tensor([5])).hidden_ND, atol=1e-4
    )


def test_the_router_learns_under_replay(make_model):
    model, tokens_N = make_model(), tokens_of([5])
    replay = model(tokens_N, torch.tensor([5])).selected_NLK
    model.logits(model(tokens_N, torch.tensor([5]), replay).hidden_ND).log_softmax(-1)[
        :, 7
    ].sum().backward()
    assert all(bool(layer.router.grad.abs().sum() > 0) for layer in model.moe_layers())


def test_a_policy_has_no_values(make_model):
    model = make_model()
    with pytest.raises(TypeError, match="value_head=True"):
        model.values(torch.zeros(1, 32))


@settings(max_examples=15)
@given(lengths, st.integers(0, 9), st.data())
def test_hidden_states_at_some_rows_are_those_of_the_whole_forward(make_model, lengths, seed, data):
    model, tokens_N, lengths_B = make_model(), tokens_of(lengths, seed), torch.tensor(lengths)
    row = st.integers(0, len(tokens_N) - 1)
    rows_M = torch.tensor(data.draw(st.lists(row, min_size=1, unique=True).map(sorted)))
    whole = model(tokens_N, lengths_B)
    recorded = whole.selected_NLK.flip(1) if data.draw(st.booleans()) else None
    expected = model(tokens_N, lengths_B, recorded).hidden_ND[rows_M]
    hidden = model.hidden_at(tokens_N, lengths_B, rows_M, recorded)
    assert torch.allclose(hidden, expected, atol=1e-5)
    for ours, theirs in zip(gradients(model, hidden), gradients(model, expected), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4)
    # the defect: rows are cut before the last layer has attended to all of them
    if int(rows_M[0]) > 0 and lengths[0] > int(rows_M[0]):
        alone = model(tokens_N[rows_M], torch.tensor([len(rows_M)])).hidden_ND
        assert not torch.allclose(alone[0], expected[0], atol=1e-4)
