"""The package's own tokenizer is what its files say, in three implementations."""

from functools import cache

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from t1_tito.tiny import TINY_FOLDER, tiny_tokenizer, train

TINY = tiny_tokenizer()
WORDS = st.sampled_from([*TINY.added, "\n", "\n\n", " ", "  ", "\t", "the command", "é", "🫠", "["])
TEXTS = st.lists(WORDS | st.text(max_size=4)).map("".join)
CALLS = st.lists(
    st.fixed_dictionaries(
        {"name": st.just("run"), "arguments": st.dictionaries(st.text(max_size=3), st.integers())}
    ),
    max_size=2,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": TEXTS},
        optional={
            "reasoning_content": TEXTS,
            "tool_calls": CALLS,
        },
    ),
    min_size=1,
    max_size=4,
)


@cache
def fast():
    return PreTrainedTokenizerFast.from_pretrained(TINY_FOLDER)


def test_training_gives_the_shipped_files_again():
    corpus = (TINY_FOLDER / "corpus.txt").read_text(encoding="utf-8")
    shipped = (TINY_FOLDER / "tokenizer.json").read_text(encoding="utf-8")
    assert train(corpus).to_json() == shipped


def test_training_depends_on_the_corpus():
    assert train("ab ab").ranks == {(97, 98): 0}
    assert train("ab ba", merges=9).ranks == {}


@given(TEXTS)
def test_transformers_encodes_as_it_does(text):
    assert TINY.encode(text) == fast().encode(text, add_special_tokens=False)


@given(st.lists(st.integers(0, TINY.vocabulary_size - 1)))
def test_transformers_decodes_as_it_does(ids):
    assert TINY.decode(ids) == fast().backend_tokenizer.decode(ids, skip_special_tokens=False)
    skipped = fast().backend_tokenizer.decode(ids, skip_special_tokens=True)
    assert TINY.decode(ids, skip_special_tokens=True) == skipped


@given(MESSAGES, st.booleans(), st.sampled_from([None, [{"name": "run", "über": 1}]]))
def test_transformers_renders_the_template_as_it_does(messages, opened, tools):
    arguments = {"tokenize": False, "add_generation_prompt": opened, "tools": tools}
    assert TINY.chat_template == fast().chat_template
    assert TINY.apply_chat_template(messages, **arguments) == fast().apply_chat_template(
        messages, **arguments
    )


def test_ids_of_a_conversation_are_those_of_its_text():
    messages = [{"role": "user", "content": "hi"}]
    text = TINY.apply_chat_template(messages)
    assert TINY.apply_chat_template(messages, tokenize=True) == TINY.encode(text)
    assert TINY.encode(text)[-2:] == [TINY.stop_id, 10]


@given(TEXTS)
def test_encoded_bytes_are_the_text(text):
    assert TINY.token_bytes.bytes_of(TINY.encode(text)) == text.encode()


@given(TEXTS, TEXTS, CALLS)
@example("", "", [{"name": "run", "arguments": {}}])
@example("", " ", [])
def test_a_conversation_starts_with_its_beginnings_in_text_and_ids(first, second, calls):
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": second, "tool_calls": calls},
    ]
    whole = TINY.apply_chat_template(messages)
    for opened in (False, True):
        beginning = TINY.apply_chat_template(messages[:1], add_generation_prompt=opened)
        assert whole.startswith(beginning)
        ids = TINY.encode(beginning)
        assert TINY.encode(whole)[: len(ids)] == ids


def test_tool_calls_stand_on_lines_of_their_own():
    call = {"name": "run", "arguments": {}}
    said = {"role": "assistant", "content": "so", "tool_calls": [call, call]}
    block = '\n<tool_call>\n{"name": "run", "arguments": {}}\n</tool_call>'
    text = TINY.apply_chat_template([said])
    assert text == f"<|im_start|>assistant\nso{block}{block}<|im_end|>\n"


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja", "corpus.txt"])
def test_the_files_stay_tiny(name):
    assert 0 < (TINY_FOLDER / name).stat().st_size < 20_000
