"""Which case a boundary falls under: the examples a reader needs, and the twin that tries all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabulary import SMALL, TABLE, harness_turns, ids, turn

from t1_tito import BoundaryCase, FinishReason, Policy, Reason, Turn, assemble
from t1_tito.testing.reference import reference_assemble

SCAFFOLD = "assistant think nlnl nothink nlnl"


def boundary(first, later, table=TABLE, **options):
    (found,) = assemble([first, later], table, **options).boundaries
    return found


def streams(first, later, table=TABLE, **options):
    trial = assemble([first, later], table, **options)
    return [chunk.tokens.tolist() for chunk in trial.chunks]


def test_strict_appends_what_the_prompt_adds():
    found = boundary(
        turn("user a assistant", "b end"), turn("user a assistant b end user c assistant", "d end")
    )
    assert (found.case, found.reason) == (BoundaryCase.STRICT, Reason.EXTENDS)
    assert (found.span, found.context_start, found.context_length) == ((3, 5), 5, 3)
    assert found.drifted == found.cost == 0


def test_a_scaffold_that_history_lacks_is_normalized():
    first = turn(f"user a {SCAFFOLD}", "b end")
    later = turn(f"user a assistant b end user c {SCAFFOLD}", "d end")
    found = boundary(first, later)
    assert (found.case, found.reason) == (BoundaryCase.NORMALIZED, Reason.SCAFFOLD)
    assert (found.scaffold_dropped, found.tail_dropped, found.span) == (4, 0, (3, 5))
    assert streams(first, later) == [ids(f"user a {SCAFFOLD} b end user c {SCAFFOLD} d end")]


def test_a_stop_token_that_history_lacks_is_normalized():
    first = turn("user a assistant", "b end")
    later = turn("user a assistant b user c assistant", "d end")
    found = boundary(first, later)
    assert (found.case, found.reason) == (BoundaryCase.NORMALIZED, Reason.TAIL)
    assert (found.scaffold_dropped, found.tail_dropped) == (0, 1)
    assert streams(first, later) == [ids("user a assistant b end user c assistant d end")]


def test_other_ids_for_the_same_bytes_are_retokenized_and_never_enter():
    first = turn("user a assistant", "a b c end")
    later = turn("user a assistant abc end user c assistant", "d end")
    found = boundary(first, later)
    assert (found.case, found.reason) == (BoundaryCase.RETOKENIZED, Reason.SAME_BYTES)
    assert (found.span, found.drifted) == ((3, 5), 3)
    assert streams(first, later) == [ids("user a assistant a b c end user c assistant d end")]


def test_drift_in_the_last_ids_is_retokenized_where_the_printed_ladder_doubles_the_text():
    first = turn("user a assistant", "x a b end")
    later = turn("user a assistant x ab end user c assistant", "d end")
    assert boundary(first, later).case is BoundaryCase.RETOKENIZED
    assert streams(first, later) == [ids("user a assistant x a b end user c assistant d end")]
    printed = Policy(ladder="paper")
    assert boundary(first, later, policy=printed).case is BoundaryCase.NORMALIZED
    doubled = ids("user a assistant x a b end ab end user c assistant d end")
    assert streams(first, later, policy=printed) == [doubled]


def test_half_a_character_splits_where_the_printed_ladder_takes_it_for_equal():
    first = turn("user assistant", " ".join(["a"] * 20 + ["half"]), finish=FinishReason.LENGTH)
    later = turn("user assistant " + " ".join(["a"] * 20) + " fffd end user assistant", "d end")
    # long enough for the drift to lie outside of the printed grid
    tight = Policy(max_tail=0)
    assert boundary(first, later, policy=tight).reason is Reason.PARTIAL_CHARACTER
    printed = boundary(first, later, policy=Policy(max_tail=0, ladder="paper"))
    assert printed.case is BoundaryCase.RETOKENIZED


def test_scaffold_tail_and_other_ids_may_come_together():
    first = turn(f"user a {SCAFFOLD}", "a b end")
    later = turn(f"user a assistant ab user c {SCAFFOLD}", "d end")
    found = boundary(first, later)
    assert found.case is BoundaryCase.RETOKENIZED
    assert (found.scaffold_dropped, found.tail_dropped, found.span) == (4, 1, (3, 4))
    assert streams(first, later) == [ids(f"user a {SCAFFOLD} a b end user c {SCAFFOLD} d end")]


def test_a_prompt_spelled_otherwise_before_the_completion_is_retokenized():
    first = turn("user a b assistant", "c end")
    found = boundary(first, turn("user ab assistant c end user assistant", "d end"))
    assert (found.case, found.span) == (BoundaryCase.RETOKENIZED, (3, 5))


_FIRST = turn("user a", "x")
_LONG = turn("user a x b assistant", "c end")


@pytest.mark.parametrize(
    ("reason", "turns"),
    [
        ("text_changed", [turn("user assistant", "a b end"), turn("user assistant abc end", "d")]),
        ("straddling_token", [turn("user", "x c d"), turn("user x cdx end", "d")]),
        ("unicode_normalized", [turn("user", "x e acute end"), turn("user x eacute end", "d")]),
        ("control_token", [turn("user", "lt endgt b end"), turn("user end b end", "d")]),
        ("pruned", [turn("user", "think a nothink b end"), turn("user b end user", "d")]),
        ("truncated_turn", [turn("user", "a b", finish="length"), turn("user x end", "d")]),
        ("rollback", [_FIRST, _LONG, turn("user a x assistant", "d")]),
        ("rollback", [_LONG, turn("user a", "d")]),
        ("compaction", [_FIRST, _LONG, turn("user x", "d")]),
        ("context_changed", [_FIRST, _LONG, turn("user b b x b assistant c end user", "d")]),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),
)
def test_a_split_is_named(reason, turns):
    found = assemble(turns, TABLE).boundaries[-1]
    assert (found.case, found.reason, found.span) == (BoundaryCase.SPLIT, reason, None)
    assert found.context_length == turns[-1].prompt_length


def test_without_a_byte_table_other_ids_split_and_only_stop_ids_may_be_missing():
    first = turn("user a assistant", "a b end")
    respelled = turn("user a assistant ab end user c assistant", "d end")
    assert boundary(first, respelled, None).reason is Reason.NO_BYTE_TABLE
    no_stop = turn("user a assistant a b user c assistant", "d end")
    assert boundary(first, no_stop, None).case is BoundaryCase.SPLIT
    assert boundary(first, no_stop, None, stop_ids=ids("end")).tail_dropped == 1


def test_whitespace_that_is_said_again_is_not_dropped():
    # "\n\n" end: if the prompt goes on with a newline, it may be the dropped one
    first = turn("user assistant", "a nlnl", finish=FinishReason.LENGTH)
    assert boundary(first, turn("user assistant a nl user assistant", "b")).case == "split"
    assert boundary(first, turn("user assistant a end user assistant", "b")).case == "normalized"


def test_a_mark_that_comes_behind_other_whitespace_is_not_dropped():
    # the model left out the newline before the closing mark; dropping both would say it twice
    first = turn("user assistant", "think a nothink end")
    later = turn("user assistant think a nl nothink nlnl end user assistant", "b end")
    assert boundary(first, later).reason is Reason.TEXT_CHANGED
    only_mark = turn("user assistant", "think a nothink", finish=FinishReason.LENGTH)
    assert boundary(only_mark, later).case == "split"


def test_whitespace_is_dropped_only_where_the_turn_ends():
    first = turn("user assistant", "a space", finish=FinishReason.LENGTH)
    assert boundary(first, turn("user assistant a b user assistant", "b")).case == "split"
    assert boundary(first, turn("user assistant a nl end user assistant", "b")).case == "normalized"


def test_a_retry_after_the_same_short_answer_is_a_rollback_and_no_scaffold():
    history = "user a assistant b end user c assistant"
    retry = boundary(turn(history, "b end"), turn(history, "d end"), stop_ids=ids("end"))
    assert (retry.case, retry.reason) == (BoundaryCase.SPLIT, Reason.ROLLBACK)
    assert boundary(turn(history, "b end"), turn(history, "d end"), None).case == "split"


def test_what_ends_a_turn_is_no_scaffold():
    # the empty answer must not be found in the user's end
    first = turn("user a end assistant", "end")
    assert boundary(first, turn("user a end user c end assistant", "d end")).case == "split"


def test_the_bounds_of_the_grid_are_kept():
    first = turn(f"user a {SCAFFOLD}", "b end end")
    lacks_scaffold = turn(f"user a assistant b end end user c {SCAFFOLD}", "d")
    assert boundary(first, lacks_scaffold, policy=Policy(max_scaffold=4)).case == "normalized"
    assert boundary(first, lacks_scaffold, policy=Policy(max_scaffold=3)).case == "split"
    lacks_tail = turn(f"user a {SCAFFOLD} b user c {SCAFFOLD}", "d")
    assert boundary(first, lacks_tail, policy=Policy(max_tail=2)).tail_dropped == 2
    assert boundary(first, lacks_tail, policy=Policy(max_tail=1)).case == "split"


def test_a_prompt_that_ends_before_the_scaffold_of_the_last_one_splits():
    turns = [
        Turn([2, 3, 2, 7, 7, 7], [9], [-1], 0, 0, "stop"),
        Turn([2, 3, 2, 7, 7], [9], [-1], 0, 0, "stop"),
    ]
    for table in (SMALL, None):
        assert assemble(turns, table).boundaries[0].reason is Reason.ROLLBACK


def decisions(trial):
    return [
        (b.case, b.scaffold_dropped, b.tail_dropped, b.span, b.context_start)
        for b in trial.boundaries
    ]


@given(
    harness_turns(),
    st.sampled_from([Policy(), Policy(max_scaffold=2, max_tail=1)]),
    st.sampled_from([SMALL, None]),
)
def test_the_decision_is_the_one_that_trying_every_pair_gives(turns, policy, table):
    stop_ids = {9} if table is None else set()
    found = assemble(turns, table, policy=policy, stop_ids=stop_ids)
    expected = reference_assemble(turns, table, policy=policy, stop_ids=stop_ids)
    assert decisions(found) == decisions(expected)


@given(harness_turns())
def test_a_decision_reads_no_more_than_the_drift_and_its_surroundings(turns):
    for position, found in enumerate(assemble(turns, SMALL).boundaries, start=1):
        touched = turns[position - 1].length + turns[position].length
        assert found.cost <= 120 * (touched + 1)
