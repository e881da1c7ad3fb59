"""Sources recovered from ids alone."""

import numpy as np
import pytest
from audit_trials import OPENER, STOP, TABLE, THOUGHT, trials, turn
from hypothesis import given

from t1_tito import FinishReason, assemble
from t1_tito.audit import audit
from t1_tito.provenance import recover


def bare(trial):
    return [
        {"tokens": c.tokens.tolist(), "loss_mask": c.loss_mask.astype(int).tolist()}
        for c in trial.chunks
    ]


def recovered(trial, turns, index=0):
    chunk = trial.chunks[index]
    turn_, place = recover(chunk.tokens, chunk.loss_mask, turns)
    return turn_.tolist(), place.tolist()


def test_sources_of_a_plain_trial_are_those_of_the_assembly():
    turns = [turn([1, 2], [3, 4]), turn([1, 2, 3, 4, 5], [6, 7]), turn([9, 8], [7])]
    trial = assemble(turns)
    for index, chunk in enumerate(trial.chunks):
        assert recovered(trial, turns, index) == (
            chunk.source_turn.tolist(),
            chunk.source_index.tolist(),
        )


def test_equal_completions_are_told_apart_by_their_prompts():
    turns = [turn([1], [7, 7]), turn([1, 7, 7, 5], [7, 7]), turn([2, 2, 3, 4], [7, 7])]
    trial = assemble(turns)
    assert recovered(trial, turns, 1)[0] == [2] * 6
    assert recovered(trial, turns, 0)[0] == [0, 0, 0, 1, 1, 1]


def test_a_request_that_was_answered_twice_alike_is_two_turns():
    turns = [turn([1], [7, 8]), turn([1], [7, 8]), turn([1, 7, 8, 5], [6])]
    trial = assemble(turns)
    assert audit(bare(trial), turns).ok
    # while a sample that is there twice is trained twice
    twice = [*bare(trial), bare(trial)[1]]
    assert audit(twice, turns).finding_counts == {"once": 2}


def test_of_turns_with_one_prompt_the_longer_answer_that_fits_is_meant():
    turns = [turn([1, 2], [6, 6]), turn([1, 2], [6, 6, 0, 9])]
    assert audit(bare(assemble(turns)), turns).ok


def test_completions_without_context_between_them_are_separated():
    turns = [turn([1], [2, 3]), turn([1, 2, 3], [4]), turn([1, 2, 3, 4], [5, 6])]
    assert recovered(assemble(turns), turns)[0] == [0, 0, 0, 1, 2, 2]


def test_behind_a_respelling_completions_are_found_by_their_order():
    turns = [
        turn([2, OPENER], [0, 1, 2, STOP]),
        turn([2, OPENER, 5, STOP, 7, OPENER], [3, 2, STOP]),
        turn([2, OPENER, 5, STOP, 7, OPENER, 3, 2, STOP, 7], [3, 2, STOP]),
    ]
    trial = assemble(turns, TABLE)
    assert len(trial.chunks) == 1
    chunk = trial.chunks[0]
    assert recovered(trial, turns) == (chunk.source_turn.tolist(), chunk.source_index.tolist())
    assert audit(bare(trial), turns, token_bytes=TABLE).ok


def test_a_damaged_completion_is_compared_with_its_own_turn():
    turns = [turn([1, 2], [3, 4, 5]), turn([1, 2, 3, 4, 5, 6], [3, 9, 5])]
    (sample,) = bare(assemble(turns))
    sample["tokens"][7] = 8
    report = audit([sample], turns)
    assert [(f.kind.value, f.turn, f.position) for f in report.findings] == [("emission", 1, 7)]
    assert report.emission_drift == 1


def test_a_hole_in_the_loss_is_a_token_that_is_never_trained():
    turns = [turn([1, 2], [3, 4, 5]), turn([1, 2, 3, 4, 5, 6], [7])]
    (sample,) = bare(assemble(turns))
    sample["loss_mask"][3] = 0
    report = audit([sample], turns)
    assert [(f.kind.value, f.turn, f.position) for f in report.findings] == [("once", 0, 3)]


