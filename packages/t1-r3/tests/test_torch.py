import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from t1_r3 import RoutingError, disagreement
from t1_r3.torch import select_experts


@st.composite
def routers(draw):
    tokens, experts = draw(st.integers(1, 6)), draw(st.integers(2, 12))
    top_k = draw(st.integers(1, min(4, experts)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    logits = torch.randn(tokens, experts, generator=generator)
    recorded = torch.rand(tokens, experts, generator=generator).argsort(-1)[:, :top_k]
    return logits, top_k, recorded


def with_gradients(logits, top_k, replay):
    leaf = logits.clone().requires_grad_()
    indices, gates = select_experts(leaf, top_k, replay)
    weights = torch.arange(1.0, gates.numel() + 1, dtype=gates.dtype).reshape(gates.shape)
    (gates * weights).sum().backward()
    return indices, gates.detach(), leaf.grad


@given(routers())
def test_free_selection_takes_the_largest_logits(router):
    logits, top_k, _ = router
    indices, gates = select_experts(logits, top_k)
    expected = np.argsort(-logits.numpy(), axis=-1, kind="stable")[:, None, :top_k]
    assert not disagreement(expected, indices.numpy()[:, None]).any()
    assert torch.allclose(gates.sum(-1), torch.ones(len(gates)))


@given(routers())
def test_replay_uses_the_recorded_experts_and_gates_of_the_live_logits(router):
    logits, top_k, recorded = router
    indices, gates, gradient = with_gradients(logits, top_k, recorded)
    assert torch.equal(indices, recorded)
    exponent = np.exp(np.take_along_axis(logits.double().numpy(), recorded.numpy(), -1))
    assert np.allclose(gates, exponent / exponent.sum(-1, keepdims=True), atol=1e-6)
    chosen = torch.zeros_like(logits, dtype=torch.bool).scatter(-1, recorded, True)
    assert not gradient[~chosen].any()
    assert top_k == 1 or gradient[chosen].any()


@given(routers())
def test_replaying_the_free_choice_changes_no_bit_of_output_or_gradient(router):
    logits, top_k, _ = router
    free = with_gradients(logits, top_k, None)
    replayed = with_gradients(logits, top_k, free[0].to(torch.uint8))
    assert all(torch.equal(one, other) for one, other in zip(free, replayed, strict=True))


def test_gates_of_half_precision_logits_are_float32():
    _, gates = select_experts(torch.randn(3, 8, dtype=torch.bfloat16), 2)
    assert gates.dtype is torch.float32


@pytest.mark.parametrize("shape", [(3,), (2, 2), (3, 3)])
def test_a_record_of_another_shape_is_refused(shape):
    with pytest.raises(RoutingError, match=r"\[3, 2\]"):
        select_experts(torch.randn(3, 8), 2, torch.zeros(shape, dtype=torch.uint8))


def test_a_record_of_floats_is_refused():
    with pytest.raises(RoutingError, match="float32"):
        select_experts(torch.randn(3, 8), 2, torch.zeros(3, 2))
