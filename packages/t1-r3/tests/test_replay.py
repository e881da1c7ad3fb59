import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_r3 import ReplayMismatch, RoutingError, assert_replayed, disagreement
from t1_r3.testing import sessions


@given(sessions(), st.randoms(use_true_random=False))
def test_the_order_of_experts_does_not_matter(session, random):
    order = list(range(session.spec.top_k))
    random.shuffle(order)
    assert not disagreement(session.truth, session.truth[..., order].astype(np.int64)).any()
    assert_replayed(session.truth, session.truth[..., order])


@given(sessions(), st.data())
def test_one_other_expert_is_found_at_its_row_and_layer(session, data):
    row, layer, slot = (data.draw(st.integers(0, size - 1)) for size in session.truth.shape)
    used = session.truth.copy()
    spare = set(range(session.spec.num_experts)) - set(used[row, layer].tolist())
    used[row, layer, slot] = min(spare)
    with pytest.raises(ReplayMismatch) as caught:
        assert_replayed(session.truth, used)
    assert (caught.value.position, caught.value.layer_index) == (row, layer)
    assert np.argwhere(disagreement(session.truth, used)).tolist() == [[row, layer]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 3), (1, 3, 4)])
def test_selections_of_different_shapes_are_refused(shape):
    with pytest.raises(RoutingError, match="one shape"):
        disagreement(np.zeros((2, 3, 4), int), np.zeros(shape, int))
