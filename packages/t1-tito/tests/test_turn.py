import copy
import pickle

import numpy as np
import pytest

from t1_tito import FinishReason, Turn, TurnError


def turn(**changes):
    fields = {
        "prompt_ids": [1, 2],
        "completion_ids": [3, 4, 5],
        "logprobs": [-0.1, -0.2, -0.3],
        "version_sent": 7,
        "version_received": 7,
        "finish_reason": FinishReason.STOP,
    }
    return Turn(**(fields | changes))


def test_lists_become_read_only_arrays_of_the_documented_dtypes():
    built = turn()
    assert built.prompt_ids.dtype == built.completion_ids.dtype == np.int32
    assert built.logprobs.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        built.completion_ids[0] = 9


def test_arrays_of_the_right_dtype_are_not_copied():
    prompt = np.arange(4, dtype=np.int32)
    assert np.shares_memory(turn(prompt_ids=prompt).prompt_ids, prompt)
    assert prompt.flags.writeable


def test_a_delta_counts_the_ids_that_it_does_not_repeat():
    whole, delta = turn(), turn(base_length=7)
    assert (whole.prompt_length, whole.length) == (2, 5)
    assert (delta.prompt_length, delta.length) == (9, 12)
    assert turn(prompt_ids=[], base_length=7).prompt_length == 7


@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.ABORT])
def test_an_unfinished_turn_may_have_sampled_nothing(finish):
    assert turn(completion_ids=[], logprobs=[], finish_reason=finish).length == 2


@pytest.mark.parametrize(
    ("changes", "field", "position"),
    [
        ({"prompt_ids": []}, "prompt_ids", None),
        ({"prompt_ids": [1, -1]}, "prompt_ids", 1),
        ({"prompt_ids": [[1], [2]]}, "prompt_ids", None),
        ({"prompt_ids": [[1], [2, 3]]}, "prompt_ids", None),
        ({"completion_ids": [3, 4, 2**31]}, "completion_ids", 2),
        ({"completion_ids": [3, 4.0, 5]}, "completion_ids", 1),
        ({"completion_ids": [3, 4, None]}, "completion_ids", 2),
        ({"completion_ids": (3, 4, "5")}, "completion_ids", 2),
        ({"completion_ids": [3, 4, 2**70]}, "completion_ids", None),
        ({"completion_ids": np.array([3.0, 4.0, 5.0])}, "completion_ids", None),
        ({"completion_ids": [True, False, True]}, "completion_ids", 0),
        ({"completion_ids": [], "logprobs": []}, "completion_ids", None),
        ({"logprobs": [-0.1]}, "logprobs", None),
        ({"logprobs": ["a", "b", "c"]}, "logprobs", 0),
        ({"logprobs": [-0.1, None, -0.3]}, "logprobs", 1),
        ({"logprobs": [-0.1, float("nan"), -0.3]}, "logprobs", 1),
        ({"logprobs": [-0.1, float("inf"), float("-inf")]}, "logprobs", 1),
        ({"completion_ids": [3, -4, 5]}, "completion_ids", 1),
        ({"version_sent": -1}, "version_sent", None),
        ({"version_sent": True}, "version_sent", None),
        ({"base_length": -1}, "base_length", None),
        ({"base_length": 1.5}, "base_length", None),
        ({"synthetic_length": 3}, "synthetic_length", None),
        ({"version_received": "7"}, "version_received", None),
        ({"finish_reason": "done"}, "finish_reason", None),
        ({"finish_reason": []}, "finish_reason", None),
        ({"logprobs": [-0.1, 10**400, -0.2]}, "logprobs", None),
    ],
)
def test_a_malformed_field_is_named_with_its_position(changes, field, position):
    with pytest.raises(TurnError) as caught:
        turn(**changes)
    assert (caught.value.field, caught.value.position) == (field, position)
    assert field in str(caught.value)


def test_a_turn_knows_its_largest_id():
    assert turn(prompt_ids=[9, 2]).largest_id == 9
    assert turn(prompt_ids=np.array([1], np.int64)).largest_id == 5
    empty = turn(
        prompt_ids=[], completion_ids=[], logprobs=[], base_length=1, finish_reason="abort"
    )
    assert empty.largest_id == -1


def test_errors_survive_pickling():
    error = TurnError("prompt_ids", 3, "expected an id", turn=2)
    assert (
        str(pickle.loads(pickle.dumps(error)))
        == str(error)
        == "turn 2, prompt_ids[3]: expected an id"
    )


@pytest.mark.parametrize("copied", [lambda t: pickle.loads(pickle.dumps(t)), copy.deepcopy])
def test_a_copied_turn_is_the_same_and_read_only(copied):
    twin = copied(turn(base_length=4, synthetic_length=1))
    assert twin.completion_ids.tolist() == [3, 4, 5]
    assert (twin.base_length, twin.synthetic_length, twin.largest_id) == (4, 1, 5)
    with pytest.raises(ValueError, match="read-only"):
        twin.completion_ids[0] = 9


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, ">i4"])
def test_ids_of_any_integer_dtype_are_converted(dtype):
    assert turn(completion_ids=np.array([3, 4, 5], dtype)).completion_ids.tolist() == [3, 4, 5]
    assert turn(completion_ids=list(np.array([3, 4, 5], dtype))).completion_ids.dtype == np.int32
