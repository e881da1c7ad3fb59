"""How turns become chunks, one at a time: growth, errors, branches, and the rewriting policy."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabulary import SMALL, TABLE, harness_turns, ids, turn

from t1_tito import (
    Assembler,
    BoundaryCase,
    FinishReason,
    Kind,
    Policy,
    Reason,
    Turn,
    TurnError,
    VersionError,
    assemble,
)
from t1_tito.testing.reference import reference_assemble, rows_of_chunk


def rows(trial):
    return [rows_of_chunk(chunk) for chunk in trial.chunks]


def test_every_array_of_a_chunk_speaks_of_the_same_token():
    (chunk,) = assemble(
        [turn("user a assistant", "b end"), turn("user a assistant b end c", "d")]
    ).chunks
    assert chunk.tokens.tolist() == ids("user a assistant b end c d")
    assert chunk.loss_mask.tolist() == [False, False, False, True, True, False, True]
    assert chunk.logprobs.tolist() == [0, 0, 0, -1, -2, 0, -1]
    assert chunk.source_turn.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert chunk.source_index.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert [Kind(k).name[0] for k in chunk.kind] == list("PPPSSOS")
    with pytest.raises(ValueError, match="read-only"):
        chunk.tokens[0] = 1


def test_a_record_says_where_a_completion_stands():
    trial = assemble([turn("user a", "b end"), turn("user a b end c", "d"), turn("x", "a b")])
    assert [(record.chunk, record.start, record.length) for record in trial.turns] == [
        (0, 2, 4),
        (0, 5, 6),
        (1, 1, 3),
    ]


@given(harness_turns())
def test_chunks_equal_the_ones_laid_token_by_token(turns):
    found, expected = assemble(turns, SMALL), reference_assemble(turns, SMALL)
    assert rows(found) == rows(expected)
    assert found.turns == expected.turns


@given(harness_turns())
def test_adding_never_changes_what_is_there(turns):
    assembler = Assembler(SMALL)
    before = []
    for one in turns:
        assembler.add(one)
        now = [rows_of_chunk(chunk) for chunk in assembler.chunks]
        for old, new in zip(before, now, strict=False):
            assert new[: len(old)] == old
        assert [len(c) for c in now][: len(before) - 1] == [len(c) for c in before][:-1]
        before = now


@given(harness_turns(), st.data())
def test_a_snapshot_goes_on_as_if_nothing_had_happened(turns, data):
    at = data.draw(st.integers(0, len(turns)))
    assembler = Assembler(SMALL)
    for one in turns[:at]:
        assembler.add(one)
    kept = assembler.snapshot()
    assembler.add(turns[0])
    for one in turns[at:]:
        kept.add(one)
    assert rows(kept.finish()) == rows(assemble(turns, SMALL))


def test_a_fork_trains_only_what_it_adds():
    assembler = Assembler(TABLE)
    assembler.add(turn("user a assistant", "b end"))
    branch = assembler.fork()
    assembler.add(turn("user c assistant", "d end", base_length=5))
    branch.add(turn("user d assistant", "c end", base_length=5))
    (ours,), (theirs,) = assembler.finish().chunks, branch.finish().chunks
    assert ours.tokens[ours.loss_mask].tolist() == ids("b end d end")
    assert theirs.tokens.tolist() == ids("user a assistant b end user d assistant c end")
    assert theirs.tokens[theirs.loss_mask].tolist() == ids("c end")
    assert set(theirs.kind[:-2].tolist()) == {Kind.SHARED}


def test_a_forced_fork_opens_a_chunk_although_the_prompt_extends_the_stream():
    assembler = Assembler(TABLE)
    assembler.add(turn("user a", "b"))
    found = assembler.add(turn("user a b c", "d"), fork=True)
    assert (found.case, found.reason) == (BoundaryCase.SPLIT, Reason.FORK)
    assert [len(chunk) for chunk in assembler.chunks] == [3, 5]


def test_closers_that_a_renderer_made_up_are_marked():
    closers = Turn(
        ids("end nl user assistant"), ids("d end"), [-1, -1], 0, 0, "stop",
        base_length=4, synthetic_length=2,
    )  # fmt: skip
    trial = assemble([turn("user a", "b c", finish=FinishReason.LENGTH), closers], TABLE)
    kinds = [Kind(k).name for k in trial.chunks[0].kind[4:]]
    assert kinds == ["SYNTHETIC", "SYNTHETIC", "OBSERVATION", "OBSERVATION", "SAMPLED", "SAMPLED"]


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (turn("a", "end", version=1, received=2), VersionError, "turn 1: sent at weight version 1"),
        (Turn([22, 0, 1, 26], [21], [-1], 0, 0, "stop"), TurnError, r"turn 1, prompt_ids\[3\]: id 26"),
        (Turn([22, 0], [99, 21], [-1, -1], 0, 0, "stop"), TurnError, r"turn 1, completion_ids\[0\]: id 99"),
        (turn("a", "end", base_length=9), TurnError, "turn 1, base_length: 9 ids of a turn that has 4"),
        (turn("user a b", "c d"), TurnError, r"turn 1, completion_ids\[1\]: sampling stopped, but 3"),
    ],
    ids=["versions", "prompt-id", "completion-id", "base", "no-stop-token"],
)  # fmt: skip
def test_a_bad_turn_is_named_and_the_trial_goes_on_without_it(bad, error, message):
    assembler = Assembler(TABLE, stop_ids=ids("end"))
    assembler.add(turn("user a", "b end"))
    with pytest.raises(error, match=message):
        assembler.add(bad)
    assert assembler.turn_count == 1
    assembler.add(turn("user a b end c", "end"))
    (chunk,) = assembler.finish().chunks
    assert chunk.tokens.tolist() == ids("user a b end c end")


def test_a_vocabulary_size_bounds_the_ids_without_a_table():
    assembler = Assembler(vocabulary_size=10)
    with pytest.raises(TurnError, match=r"turn 0, prompt_ids\[1\]: id 10"):
        assembler.add(Turn([1, 10], [1], [-1], 0, 0, "stop"))


def test_what_is_no_turn_is_refused():
    with pytest.raises(TurnError, match="turn 0, turn: expected a Turn, got dict"):
        Assembler().add({"prompt_ids": [1]})


def test_a_trial_without_turns_is_refused():
    with pytest.raises(TurnError, match="at least one turn"):
        Assembler().finish()


def test_rewriting_makes_the_stream_equal_to_what_later_turns_were_shown():
    first = turn("user a assistant think nothink", "b end")
    later = turn("user a assistant b user c assistant think nothink", "d end")
    rewrite = Policy(repair="rewrite")
    (chunk,) = assemble([first, later], TABLE, policy=rewrite).chunks
    shown = [*later.prompt_ids.tolist(), *later.completion_ids.tolist()]
    assert chunk.tokens.tolist() == shown
    assert chunk.tokens[chunk.loss_mask].tolist() == ids("b d end")
    assert chunk.logprobs[chunk.loss_mask].tolist() == [-1, -1, -2]
    assert np.count_nonzero(chunk.logprobs) == 3
    (kept,) = assemble([first, later], TABLE).chunks
    assert kept.tokens[kept.loss_mask].tolist() == ids("b end d end")


def test_a_delta_may_repeat_less_than_the_prompt_shares():
    turns = [turn("user a assistant", "a b end"), turn("ab end c", "d", base_length=3)]
    whole = [turns[0], turn("user a assistant ab end c", "d")]
    assert rows(assemble(turns, TABLE)) == rows(assemble(whole, TABLE))


@pytest.mark.parametrize("copied", [lambda it: pickle.loads(pickle.dumps(it)), copy.deepcopy])
def test_trials_and_assemblers_can_be_copied(copied):
    turns = [turn("user a assistant", "a b end"), turn("user a assistant ab end c", "d")]
    assembler = Assembler(TABLE)
    assembler.add(turns[0])
    twin = copied(assembler)
    twin.add(turns[1])
    trial = copied(twin.finish())
    assert rows(trial) == rows(assemble(turns, TABLE))
    assert (trial.turns, trial.metadata) == (twin.finish().turns, {})
    with pytest.raises(ValueError, match="read-only"):
        trial.chunks[0].tokens[0] = 1


def test_after_rewriting_records_say_where_completions_stand():
    turns = [
        turn("user a assistant think nothink", "b end"),
        turn("user a assistant b end user c assistant think nothink", "d end"),
    ]
    trial = assemble(turns, TABLE, policy=Policy(repair="rewrite"))
    (chunk,) = trial.chunks
    for record, one in zip(trial.turns, turns, strict=True):
        stands = chunk.tokens[record.start : record.start + record.completion_length]
        assert stands.tolist() == one.completion_ids.tolist()


def test_growth_leaves_every_position_in_place():
    rng = np.random.default_rng(0)
    assembler = Assembler()
    expected = []
    for _ in range(40):
        new, sampled = rng.integers(0, 100, 170), rng.integers(0, 100, 30)
        assembler.add(Turn(new, sampled, -np.ones(30), 0, 0, "stop", base_length=assembler.length))
        expected += [*new.tolist(), *sampled.tolist()]
    (chunk,) = assembler.chunks
    assert chunk.tokens.tolist() == expected
    assert chunk.source_index.tolist() == list(range(len(expected)))


@pytest.mark.parametrize(
    "values", [{"max_tail": -1}, {"repair": "trim"}, {"ladder": "printed"}], ids=str
)
def test_a_policy_refuses_values_that_mean_nothing(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        Policy(**values)
