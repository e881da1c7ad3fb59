"""The testing kit itself: what it draws, and what it does."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_tito import Assembler, Reason, TitoError, TokenBytes, Turn, assemble
from t1_tito.testing import (
    ByteBpe,
    EngineFault,
    Mutation,
    MutationKind,
    Script,
    Speller,
    Step,
    TemplateQuirks,
    TinyChat,
    as_delta,
    as_full,
    byte_bpe,
    completions,
    engine_fault,
    noncanonical,
    plant,
    replays,
    reply_of,
    scripts,
    simulate,
    simulated_trials,
    texts,
    tiny_chats,
)
from t1_tito.testing.reference import whole_prompts
from t1_tito.testing.simulator import stop_id_of

ASKED = {"role": "user", "content": "q"}
AB = ByteBpe(merges=((b"a", b"b"),))


@given(byte_bpe(), texts())
def test_a_drawn_tokenizer_spells_its_text(tokenizer, text):
    spelled = tokenizer.token_bytes.bytes_of(tokenizer.encode(text))
    expected = unicodedata.normalize("NFC", text) if tokenizer.nfc else text
    prefix = " " if tokenizer.dummy_prefix and text else ""
    assert spelled == (prefix + expected).encode()


@given(byte_bpe())
def test_with_byte_fallback_no_token_beyond_a_byte_holds_more_than_ascii(tokenizer):
    beyond = [p for p in tokenizer.pieces if len(p) > 1 and not p.isascii()]
    assert not (tokenizer.byte_fallback and beyond)


@given(st.data())
def test_another_spelling_says_the_same(data):
    tokenizer = data.draw(byte_bpe())
    ids = tokenizer.encode(data.draw(texts()) + "<think>" + data.draw(texts()))
    other = data.draw(noncanonical(tokenizer, ids))
    table = tokenizer.token_bytes
    assert table.symbols(other).tolist() == table.symbols(ids).tolist()


def test_a_speller_splits_and_merges():
    speller = Speller(AB.token_bytes)
    assert speller.respell([256], [1]) == [97, 98]
    assert speller.respell([97, 98, 256], [2]) == [256, 256]
    assert speller.respell([97, 98], []) == [97, 98]
    stop = AB.id_of("<|im_end|>")
    assert speller.respell([stop, 99], [1, 1]) == [stop, 99]


@given(st.data())
def test_drawn_completions_are_ids_of_their_tokenizer(data):
    tokenizer = data.draw(byte_bpe())
    valid = data.draw(st.booleans())
    ids = data.draw(completions(tokenizer, valid_utf8=valid))
    spelled = tokenizer.token_bytes.bytes_of(ids)
    if valid:
        spelled.decode()


@given(st.data())
def test_the_same_script_gives_the_same_turns(data):
    chat, script = data.draw(tiny_chats()), data.draw(scripts())
    first, second = (list(map(reply_of, simulate(chat, script))) for _ in range(2))
    assert first == second


@given(simulated_trials())
def test_simulated_prompts_are_what_the_template_says_or_replayed_ids(trial):
    assert trial.turns
    assert not any(turn.base_length for turn in trial.turns)
    stop = stop_id_of(trial.chat)
    for turn in trial.turns:
        stopped = turn.completion_ids[-1] == stop
        assert stopped == (turn.finish_reason == "stop") or trial.script.steps[0].cut


@given(simulated_trials())
def test_deltas_are_the_same_turns(trial):
    deltas = as_delta(trial.turns)
    assert whole_prompts(deltas) == whole_prompts(trial.turns)
    assert list(map(reply_of, as_full(deltas))) == list(map(reply_of, trial.turns))


@given(st.data())
def test_replays_repeat_every_id(data):
    turns = data.draw(replays(data.draw(tiny_chats())))
    for before, after in pairwise(turns):
        spoken = [*before.prompt_ids.tolist(), *before.completion_ids.tolist()]
        assert after.prompt_ids.tolist()[: len(spoken)] == spoken


def said(content, **more):
    return {"role": "assistant", "content": content, **more}


CALL = [{"function": {"name": "f", "arguments": '{"x":1}'}}]
MESSAGES = {
    MutationKind.RESERIALISE: said("a", tool_calls=CALL),
    MutationKind.PRUNE: said("a", reasoning_content="b"),
}


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (MutationKind.NONE, Reason.EXTENDS),
        (MutationKind.RESERIALISE, Reason.TEXT_CHANGED),
        (MutationKind.PRUNE, Reason.PRUNED),
        (MutationKind.ROLLBACK, Reason.ROLLBACK),
        (MutationKind.COMPACT, Reason.COMPACTION),
    ],
)
def test_a_mutation_ends_in_its_named_case(kind, reason):
    step = Step(MESSAGES.get(kind, said("a" * 60)), (ASKED,))
    script = Script((ASKED,), (step, step), Mutation(kind, 1))
    trial = assemble(simulate(TinyChat(), script), TinyChat().token_bytes)
    assert [boundary.reason for boundary in trial.boundaries] == [reason]


def test_a_lost_turn_leaves_no_record_and_its_text_in_history():
    steps = [Step(said(text), (ASKED,), cut=1) for text in ("x", "y", "z")]
    script = Script((ASKED,), tuple(steps), Mutation(MutationKind.LOSE_TRUNCATED_TURN, 1))
    chat = TinyChat()
    turns = simulate(chat, script)
    assert len(turns) == 2
    assert "assistant\ny<|im_end|>" in chat.decode(turns[1].prompt_ids)


def test_injected_text_of_a_control_token_becomes_one_in_a_text_harness():
    step = Step(said("a"), (ASKED,))
    mutation = Mutation(MutationKind.INJECT_SPECIAL, 1)
    chat = TinyChat()
    turns = simulate(chat, Script((ASKED,), (step, step, step), mutation))
    assert chat.decode(turns[-1].prompt_ids).count("q<|im_end|>x<|im_end|>") == 1


def test_a_forgotten_turn_is_missing_from_later_prompts():
    steps = tuple(Step(said(text), (ASKED,)) for text in ("x", "y", "z"))
    chat = TinyChat()
    turns = simulate(chat, Script((ASKED,), steps, Mutation(MutationKind.DROP_TURN, 2)))
    text = chat.decode(turns[-1].prompt_ids)
    assert "assistant\nx" not in text
    assert "assistant\ny" in text


def test_a_scaffold_is_in_prompts_and_not_in_history():
    chat = TinyChat(AB, TemplateQuirks(scaffold=True))
    step = Step(said("a"), (ASKED,))
    trial = assemble(simulate(chat, Script((ASKED,), (step, step))), chat.token_bytes)
    assert [boundary.reason for boundary in trial.boundaries] == [Reason.SCAFFOLD]


def test_other_spellings_by_the_model_are_retokenized_by_a_text_harness():
    step = Step(said("ab"), (ASKED,), spelling=(1,))
    chat = TinyChat(AB)
    trial = assemble(simulate(chat, Script((ASKED,), (step, step))), chat.token_bytes)
    assert [boundary.reason for boundary in trial.boundaries] == [Reason.SAME_BYTES]


@given(st.data())
def test_every_engine_fault_is_refused(data):
    trial = data.draw(simulated_trials())
    fault = data.draw(engine_fault())
    place = data.draw(st.integers(0, 63))
    whole = next((turn for turn in trial.turns if turn.finish_reason == "stop"), None)
    if whole is None:
        return
    sent = reply_of(whole)
    reply = plant(fault, sent, place)
    if fault is EngineFault.ECHO_ALTERED:
        assert reply["prompt_ids"] != sent["prompt_ids"]
        return
    assembler = Assembler(stop_ids={stop_id_of(trial.chat)})
    if fault is EngineFault.STOP_TOKEN_HIDDEN and reply["completion_ids"][-1:] == [
        whole.completion_ids[-1]
    ]:
        # a completion may say the stop token twice; what is left then still ends in one
        return
    with pytest.raises(TitoError):
        assembler.add(Turn(**reply))


def test_a_template_without_a_stop_token_is_named():
    class Endless(TinyChat):
        def apply_chat_template(self, conversation, **arguments):
            return "".join(message["content"] for message in conversation)

    with pytest.raises(ValueError, match="without a special token"):
        stop_id_of(Endless())


def test_a_drawn_table_is_a_byte_table():
    assert isinstance(AB.token_bytes, TokenBytes)
    assert AB.vocabulary_size == len(AB.token_bytes)
