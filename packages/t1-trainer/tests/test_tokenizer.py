"""Text and ids: decoding is the inverse of encoding, encoding is not the inverse of decoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_trainer.errors import PolicyFormatError
from t1_trainer.policy import ChatFormat, Tokenizer
from t1_trainer.policy.tokenizer import ASSISTANT, END, SPECIALS, TOOL, USER

TOKENIZER = Tokenizer(("ls", "l", " -l", "cat ", "file", "é", "<|end|", "a" * 9))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.lists(
    st.sampled_from([*TOKENIZER.pieces, *SPECIALS, "s", "\n", "\x00", "日本"]), max_size=12
).map("".join)
ids = st.lists(st.integers(0, len(TOKENIZER) - 1), max_size=20)


@given(texts)
def test_decoding_an_encoded_text_gives_it_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(texts)
def test_specials_never_come_from_text(text):
    assert all(i >= len(SPECIALS) for i in TOKENIZER.encode(text))


def test_a_special_written_out_is_plain_text():
    written = TOKENIZER.encode("<|end|>")
    assert END not in written
    assert TOKENIZER.decode(written) == "<|end|>"
    assert TOKENIZER.decode([END]) == ""


def test_encoding_again_drifts_from_the_sampled_ids():
    sampled = [TOKENIZER.encode("l")[0], TOKENIZER.encode("s")[0]]
    text = TOKENIZER.decode(sampled)
    assert text == "ls"
    assert TOKENIZER.encode(text) != sampled


@given(ids)
def test_any_ids_decode(sampled):
    text = TOKENIZER.decode(sampled)
    # broken UTF-8 became U+FFFD, so a second round changes nothing more
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


@given(texts)
def test_the_longest_piece_wins(text):
    lengths = [len(TOKENIZER.decode([i])) for i in TOKENIZER.encode("a" * 9 + text)]
    assert lengths[0] == 9


@pytest.mark.parametrize("pieces", [("ls", "ls"), ("",)])
def test_pieces_must_be_distinct_and_not_empty(pieces):
    with pytest.raises(PolicyFormatError, match="distinct and not empty"):
        Tokenizer(pieces)


def test_a_saved_tokenizer_loads_equal(tmp_path):
    TOKENIZER.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.pieces == TOKENIZER.pieces
    assert loaded.encode("cat file é") == TOKENIZER.encode("cat file é")


@pytest.mark.parametrize(
    "content", ["", "[1]", "{}", '{"pieces": [1]}', '{"pieces": ["a", "a"]}', '{"pieces": 3}']
)
def test_a_foreign_tokenizer_file_is_refused(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(PolicyFormatError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path / "tokenizer.json")


CHAT = ChatFormat(TOKENIZER)


def test_a_conversation_is_framed_by_specials_only():
    prompt = CHAT.render_instruction("list <|end|>")
    command = CHAT.render_command("ls -l")
    seen = CHAT.render_observation("file\n", 0, 50)
    assert (prompt[0], prompt[-2:]) == (USER, [END, ASSISTANT])
    assert command[-1] == END == CHAT.stop_ids[0]
    assert (seen[0], seen[-2:]) == (TOOL, [END, ASSISTANT])
    stream = [*prompt, *command, *seen]
    assert stream.count(END) == 3
    assert TOKENIZER.decode(stream) == "list <|end|>ls -lfile"


@given(texts)
def test_a_rendered_command_is_parsed_back(command):
    assert CHAT.parse_command(CHAT.render_command(command)) == command


@given(texts, st.integers(1, 5))
def test_an_observation_is_bounded(output, bound):
    assert len(CHAT.render_observation(output, 1, bound)) <= bound + 3


def test_a_failed_command_shows_its_exit_code_and_a_good_one_does_not():
    assert "[rc 2]" in TOKENIZER.decode(CHAT.render_observation("file", 2, 50))
    assert TOKENIZER.decode(CHAT.render_observation("file\n", 0, 50)) == "file"
