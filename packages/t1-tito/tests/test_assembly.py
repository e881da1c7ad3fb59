import numpy as np
import pytest
from hypothesis import given

from t1_tito import (
    BoundaryCase,
    FinishReason,
    Turn,
    TurnError,
    VersionError,
    assemble,
    check_trial,
    emission_drift,
)
from t1_tito.testing import conversations


def turn(prompt, completion, version=0, received=None):
    logprobs = [-float(token) for token in completion]
    received = version if received is None else received
    return Turn(prompt, completion, logprobs, version, received, FinishReason.STOP)


def naive_chunks(turns):
    """Token by token, in lists: the definition the vectorised assembly must equal."""
    chunks = []
    for number, one in enumerate(turns):
        stream = [row[0] for row in chunks[-1]] if chunks else []
        prompt, completion = one.prompt_ids.tolist(), one.completion_ids.tolist()
        if not chunks or prompt[: len(stream)] != stream:
            chunks.append([])
            stream = []
        for index in range(len(stream), len(prompt)):
            chunks[-1].append((prompt[index], False, 0.0, number, index))
        for index, token in enumerate(completion):
            row = (token, True, float(one.logprobs[index]), number, len(prompt) + index)
            chunks[-1].append(row)
    return chunks


def test_a_prompt_that_extends_the_stream_adds_only_its_new_context():
    trial = assemble([turn([1, 2], [3]), turn([1, 2, 3, 4], [5, 6])])
    (chunk,) = trial.chunks
    assert chunk.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert chunk.loss_mask.tolist() == [False, False, True, False, True, True]
    assert chunk.logprobs.tolist() == [0, 0, -3, 0, -5, -6]
    assert chunk.source_turn.tolist() == [0, 0, 0, 1, 1, 1]
    assert chunk.source_index.tolist() == [0, 1, 2, 3, 4, 5]
    (boundary,) = trial.boundaries
    assert (boundary.turn_index, boundary.case, boundary.context_length) == (
        1,
        BoundaryCase.STRICT,
        1,
    )


def test_a_changed_prompt_opens_a_new_chunk_and_says_where_it_left_the_stream():
    trial = assemble([turn([1, 2], [3]), turn([1, 2, 9, 4], [5])])
    assert [chunk.tokens.tolist() for chunk in trial.chunks] == [[1, 2, 3], [1, 2, 9, 4, 5]]
    assert trial.chunks[1].loss_mask.tolist() == [False] * 4 + [True]
    assert trial.boundaries[0].case is BoundaryCase.SPLIT
    assert trial.boundaries[0].context_length == 4
    assert "index 2, in the earlier turn's completion: 9 instead of 3" in (
        trial.boundaries[0].reason
    )


def test_a_shortened_prompt_splits_and_says_so():
    trial = assemble([turn([1, 2], [3]), turn([1, 2], [3])])
    assert "ends at index 2 of a stream of 3" in trial.boundaries[0].reason


@given(conversations())
def test_every_drawn_trial_keeps_all_invariants(turns):
    trial = assemble(turns)
    check_trial(trial)
    assert emission_drift(trial) == 0


@given(conversations())
def test_the_assembly_equals_its_naive_definition(turns):
    chunks = assemble(turns).chunks
    rows = [
        list(
            zip(
                chunk.tokens.tolist(),
                chunk.loss_mask.tolist(),
                chunk.logprobs.tolist(),
                chunk.source_turn.tolist(),
                chunk.source_index.tolist(),
                strict=True,
            )
        )
        for chunk in chunks
    ]
    assert rows == naive_chunks(turns)


@given(conversations(splits=False))
def test_without_splits_one_chunk_reproduces_the_last_turn(turns):
    trial = assemble(turns)
    (chunk,) = trial.chunks
    assert all(boundary.case is BoundaryCase.STRICT for boundary in trial.boundaries)
    assert np.array_equal(chunk.tokens, turns[-1].ids)


@given(conversations())
def test_boundaries_and_chunks_account_for_every_token(turns):
    trial = assemble(turns)
    splits = sum(boundary.case is BoundaryCase.SPLIT for boundary in trial.boundaries)
    assert len(trial.chunks) == 1 + splits
    context = turns[0].prompt_ids.size + sum(b.context_length for b in trial.boundaries)
    sampled = sum(one.completion_ids.size for one in turns)
    assert sum(len(chunk) for chunk in trial.chunks) == context + sampled


def test_chunks_are_read_only():
    (chunk,) = assemble([turn([1], [2])]).chunks
    with pytest.raises(ValueError, match="read-only"):
        chunk.tokens[0] = 5


def test_a_turn_that_spans_two_versions_is_refused_by_name():
    with pytest.raises(VersionError, match="turn 1: sent at weight version 3, answered at 4"):
        assemble([turn([1], [2], version=3), turn([1, 2, 3], [4], version=3, received=4)])


def test_turns_of_one_trial_may_carry_different_versions():
    check_trial(assemble([turn([1], [2], version=3), turn([1, 2], [4], version=4)]))


def test_no_turn_is_an_error():
    with pytest.raises(TurnError, match="at least one turn"):
        assemble([])
