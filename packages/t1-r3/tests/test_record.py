import pickle

import numpy as np
import pytest
from hypothesis import given

from t1_r3 import RoutingError, RoutingRecord, RoutingSpec
from t1_r3.testing import sessions

SPEC = RoutingSpec(num_experts=8, top_k=2, moe_layers=(1, 3))


def rows():
    return np.array([[[0, 1], [2, 3]], [[4, 5], [6, 7]]])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ((0, 1, (0,)), "num_experts"),
        ((2**16 + 1, 1, (0,)), "num_experts"),
        ((4, 5, (0,)), "top_k"),
        ((4, 0, (0,)), "top_k"),
        ((4, 1, ()), "moe_layers"),
        ((4, 1, (3, 1)), "moe_layers"),
        ((4, 1, (1, 1)), "moe_layers"),
        ((4, 1, (-1,)), "moe_layers"),
    ],
)
def test_a_spec_out_of_range_is_refused(fields, message):
    with pytest.raises(RoutingError, match=message):
        RoutingSpec(*fields)


def test_ids_take_one_byte_up_to_256_experts_and_two_above():
    assert RoutingSpec(256, 8, (0,)).dtype == np.uint8
    assert RoutingSpec(257, 8, (0,)).dtype == np.uint16


@given(sessions())
def test_every_drawn_record_is_valid_and_narrow(session):
    for record in session.records:
        record.validate()
        assert record.rows.dtype == session.spec.dtype


def test_rows_are_read_only_and_span_their_indices():
    record = RoutingRecord(rows(), SPEC, start=5, weight_version=2)
    assert (record.start, record.stop) == (5, 7)
    with pytest.raises(ValueError, match="read-only"):
        record.rows[0, 0, 0] = 1


def test_an_array_of_the_right_dtype_is_not_copied():
    narrow = rows().astype(np.uint8)
    assert np.shares_memory(RoutingRecord(narrow, SPEC, 0, 0).rows, narrow)


@pytest.mark.parametrize(
    "shape", [(2, 2), (2, 1, 2), (2, 2, 8), (2, 2, 2, 1)], ids=["2d", "layers", "experts", "4d"]
)
def test_another_shape_is_refused(shape):
    with pytest.raises(RoutingError, match="expected rows"):
        RoutingRecord(np.zeros(shape, np.uint8), SPEC, 0, 0)


def test_an_id_that_would_wrap_is_refused_with_row_and_layer():
    wide = rows()
    wide[1, 0, 1] = 300
    with pytest.raises(RoutingError, match="got 300") as caught:
        RoutingRecord(wide, SPEC, 0, 0)
    assert (caught.value.row, caught.value.layer) == (1, 1)
    wide[1, 0, 1] = -1
    with pytest.raises(RoutingError, match="got -1"):
        RoutingRecord(wide, SPEC, 0, 0)


def test_floats_and_negative_starts_are_refused():
    with pytest.raises(RoutingError, match="float64"):
        RoutingRecord(rows().astype(float), SPEC, 0, 0)
    with pytest.raises(RoutingError, match="start"):
        RoutingRecord(rows(), SPEC, -1, 0)


def test_an_expert_that_does_not_exist_is_named_with_turn_row_and_layer():
    wrong = rows()
    wrong[1, 1, 0] = 8
    record = RoutingRecord(wrong, SPEC, 0, 0)
    with pytest.raises(RoutingError, match="below 8") as caught:
        record.validate(turn=4)
    assert (caught.value.turn, caught.value.row, caught.value.layer) == (4, 1, 3)


def test_a_repeated_expert_is_found_wherever_it_stands():
    wrong = rows()
    wrong[1, 0] = [5, 5]
    record = RoutingRecord(wrong, SPEC, 0, 0)
    with pytest.raises(RoutingError, match="2 different experts") as caught:
        record.validate()
    assert (caught.value.row, caught.value.layer) == (1, 1)


def test_a_buffer_that_was_never_written_is_found():
    with pytest.raises(RoutingError, match="row 0, layer 1"):
        RoutingRecord(np.zeros((3, 2, 2), np.uint8), SPEC, 0, 0).validate()


def test_errors_survive_pickling():
    with pytest.raises(RoutingError) as caught:
        RoutingRecord(np.zeros((3, 2, 2), np.uint8), SPEC, 0, 0).validate(turn=7)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
