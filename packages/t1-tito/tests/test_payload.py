import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from vocabulary import SMALL, TABLE, harness_turns, turn

from t1_tito import PayloadError, assemble, gather


def labels(turns):
    """One row per index of T that names its turn and index."""
    return [
        np.stack([np.full(one.length, number), np.arange(one.length)], axis=1)
        for number, one in enumerate(turns)
    ]


@given(harness_turns())
def test_rows_follow_their_tokens(turns):
    for chunk in assemble(turns, SMALL).chunks:
        gathered = gather(chunk, labels(turns))
        assert np.array_equal(gathered.rows[:, 0], chunk.source_turn)
        assert np.array_equal(gathered.rows[:, 1], chunk.source_index)
        assert not gathered.placeholders.size


@given(harness_turns())
def test_rows_that_start_later_are_shifted(turns):
    (*_, chunk) = assemble(turns, SMALL).chunks
    # rows from where the turn's own prompt ids start; what lies before has none
    starts = [one.base_length for one in turns]
    cut = [rows[start:] for rows, start in zip(labels(turns), starts, strict=True)]
    gathered = gather(chunk, cut, missing="fill", fill=-1, first_index=starts)
    present = chunk.source_index >= np.array(starts)[chunk.source_turn]
    assert np.array_equal(gathered.placeholders, np.flatnonzero(~present))
    assert np.array_equal(gathered.rows[present, 1], chunk.source_index[present])
    assert (gathered.rows[~present] == -1).all()


def captures(turns):
    """Routing rows as engines return them: the last token of T predicts nothing and has none."""
    return [rows[:-1] for rows in labels(turns)]


def drifted_turns():
    return [
        turn("user a", "a b end"),
        turn("user a ab end c", "d end"),
        turn("user a ab end c d end x", "b"),
    ]


def test_equation_14_copies_a_neighbour_only_where_the_next_token_has_no_loss():
    turns = drifted_turns()
    (chunk,) = assemble(turns, TABLE).chunks
    with pytest.raises(PayloadError, match="no row for index 4"):
        gather(chunk, captures(turns))
    gathered = gather(chunk, captures(turns), missing="neighbour")
    # the last token of each turn; the row before stands in
    assert gathered.placeholders.tolist() == [4, 7, len(chunk) - 1]
    assert gathered.rows[4].tolist() == gathered.rows[3].tolist()
    assert all(not chunk.loss_mask[j + 1] for j in gathered.placeholders[:-1])


def test_the_last_row_of_a_turn_is_the_next_turns_where_that_repeats_every_id():
    turns = [
        turn("user a", "b", finish="abort"),
        turn("user a b", "c end"),
        turn("user a b c end x", "d"),
    ]
    trial = assemble(turns, TABLE)
    (chunk,) = trial.chunks
    with pytest.raises(PayloadError, match="the next position carries loss"):
        gather(chunk, captures(turns), missing="neighbour")
    gathered = gather(chunk, captures(turns), missing="neighbour", boundaries=trial.boundaries)
    # the token behind which the next turn goes on at once, and the last token of all
    assert gathered.rows[2].tolist() == [1, 2]
    assert gathered.placeholders.tolist() == [len(chunk) - 1]


def test_a_row_behind_a_repaired_boundary_stays_a_placeholder():
    turns = drifted_turns()
    trial = assemble(turns, TABLE)
    (chunk,) = trial.chunks
    gathered = gather(chunk, captures(turns), missing="neighbour", boundaries=trial.boundaries)
    assert gathered.placeholders.tolist() == [4, len(chunk) - 1]


@pytest.mark.parametrize(
    ("payloads", "options", "message"),
    [
        ([np.float32(1)], {}, "expected rows"),
        ([np.zeros((3, 2))], {"first_index": [0, 0]}, "2 values of first_index for 1 payloads"),
        ([np.zeros((2, 2))], {"missing": "fill", "fill": [1, 2, 3]}, "fill= is no row"),
    ],
)
def test_malformed_payloads_are_named(payloads, options, message):
    (chunk,) = assemble([turn("a b", "c")]).chunks
    with pytest.raises(PayloadError, match=message):
        gather(chunk, payloads, **options)
    assert gather(chunk, [[[1], [2], [3]]], first_index=np.array([0])).rows.tolist() == [
        [1],
        [2],
        [3],
    ]


def test_a_row_that_predicts_a_sampled_token_is_never_copied():
    turns = drifted_turns()
    (chunk,) = assemble(turns, TABLE).chunks
    short = captures(turns)
    short[0] = short[0][:-1]
    with pytest.raises(PayloadError, match="the next position carries loss") as caught:
        gather(chunk, short, missing="neighbour")
    assert (caught.value.turn, caught.value.position) == (0, 3)


@given(harness_turns(), st.data())
def test_placeholders_of_equation_14_lie_outside_of_the_loss(turns, data):
    (*_, chunk) = assemble(turns, SMALL).chunks
    kept = [rows[: data.draw(st.integers(0, len(rows)))] for rows in labels(turns)]
    try:
        gathered = gather(chunk, kept, missing="neighbour")
    except PayloadError as error:
        position = error.position
        have = np.array([len(rows) for rows in kept])[chunk.source_turn]
        absent = chunk.source_index >= have
        assert absent[position]
        alone = absent.all()
        assert alone or chunk.loss_mask[position + 1]
    else:
        predicts_loss = np.append(chunk.loss_mask[1:], False)
        assert not predicts_loss[gathered.placeholders].any()


def test_the_budget_counts_placeholders():
    turns = drifted_turns()
    (chunk,) = assemble(turns, TABLE).chunks
    assert gather(chunk, captures(turns), missing="neighbour", budget=3).placeholders.size == 3
    with pytest.raises(PayloadError, match="3 positions have no row of their own, budget=2"):
        gather(chunk, captures(turns), missing="neighbour", budget=2)


def test_a_payload_without_any_row_has_no_neighbours():
    turns = [turn("a b", "", finish="length")]
    (chunk,) = assemble(turns).chunks
    with pytest.raises(PayloadError, match="no position has a row"):
        gather(chunk, [np.zeros((0, 2))], missing="neighbour")


def test_fill_and_its_mode_belong_together():
    turns = drifted_turns()
    (chunk,) = assemble(turns, TABLE).chunks
    for options in ({"missing": "fill"}, {"fill": 0}):
        with pytest.raises(PayloadError, match="belong together"):
            gather(chunk, labels(turns), **options)


@given(harness_turns())
def test_payloads_must_exist_and_agree(turns):
    (*_, chunk) = assemble(turns, SMALL).chunks
    last = int(chunk.source_turn[-1])
    with pytest.raises(PayloadError, match="missing"):
        gather(chunk, labels(turns)[:last])
    assume(np.unique(chunk.source_turn).size > 1)
    mixed = labels(turns)
    mixed[last] = mixed[last].astype(np.float32)
    with pytest.raises(PayloadError, match="of float32"):
        gather(chunk, mixed)
