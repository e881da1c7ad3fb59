"""The mixture's two evaluations against a loop over tokens, and the sampler's rounding."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from t1_trainer.policy.experts import experts_dense, experts_sorted
from t1_trainer.policy.rounding import exact, to_bfloat16

HIDDEN, INNER, EXPERTS, TOP_K = 6, 5, 4, 2


def token_by_token(x, indices, gates, gate_up, down, rounded=exact) -> Tensor:
    rows = []
    for token in range(len(x)):
        total = torch.zeros(HIDDEN, dtype=x.dtype)
        for expert, gate in zip(indices[token].tolist(), gates[token], strict=True):
            opened, up = (x[token] @ gate_up[expert]).chunk(2)
            total = total + gate * ((F.silu(opened) * up) @ down[expert])
        rows.append(total)
    return torch.stack(rows)


def inputs(tokens: int, seed: int, dtype=torch.float64):
    source = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=source, dtype=dtype).requires_grad_()

    ranks = torch.rand(tokens, EXPERTS, generator=source)
    indices = ranks.argsort(-1)[:, :TOP_K]
    gates = torch.rand(tokens, TOP_K, generator=source, dtype=dtype).requires_grad_()
    return (
        normal(tokens, HIDDEN),
        indices,
        gates,
        normal(EXPERTS, HIDDEN, 2 * INNER),
        normal(EXPERTS, INNER, HIDDEN),
    )


def with_gradients(function, arguments) -> list[Tensor]:
    leaves = [a for a in arguments if a.requires_grad]
    out = function(*arguments)
    return [out, *torch.autograd.grad((out * out.detach().cos()).sum(), leaves)]


@settings(max_examples=15)
@pytest.mark.parametrize("evaluation", [experts_sorted, experts_dense])
@given(tokens=st.integers(1, 9), seed=st.integers(0, 99))
def test_an_evaluation_and_its_gradients_equal_the_loop(evaluation, tokens, seed):
    arguments = inputs(tokens, seed)
    expected = with_gradients(token_by_token, arguments)
    for got, want in zip(with_gradients(evaluation, arguments), expected, strict=True):
        # float64, so that only a wrong term can exceed it
        assert torch.allclose(got, want, atol=1e-10)


@pytest.mark.parametrize("evaluation", [experts_sorted, experts_dense])
def test_gates_given_to_the_wrong_expert_are_noticed(evaluation):
    x, indices, gates, gate_up, down = inputs(5, 0)
    expected = token_by_token(x, indices, gates, gate_up, down)
    swapped = evaluation(x, indices, gates.flip(1), gate_up, down)
    assert not torch.allclose(swapped, expected, atol=1e-3)


@settings(max_examples=15)
@given(st.integers(1, 9), st.sampled_from([1, 8, 33, 128]), st.integers(1, 9), st.integers(0, 99))
def test_rounding_float32_products_equals_native_bfloat16(rows, inner, columns, seed):
    source = torch.Generator().manual_seed(seed)
    a = to_bfloat16(torch.randn(rows, inner, generator=source))
    b = to_bfloat16(torch.randn(inner, columns, generator=source))
    low, high = interval(a, b)
    for product in (to_bfloat16(a @ b), (a.bfloat16() @ b.bfloat16()).float()):
        assert bool(((low <= product) & (product <= high)).all())


def test_accumulating_in_bfloat16_is_noticed():
    source = torch.Generator().manual_seed(0)
    a = to_bfloat16(torch.randn(4, 128, generator=source))
    b = to_bfloat16(torch.randn(128, 5, generator=source))
    low, high = interval(a, b)
    total = torch.zeros(4, 5)
    for k in range(128):
        total = to_bfloat16(total + a[:, k : k + 1] * b[k])
    assert not bool(((low <= total) & (total <= high)).all())


def interval(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """All bfloat16 results that float32 accumulation, in any order, may round to."""
    product = a.double() @ b.double()
    slack = a.shape[1] * 2.0**-24 * (a.abs().double() @ b.abs().double())
    return (product - slack).bfloat16().float(), (product + slack).bfloat16().float()
