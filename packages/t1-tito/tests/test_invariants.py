"""Every invariant holds for what this package makes, and its check fires on a planted fault."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_tito import Assembler, BoundaryCase, FidelityError, Policy, Turn, assemble, gather
from t1_tito.errors import TitoError
from t1_tito.session import Session
from t1_tito.testing import (
    FAULTS,
    INVARIANTS,
    TemplateQuirks,
    TinyChat,
    as_delta,
    check_append,
    check_bos,
    check_boundary,
    check_bytes,
    check_cond,
    check_emit,
    check_guard,
    check_idempotent,
    check_inert,
    check_ladder,
    check_logp,
    check_nocopy,
    check_once,
    check_rows,
    check_split,
    check_stream,
    check_synth,
    check_template,
    dialogues,
    replays,
    simulated_trials,
    texts,
    tiny_chats,
)
from t1_tito.testing.reference import reference_assemble, rows_of_chunk
from t1_tito.testing.simulator import stop_id_of


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.invariant}: {fault.planted}")
def test_a_check_fires_on_its_fault_and_is_silent_without(fault):
    fault.run(False)
    with pytest.raises(FidelityError) as caught:
        fault.run(True)
    assert caught.value.invariant == fault.invariant


def test_every_invariant_has_a_fault():
    assert {fault.invariant for fault in FAULTS} == set(INVARIANTS)


@given(simulated_trials())
def test_assembled_trials_hold_every_invariant_of_tokens_and_loss(trial):
    turns, table = trial.turns, trial.chat.token_bytes
    assembled = assemble(turns, table)
    check_emit(assembled, turns)
    check_once(assembled, turns)
    check_logp(assembled, turns)
    check_cond(assembled, turns)
    check_split(assembled, turns)
    check_synth(assembled, turns)


@given(simulated_trials())
def test_assembled_trials_hold_every_invariant_of_bytes(trial):
    turns, table = trial.turns, trial.chat.token_bytes
    assembled = assemble(turns, table)
    check_nocopy(assembled, turns, table)
    check_bytes(assembled, turns, table)
    check_ladder(assembled, turns, table)
    check_guard(assembled, turns, table)
    check_boundary(assembled, turns, table)


@given(simulated_trials())
def test_the_naive_twin_gives_the_same_trial(trial):
    turns, table = trial.turns, trial.chat.token_bytes
    same_trial(assemble(turns, table), reference_assemble(turns, table))


@given(simulated_trials())
def test_the_naive_twin_gives_the_same_trial_without_a_byte_table(trial):
    stops = {stop_id_of(trial.chat)}
    same_trial(
        assemble(trial.turns, stop_ids=stops), reference_assemble(trial.turns, stop_ids=stops)
    )


REWRITE = Policy(repair="rewrite")


@given(simulated_trials())
def test_the_naive_twin_gives_the_same_trial_where_the_stream_is_rewritten(trial):
    turns, table = trial.turns, trial.chat.token_bytes
    same_trial(
        assemble(turns, table, policy=REWRITE), reference_assemble(turns, table, policy=REWRITE)
    )


TINY = TinyChat().tokenizer
OPENS, STOP = TINY.id_of("<|im_start|>"), TINY.id_of("<|im_end|>")


@pytest.mark.parametrize("assembled", [assemble, reference_assemble])
def test_a_rewritten_stream_is_what_the_later_prompt_shows(assembled):
    # the later prompt lacks the line break before the completion, and the stop token behind it
    first, later = [112, OPENS, 10], [112, OPENS, 97, OPENS, 10]
    turns = [
        Turn(first, [97, STOP], [-0.5, -0.25], 0, 0, "stop"),
        Turn(later, [98, STOP], [-0.125, -1.0], 0, 0, "stop"),
    ]
    trial = assembled(turns, TINY.token_bytes, policy=REWRITE)
    (chunk,) = trial.chunks
    assert trial.boundaries[0].case is BoundaryCase.NORMALIZED
    assert chunk.tokens.tolist() == [*later, 98, STOP]
    assert chunk.loss_mask.tolist() == [False, False, True, False, False, True, True]
    assert [turn.start for turn in trial.turns] == [2, 5]
    (kept,) = assembled(turns, TINY.token_bytes).chunks
    assert kept.tokens.tolist() == [*first, 97, STOP, OPENS, 10, 98, STOP]


@pytest.mark.parametrize("assembled", [assemble, reference_assemble])
def test_a_scaffold_longer_than_what_the_last_turn_added_stays(assembled):
    opening = [112, OPENS, 10]
    turns = [
        Turn(opening, [97, 32], [-0.5, -0.25], 0, 0, "length"),
        Turn([*opening, 97, 32, 10], [98], [-0.5], 0, 0, "length"),
        # of the scaffold that it lacks, the second turn added the line break only
        Turn([*opening, 97, 98, 99, 32, 10], [100], [-0.5], 0, 0, "length"),
    ]
    trial = assembled(turns, TINY.token_bytes, policy=REWRITE)
    assert trial.boundaries[1].scaffold_dropped == 2
    (chunk,) = trial.chunks
    assert chunk.tokens.tolist() == [*opening, 97, 32, 10, 98, 99, 32, 10, 100]


def same_trial(ours, reference):
    rows = [[rows_of_chunk(chunk) for chunk in trial.chunks] for trial in (ours, reference)]
    assert rows[0] == rows[1]
    for left, right in zip(ours.boundaries, reference.boundaries, strict=True):
        assert (left.case, left.span) == (right.case, right.span)
        assert (left.scaffold_dropped, left.tail_dropped) == (
            right.scaffold_dropped,
            right.tail_dropped,
        )
    assert ours.turns == reference.turns


@given(simulated_trials())
def test_an_assembler_holds_every_invariant_of_streams(trial):
    def make():
        return Assembler(trial.chat.token_bytes)

    check_append(make, trial.turns)
    check_stream(make, trial.turns)


@given(st.data())
def test_a_harness_that_replays_ids_leaves_one_chunk(data):
    chat = data.draw(tiny_chats())
    turns = data.draw(replays(chat))
    check_idempotent(assemble(turns, chat.token_bytes))
    check_idempotent(assemble(as_delta(turns)))


@given(simulated_trials(), st.integers(0, 2))
def test_gathered_rows_are_their_tokens_own_or_a_neighbours_without_loss(trial, missing):
    assembled = assemble(trial.turns, trial.chat.token_bytes)
    rows = [
        np.arange(turn.length - 1 - missing)[:, None] + 1000 * i
        for i, turn in enumerate(trial.turns)
    ]
    for chunk in assembled.chunks:
        try:
            gathered = gather(chunk, rows, missing="neighbour")
        except TitoError:
            assert missing  # a row that predicts a sampled token is not there
            continue
        check_rows(chunk, rows, gathered)


_FAITHFUL = st.builds(
    TemplateQuirks, reserialise=st.booleans(), separator=st.sampled_from(["\n", ""])
)


@given(st.data())
def test_a_template_that_repeats_history_holds_the_template_invariant(data):
    # every message is a line between control tokens, and content starts behind one, too
    chat = data.draw(tiny_chats(_FAITHFUL, normalising=False))
    messages = [
        {**message, "reasoning_content": ""} if message["role"] == "assistant" else message
        for message in data.draw(dialogues())
    ]
    check_template(chat, messages)


@pytest.mark.parametrize(
    "quirk", ["prune_reasoning", "strip", "scaffold", "fold_tools", "reserialise", "bos"]
)
def test_each_quirk_changes_what_a_template_says(quirk):
    call = {"function": {"name": "f", "arguments": '{"x":1}'}}
    said = {
        "role": "assistant",
        "content": " a ",
        "reasoning_content": "b",
        "tool_calls": [call],
    }
    tool = {"role": "tool", "content": "c"}
    asked = {"role": "user", "content": "q"}
    (plain, quirky) = (
        tiny_chat(quirks).apply_chat_template(
            [asked, said, tool, tool, asked], add_generation_prompt=True
        )
        for quirks in (TemplateQuirks(), TemplateQuirks(**{quirk: True}))
    )
    assert plain != quirky


def tiny_chat(quirks):
    return TinyChat(quirks=quirks)


@settings(max_examples=20)
@given(st.data())
def test_a_session_lets_no_text_become_a_control_token(data):
    chat = data.draw(tiny_chats(_FAITHFUL, normalising=False))
    session = Session(chat, token_bytes=chat.token_bytes)
    literal = data.draw(st.sampled_from(sorted(chat.token_bytes.special_text.values())))
    content = data.draw(texts()) + literal + data.draw(texts())

    def prompt_of(said):
        return session.prompt([{"role": "user", "content": said}]).ids.tolist()

    check_inert(prompt_of, chat.token_bytes, content)
    check_bos(prompt_of(content), chat.tokenizer.id_of("<s>"))