def test_sampled_tokens_that_are_masked_out_are_never_trained():
    # as a stack does that overwrites a drifted answer with what the next prompt has
    turns = [turn([1], [2, 3]), turn([1, 9, 5], [6])]
    sample = {"tokens": [1, 9, 5, 6], "loss_mask": [0, 0, 0, 1]}
    report = audit([sample], turns)
    assert [(f.kind.value, f.turn) for f in report.findings] == [("once", 0)]
    assert report.conditioning_exact == 1


def test_loss_on_what_nobody_sampled_is_emission_drift():
    turns = [turn([1], [2, 3]), turn([1, 2, 3, 5], [6])]
    # the observation carries loss, as when a mask starts a token early
    sample = {"tokens": [1, 2, 3, 5, 6], "loss_mask": [0, 1, 1, 1, 1]}
    report = audit([sample], turns)
    assert ("emission", 3) in [(f.kind.value, f.position) for f in report.findings]
    assert report.emission_drift >= 1


def test_an_unknown_completion_has_no_source():
    source_turn, source_index = recover([1, 8, 8], [0, 1, 1], [turn([1], [2, 3])])
    assert source_turn.tolist() == source_index.tolist() == [-1, -1, -1]
    assert source_turn.dtype == source_index.dtype == np.int32


def test_a_turn_that_sampled_nothing_keeps_its_context():
    turns = [
        turn([1], [2]),
        turn([1, 2, 5], [], FinishReason.ABORT),
        turn([1, 2, 5, 6], [7]),
    ]
    trial = assemble(turns)
    assert recovered(trial, turns)[0] == trial.chunks[0].source_turn.tolist() == [0, 0, 1, 2, 2]


SCAFFOLD = [THOUGHT, 7]


@pytest.mark.parametrize(
    "turns",
    [
        # it opens the sample, and is re-spelled behind
        [
            turn([7, STOP, 3], [3, 9, 6, THOUGHT, THOUGHT, STOP]),
            turn([7, STOP, 3, 3, 9, 6, 12, 12], [], FinishReason.ABORT),
            turn([7, STOP, 3, 3, 2, 0, 6, 12, 12, 4, 9], [STOP]),
        ],
        # it stands behind a scaffold that history lacks
        [
            turn([6, STOP, 0, 3, *SCAFFOLD], [STOP]),
            turn([6, STOP, 0, 3, STOP, 11, 0, *SCAFFOLD], [], FinishReason.ABORT),
            turn([6, STOP, 0, 3, STOP, 11, 0, *SCAFFOLD, 11, 3, 6], [1, STOP]),
        ],
        # it re-spells what was sampled and adds nothing
        [
            turn([OPENER], [8, 9, 0, 0, STOP]),
            turn([OPENER, 8, 2, 0, 0, 0, STOP], [], FinishReason.ABORT),
            turn([OPENER, 8, 2, 0, 0, 0, STOP, STOP, THOUGHT], [9, STOP]),
        ],
    ],
)
def test_a_turn_that_sampled_nothing_behind_a_repaired_boundary_is_no_fault(turns):
    trial = assemble(turns, TABLE)
    assert {"normalized", "retokenized"} & {boundary.case.value for boundary in trial.boundaries}
    report = audit(bare(trial), turns, token_bytes=TABLE)
    assert report.ok, str(report)


@given(trials())
def test_recovered_sources_name_the_very_tokens(turns):
    whole, stream = [], []
    for one in turns:
        stream = stream[: one.base_length] + one.prompt_ids.tolist() + one.completion_ids.tolist()
        whole.append((stream, one.prompt_length))
    for chunk in assemble(turns, TABLE).chunks:
        source_turn, source_index = recover(chunk.tokens, chunk.loss_mask, turns)
        # every sampled token is found; which of several equal completions it is may be open
        assert (source_turn[chunk.loss_mask] >= 0).all()
        for token, loss, of, at in zip(
            chunk.tokens, chunk.loss_mask, source_turn, source_index, strict=True
        ):
            if of >= 0:
                ids, seam = whole[of]
                assert ids[at] == token
                assert not loss or at >= seam


@given(trials())
def test_bare_samples_have_no_emission_drift(turns):
    trial = assemble(turns, TABLE)
    report = audit(bare(trial), turns, token_bytes=TABLE)
    assert report.emission_drift == 0
    assert report.partition.total == report.tokens
