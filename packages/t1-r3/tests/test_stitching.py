import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from t1_r3 import MissingRouting, RoutingError, RoutingRecord, RoutingSpec, disagreement, stitch
from t1_r3.testing import sessions

SPEC = RoutingSpec(num_experts=16, top_k=1, moe_layers=(0,))


def stitched(session, **changes):
    whole = dataclasses.replace(session, **changes)
    return stitch(
        whole.records, whole.lengths, whole.source_turn, whole.source_index, whole.loss_mask
    )


def record(ids, start=0):
    """A record of one layer with one expert per row."""
    return RoutingRecord(np.reshape(ids, (-1, 1, 1)), SPEC, start, 0)


@given(sessions())
def test_the_stitch_returns_the_experts_each_token_first_used(session):
    result = stitched(session)
    assert np.array_equal(result.rows, session.truth)
    assert result.rows.shape[0] == session.source_turn.size - 1
    assert result.substituted == 0


@given(sessions())
def test_a_row_comes_from_the_first_turn_that_had_its_token_as_an_input(session):
    origin = stitched(session).origin
    lengths = np.array(session.lengths)
    for position, turn in enumerate(origin):
        assert turn == np.searchsorted(lengths - 1, position, side="right")


def test_two_turns_telescope_and_the_first_write_stays():
    first = record([1, 2])  # prompt of 2, completion of 1: indices 0 and 1
    again = record([9, 9, 3, 4], start=0)  # the second turn recomputes 0 and 1
    result = stitch([first, again], [3, 5], [0, 0, 0, 1, 1], [0, 1, 2, 3, 4], [0, 0, 1, 0, 1])
    assert result.rows.ravel().tolist() == [1, 2, 3, 4]
    assert result.origin.tolist() == [0, 0, 1, 1]


def test_a_stream_that_opens_at_a_later_turn_needs_only_that_turn():
    records = [record([1, 2]), record([5, 6, 7])]
    result = stitch(records, [3, 4], [1, 1, 1, 1], [0, 1, 2, 3], [0, 0, 0, 1])
    assert result.rows.ravel().tolist() == [5, 6, 7]


def test_the_experts_after_an_unrecorded_seam_are_not_taken_from_another_token():
    # token 2 is turn 0's last; turn 1 goes on at its own index 4, so its row 2 is another token's
    with pytest.raises(MissingRouting) as caught:
        stitch([record([1, 2]), record([7, 7, 7, 7])], [3, 5], [0, 0, 0, 1], [0, 1, 2, 4], [0] * 4)
    assert caught.value.position == 2


@given(sessions(), st.data())
def test_a_turn_without_a_record_is_refused(session, data):
    turn = data.draw(st.integers(0, len(session.records) - 1))
    assume(len(session.records) > 1)
    records = [*session.records]
    records[turn] = None
    with pytest.raises(MissingRouting, match="no record") as caught:
        stitched(session, records=records)
    assert caught.value.turn == turn


def test_no_record_at_all_is_refused():
    with pytest.raises(MissingRouting, match="switched on"):
        stitch([None], [3], [0, 0, 0], [0, 1, 2], [0, 0, 1])


@given(sessions())
def test_records_in_another_order_are_refused(session):
    assume(len(session.records) > 1)
    with pytest.raises(RoutingError, match="expected rows for indices"):
        stitched(session, records=session.records[::-1])


@given(sessions(), st.sampled_from([-1, 1]))
def test_a_record_shifted_by_one_row_is_refused(session, shift):
    last = session.records[-1]
    assume(last.start + shift >= 0)
    moved = RoutingRecord(last.rows, last.spec, last.start + shift, last.weight_version)
    with pytest.raises(RoutingError, match="expected rows for indices"):
        stitched(session, records=[*session.records[:-1], moved])


@given(sessions())
def test_a_capture_that_lost_its_last_row_is_refused(session):
    last = session.records[-1]
    short = RoutingRecord(last.rows[:-1], last.spec, last.start, last.weight_version)
    with pytest.raises(RoutingError, match="got"):
        stitched(session, records=[*session.records[:-1], short])


@given(sessions())
def test_rows_rolled_inside_a_record_no_longer_agree_with_the_truth(session):
    last = session.records[-1]
    rolled = RoutingRecord(np.roll(last.rows, 1, axis=0), last.spec, last.start, 0)
    assume(not np.array_equal(np.sort(rolled.rows), np.sort(last.rows)))
    result = stitched(session, records=[*session.records[:-1], rolled])
    new = session.lengths[-2] - 1 if len(session.lengths) > 1 else 0
    assume(disagreement(rolled.rows, last.rows)[new - last.start :].any())
    assert disagreement(session.truth, result.rows).any()


def late_capture():
    """A record that starts one index too late, for a stream of four tokens, the last with loss."""
    return [record([5, 6], start=1)], [4], [0] * 4, [0, 1, 2, 3], [0, 0, 0, 1]


def test_the_first_row_has_no_neighbour_and_is_never_borrowed():
    with pytest.raises(MissingRouting, match="no left neighbour") as caught:
        stitch(*late_capture(), substitution_budget=9)
    assert caught.value.position == 0


