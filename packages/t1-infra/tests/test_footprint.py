import dataclasses
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_infra import ArgumentError, ModelSize, ParallelPlan, footprint

MODEL = ModelSize(
    expert_parameters=116_000_000_000, dense_parameters=5_860_000_000, vocabulary=248_320
)
DEVICE = 95 * 2**30


def plan(context, data, expert, devices=64):
    return ParallelPlan(
        devices=devices, tensor=2, pipeline=4, context=context, data=data, expert=expert
    )


def bytes_of(one, *, tokens=84_000, actor=True):
    return footprint(
        MODEL,
        one,
        tokens,
        activation_bytes_per_token=520_000,
        base_bytes=3 * DEVICE // 100,
        output_logits=actor,
    )


def test_the_terms_of_the_reference_plan():
    terms = bytes_of(plan(4, 2, 16))
    assert dataclasses.asdict(terms) == {
        "expert_weights": 10_875_000_000,
        "dense_weights": 8_790_000_000,
        "expert_optimizer": 21_750_000_000,
        "dense_optimizer": 8_790_000_000,
        "activations": 10_920_000_000,
        "logits": 20_858_880_000,
        "base": 3_060_164_198,
    }
    assert terms.total == sum(dataclasses.asdict(terms).values())
    assert terms.total / 2**30 == pytest.approx(79.203, abs=1e-3)


@pytest.mark.parametrize(
    ("one", "tokens", "actor", "gib", "fits"),
    [
        (plan(1, 8, 8), 84_000, False, 94.276, True),
        (plan(1, 8, 16), 84_000, False, 84.147, True),
        (plan(2, 4, 16), 84_000, True, 104.707, False),
        (plan(4, 2, 8), 84_000, True, 89.332, True),
        (plan(4, 2, 16), 128_000, True, 94.706, True),
        (plan(4, 2, 16), 131_072, True, 95.789, False),
        (plan(8, 1, 16), 131_072, True, 80.884, True),
        (plan(4, 2, 16), 84_000, False, 59.777, True),
    ],
)
def test_plans_whose_total_was_worked_out_by_hand(one, tokens, actor, gib, fits):
    terms = bytes_of(one, tokens=tokens, actor=actor)
    assert terms.total / 2**30 == pytest.approx(gib, abs=1e-3)
    assert terms.feasible(DEVICE) is fits


def test_a_device_of_exactly_the_total_fits_and_one_byte_less_does_not():
    terms = bytes_of(plan(4, 2, 16))
    assert terms.feasible(terms.total)
    assert not terms.feasible(terms.total - 1)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_expert_optimizer_state_depends_on_the_device_count_alone(tensor, pipeline, context, data):
    degrees = [2**power for power in (tensor, pipeline, context, data)]
    devices = 2 ** (tensor + pipeline + context + data)
    one = ParallelPlan(devices, *degrees, expert=devices // degrees[1])
    assert bytes_of(one).expert_optimizer == -(-12 * MODEL.expert_parameters // devices)


@given(st.integers(1, 10**12), st.integers(1, 10**6), st.integers(1, 7), st.integers(1, 7))
def test_every_term_is_the_exact_value_rounded_up(parameters, tokens, pipeline, context):
    one = ParallelPlan(pipeline * context, 1, pipeline, context, 1, 1)
    terms = footprint(
        ModelSize(parameters, parameters, 11),
        one,
        tokens,
        activation_bytes_per_token=13,
        base_bytes=17,
        output_logits=True,
    )
    exact = {
        "expert_weights": Fraction(6 * parameters, pipeline),
        "dense_weights": Fraction(6 * parameters, pipeline),
        "expert_optimizer": Fraction(12 * parameters, pipeline * context),
        "dense_optimizer": Fraction(12 * parameters, pipeline),
        "activations": Fraction(13 * tokens, context),
        "logits": Fraction(44 * tokens, context),
        "base": Fraction(17),
    }
    assert dataclasses.asdict(terms) == {name: -(-value // 1) for name, value in exact.items()}


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ((64, 2, 4, 4, 4, 16), "devices"),
        ((64, 2, 4, 4, 2, 3), "expert"),
        ((0, 2, 4, 4, 2, 16), "devices"),
        ((64, 2, 4, 4, 2, 0), "expert"),
    ],
)
def test_a_plan_that_does_not_multiply_out_is_refused(fields, argument):
    with pytest.raises(ArgumentError) as caught:
        ParallelPlan(*fields)
    assert caught.value.argument == argument


def test_negative_quantities_are_refused():
    with pytest.raises(ArgumentError, match="vocabulary"):
        ModelSize(1, 1, -1)
    with pytest.raises(ArgumentError, match="tokens"):
        bytes_of(plan(4, 2, 16), tokens=-1)
