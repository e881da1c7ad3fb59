import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_tito import FidelityError, FinishReason, Turn, assemble, check_trial, emission_drift
from t1_tito.testing import conversations


@pytest.fixture
def trial():
    turns = [
        Turn([1, 2], [3, 4], [-0.1, -0.2], 0, 0, FinishReason.STOP),
        Turn([1, 2, 3, 4, 5], [6, 7], [-0.3, -0.4], 0, 0, FinishReason.STOP),
        Turn([9, 8], [7], [-0.5], 0, 0, FinishReason.STOP),
    ]
    return assemble(turns)


def planted(trial, index, **arrays):
    """The trial with arrays of one chunk replaced."""
    chunks = list(trial.chunks)
    chunks[index] = dataclasses.replace(chunks[index], **arrays)
    return dataclasses.replace(trial, chunks=tuple(chunks))


def changed(array, position, value):
    copy = array.copy()
    copy[position] = value
    return copy


def broken(trial):
    with pytest.raises(FidelityError) as caught:
        check_trial(trial)
    return caught.value.invariant, caught.value.chunk, caught.value.position


def test_an_intact_trial_passes(trial):
    check_trial(trial)


def test_a_replaced_sampled_id_is_found(trial):
    fault = planted(trial, 0, tokens=changed(trial.chunks[0].tokens, 3, 99))
    assert broken(fault) == ("emission", 0, 3)
    assert emission_drift(fault) == 1


def test_a_replaced_context_id_is_found(trial):
    fault = planted(trial, 0, tokens=changed(trial.chunks[0].tokens, 4, 99))
    assert broken(fault) == ("context", 0, 4)
    assert emission_drift(fault) == 0


def test_a_mask_shifted_by_one_is_found(trial):
    fault = planted(trial, 0, loss_mask=np.roll(trial.chunks[0].loss_mask, 1))
    assert broken(fault) == ("provenance", 0, 0)
    assert emission_drift(fault) > 0


def test_log_probabilities_shifted_by_one_are_found(trial):
    fault = planted(trial, 0, logprobs=np.roll(trial.chunks[0].logprobs, -1))
    assert broken(fault)[0] == "logprob"


@pytest.mark.parametrize("value", [-1.0, -0.0, np.nan])
def test_a_log_probability_on_context_is_found(trial, value):
    fault = planted(trial, 1, logprobs=changed(trial.chunks[1].logprobs, 0, value))
    assert broken(fault) == ("logprob", 1, 0)


def test_a_duplicated_chunk_is_found(trial):
    fault = dataclasses.replace(trial, chunks=(*trial.chunks, trial.chunks[0]))
    assert broken(fault) == ("once", None, None)


def test_a_duplicated_turn_is_found(trial):
    one = trial.chunks[1]
    doubled = {
        field.name: np.concatenate([getattr(one, field.name)] * 2)
        for field in dataclasses.fields(one)
    }
    assert broken(planted(trial, 1, **doubled))[0] == "once"


def test_a_dropped_chunk_is_found(trial):
    fault = dataclasses.replace(trial, chunks=trial.chunks[:1])
    assert broken(fault) == ("once", None, None)


def test_a_stream_without_part_of_its_context_is_found(trial):
    kept = np.arange(len(trial.chunks[0])) != 1
    shortened = {
        field.name: getattr(trial.chunks[0], field.name)[kept]
        for field in dataclasses.fields(trial.chunks[0])
    }
    assert broken(planted(trial, 0, **shortened)) == ("conditioning", 0, 0)


def test_a_completion_that_is_trained_under_another_prompt_is_found():
    first = Turn([1, 2], [3], [-0.1], 0, 0, FinishReason.STOP)
    turns = [
        Turn(prompt, [5], [-0.2], 0, 0, FinishReason.STOP)
        for prompt in ([1, 9, 3, 4], [1, 2, 3, 4])
    ]
    trial, other = (assemble([first, second]) for second in turns)
    assert broken(dataclasses.replace(trial, chunks=other.chunks)) == ("conditioning", 0, 3)