def gap(loss_mask):
    """Turn 1 starts its capture two indices late: rows 2 and 3 exist nowhere."""
    records = [record([1, 2]), record([8], start=4)]
    return records, [3, 6], [0, 0, 0, 1, 1, 1], range(6), loss_mask


def test_missing_rows_in_front_of_context_repeat_their_left_neighbour_and_are_counted():
    result = stitch(*gap([0, 0, 1, 0, 0, 1]), substitution_budget=2)
    assert result.rows.ravel().tolist() == [1, 2, 2, 2, 8]
    assert result.origin.tolist() == [0, 0, -1, -1, 1]
    assert result.substituted == 2


def test_missing_rows_beyond_the_budget_are_refused():
    with pytest.raises(MissingRouting, match="2 rows are missing with a substitution budget of 1"):
        stitch(*gap([0, 0, 1, 0, 0, 1]), substitution_budget=1)
    with pytest.raises(MissingRouting, match=r"position 2 .*budget of 0"):
        stitch(*gap([0, 0, 1, 0, 0, 1]))


def test_a_missing_row_in_front_of_a_loss_token_is_refused_whatever_the_budget():
    with pytest.raises(MissingRouting, match=r"indices \[4, 5\).*carries loss") as caught:
        stitch(*gap([0, 0, 1, 0, 1, 1]), substitution_budget=9)
    assert (caught.value.position, caught.value.turn) == (3, 1)


def test_records_of_different_models_are_refused():
    other = RoutingRecord(np.zeros((2, 1, 1)).astype(int), RoutingSpec(4, 1, (0,)), 2, 0)
    with pytest.raises(RoutingError, match="turn 1: expected RoutingSpec"):
        stitch([record([1, 2]), other], [3, 5], [0, 0, 0, 1, 1], range(5), [0] * 5)


@pytest.mark.parametrize(
    ("turns", "indices", "mask"),
    [
        ([0, 0], [0, 1, 2], [0, 0, 1]),
        ([], [], []),
        ([0, 0, 1], [0, 1, 2], [0, 0, 1]),
        ([0, 0, 0], [0, 1, 3], [0, 0, 1]),
        ([0, 0, -1], [0, 1, 2], [0, 0, 1]),
    ],
)
def test_offsets_that_disagree_or_point_nowhere_are_refused(turns, indices, mask):
    with pytest.raises(RoutingError):
        stitch([record([1, 2])], [3], turns, indices, mask)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int16, np.int64])
def test_offsets_of_any_integer_dtype_place_the_same_rows(dtype):
    turns, indices = np.array([0, 0, 0, 1, 1], dtype), np.array([0, 1, 2, 3, 4], dtype)
    lengths = np.array([3, 5], dtype)
    result = stitch(
        [record([1, 2]), record([3, 4], start=2)], lengths, turns, indices, [0, 0, 1, 0, 1]
    )
    assert result.rows.ravel().tolist() == [1, 2, 3, 4]
    # turn 1 goes on at index 0 of its own, so turn 0's last token has no row
    with pytest.raises(MissingRouting):
        stitch([record([1, 2])] * 2, np.array([3, 3], dtype), turns, indices % 3, [0] * 5)


def test_a_stream_of_no_token_is_refused_as_such_and_not_for_its_dtype():
    with pytest.raises(RoutingError, match="one length N >= 1"):
        stitch([record([1, 2])], [3], [], [], [])


@pytest.mark.parametrize("name", ["lengths", "source_turn", "source_index"])
def test_offsets_that_are_not_integers_are_refused_by_name(name):
    arrays = {"lengths": [3], "source_turn": [0, 0, 0], "source_index": [0, 1, 2]}
    arrays[name] = np.array(arrays[name], np.float32)
    with pytest.raises(RoutingError, match=f"{name}: expected integers, got dtype float32"):
        stitch([record([1, 2])], **arrays, loss_mask=[0, 0, 1])


@pytest.mark.parametrize(
    ("row", "reason"), [([5, 5], "different experts"), ([1, 8], "below 8")], ids=["twice", "none"]
)
def test_a_malformed_record_is_refused_with_turn_row_and_layer(row, reason):
    spec = RoutingSpec(num_experts=8, top_k=2, moe_layers=(3,))
    records = [RoutingRecord([[[0, 1]]], spec, 0, 0), RoutingRecord([[row]], spec, 1, 0)]
    with pytest.raises(RoutingError, match=reason) as caught:
        stitch(records, [2, 3], [0, 0, 1], [0, 1, 2], [0, 1, 1])
    assert (caught.value.turn, caught.value.row, caught.value.layer) == (1, 0, 3)


def test_one_record_per_turn_is_required():
    with pytest.raises(RoutingError, match="1 for 2 turns"):
        stitch([record([1, 2])], [3, 5], [0, 0, 0], [0, 1, 2], [0, 0, 1])


def test_a_single_token_has_no_rows():
    result = stitch([record([1, 2])], [3], [0], [0], [0])
    assert result.rows.shape == (0, 1, 1)
    assert result.origin.shape == (0,)