def test_sampled_tokens_of_one_id_may_not_change_places():
    trial = assemble([Turn([1], [7, 7], [-1.0, -2.0], 0, 0, FinishReason.STOP)])
    (chunk,) = trial.chunks
    swapped = [0, 2, 1]
    fault = planted(
        trial, 0, source_index=chunk.source_index[swapped], logprobs=chunk.logprobs[swapped]
    )
    assert broken(fault) == ("conditioning", 0, 0)


def test_an_empty_trial_or_chunk_is_found(trial):
    assert broken(dataclasses.replace(trial, chunks=())) == ("alignment", None, None)
    assert broken(dataclasses.replace(trial, turns=())) == ("alignment", None, None)
    empty = {
        field.name: getattr(trial.chunks[1], field.name)[:0]
        for field in dataclasses.fields(trial.chunks[1])
    }
    assert broken(planted(trial, 1, **empty)) == ("alignment", 1, None)


@pytest.mark.parametrize("turn", [3, -1])
def test_a_loss_position_of_a_turn_that_does_not_exist_counts_as_drift(trial, turn):
    # the last token of all, so that counting from the end would arrive at the same one
    fault = planted(trial, 1, source_turn=changed(trial.chunks[1].source_turn, 2, turn))
    assert emission_drift(fault) == 1
    assert broken(fault) == ("provenance", 1, 2)


def test_a_source_in_front_of_its_turn_is_not_the_end_of_the_turn_before():
    turns = [Turn(prompt, [7], [-0.5], 0, 0, FinishReason.STOP) for prompt in ([1], [1, 7])]
    trial = assemble(turns)
    fault = planted(trial, 0, source_index=changed(trial.chunks[0].source_index, 2, -1))
    assert emission_drift(fault) == 1
    assert broken(fault) == ("provenance", 0, 2)


class CountedTurns(tuple):
    """Turns that count how often they are gone through."""

    passes = 0

    def __iter__(self):
        self.passes += 1
        return super().__iter__()


@pytest.mark.parametrize("check", [check_trial, emission_drift])
def test_the_turns_are_gone_through_equally_often_for_one_chunk_and_for_many(check):
    passes = set()
    for count in (1, 30):
        turns = [Turn([9, 8], [7], [-0.5], 0, 0, FinishReason.STOP)] * count
        trial = assemble(turns)
        counted = CountedTurns(turns)
        check(dataclasses.replace(trial, turns=counted))
        assert len(trial.chunks) == count
        passes.add(counted.passes)
    assert len(passes) == 1


def test_an_array_of_another_length_or_dtype_is_found(trial):
    assert broken(planted(trial, 0, logprobs=trial.chunks[0].logprobs[:-1]))[0] == "alignment"
    assert broken(planted(trial, 0, tokens=trial.chunks[0].tokens.astype(np.int64)))[0] == (
        "alignment"
    )


def test_provenance_outside_the_turns_is_found(trial):
    chunk = trial.chunks[0]
    assert broken(planted(trial, 0, source_turn=changed(chunk.source_turn, 0, 3))) == (
        "provenance",
        0,
        0,
    )
    # position 4 is context, 6 was sampled
    for position, index in ((4, 70), (4, -1), (6, 70)):
        fault = planted(trial, 0, source_index=changed(chunk.source_index, position, index))
        assert broken(fault) == ("provenance", 0, position)


@given(conversations(), st.data())
def test_any_single_changed_token_is_found(turns, data):
    trial = assemble(turns)
    index = data.draw(st.integers(0, len(trial.chunks) - 1))
    tokens = trial.chunks[index].tokens
    position = data.draw(st.integers(0, tokens.size - 1))
    fault = planted(trial, index, tokens=changed(tokens, position, tokens[position] ^ 1))
    with pytest.raises(FidelityError):
        check_trial(fault)
    assert emission_drift(fault) == int(trial.chunks[index].loss_mask[position])
