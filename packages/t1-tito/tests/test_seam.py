import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_tokenizers import real_tokenizer

from t1_tito import SeamError
from t1_tito.chat_tokenizer import ChatTemplate
from t1_tito.seam import SeamEncoder, SeamProof
from t1_tito.tiny import tiny_tokenizer

TINY = tiny_tokenizer()
STOP = TINY.stop_id
TEXT = st.text(st.sampled_from("ab \n\t.é🫠e\u0301<|>"), max_size=12)
SPECIAL = st.sampled_from(["<|im_end|>", "<|im_start|>", "<think>"])


def encoder_of(tokenizer, token_bytes):
    return SeamEncoder(ChatTemplate(tokenizer), token_bytes)


def tiny():
    return encoder_of(TINY, TINY.token_bytes)


def ids(text):
    return np.array(TINY.encode(text), np.int32)


def test_behind_a_control_token_any_text_is_exact():
    seam = tiny().append(ids("abc<|im_end|>"), ["\nhello"])
    assert seam.proof is SeamProof.SPECIAL_BEFORE
    assert seam.ids == TINY.encode("\nhello")


def test_text_that_begins_with_a_control_token_is_exact_behind_any_ids():
    stored = np.array([*b"hel", 0xF0], np.int32)
    seam = tiny().append(stored, ["<|im_end|>\n"])
    assert seam.proof is SeamProof.SPECIAL_AFTER
    assert seam.ids == TINY.encode("<|im_end|>\n")


def test_plain_text_behind_plain_text_needs_a_window_that_reproduces_the_stored_ids():
    seam = tiny().append(ids("list the"), [" files"])
    assert seam.proof is SeamProof.WINDOW
    assert seam.ids == TINY.encode("list the files")[len(ids("list the")) :]


@pytest.mark.parametrize(
    ("stored", "new"),
    [
        (ids("th"), "e"),
        (np.array(list(b"the"), np.int32), " files"),
        (np.array([0xF0, 0x9F], np.int32), "x"),
    ],
    ids=["merges", "non-canonical", "half character"],
)
def test_what_cannot_be_proven_is_refused(stored, new):
    whole = TINY.encode(TINY.decode(stored.tolist()) + new)
    assert whole[: stored.size] != stored.tolist(), "the seam would be exact"
    with pytest.raises(SeamError, match="no special token stands at the seam"):
        tiny().append(stored, [new])


def seam_holds(encoder, tokenizer, left, new):
    """Whether stored ++ new ids is the encoding of the whole; True where the seam is refused."""
    stored = np.array(tokenizer.encode(left, add_special_tokens=False), np.int32)
    try:
        seam = encoder.append(stored, [new])
    except SeamError:
        return True
    return [*stored, *seam.ids] == tokenizer.encode(left + new, add_special_tokens=False)


@given(TEXT, SPECIAL, TEXT, st.booleans(), TEXT)
def test_appended_ids_are_those_of_the_whole_text_or_refused(before, special, left, ends, new):
    text = before + special + ("" if ends else left)
    assert seam_holds(tiny(), TINY, text, new) or not text


@pytest.mark.parametrize("name", ["qwen3", "llama3_1", "gptoss"])
def test_appended_ids_are_those_of_the_whole_text_on_real_tokenizers(name):
    real = real_tokenizer(name)
    encoder = encoder_of(real.tokenizer, real.token_bytes)
    special = next(iter(sorted(real.token_bytes.special_text.values())))

    @given(TEXT, st.sampled_from(["", special]), TEXT, st.sampled_from(["", special]))
    def holds(before, between, new, opening):
        text = "x" + before + between
        assert seam_holds(encoder, real.tokenizer, text, opening + new)

    holds()


def test_encoding_each_side_alone_breaks_the_property():
    class Naive(SeamEncoder):
        def append(self, stored, pieces):
            return super().append(ids("<|im_end|>"), pieces)

    encoder = Naive(ChatTemplate(TINY), TINY.token_bytes)
    assert not seam_holds(encoder, TINY, "th", "e")


def with_flags(**flags):
    """The tiny tokenizer as `tokenizers` has it, its control tokens with these flags."""
    # the package itself does without it
    from tokenizers import Tokenizer  # noqa: PLC0415

    content = json.loads(TINY.to_json())
    for token in content["added_tokens"]:
        token.update(flags)
    return Hugging(Tokenizer.from_str(json.dumps(content)))


class Hugging:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def encode(self, text, add_special_tokens=False):
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def apply_chat_template(self, conversation, **arguments):
        return TINY.apply_chat_template(conversation)


@pytest.mark.parametrize("flags", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}])
def test_a_control_token_that_swallows_space_or_hides_in_words_proves_nothing(flags):
    tokenizer = with_flags(**flags)
    encoder = encoder_of(tokenizer, TINY.token_bytes)
    assert encoder_of(with_flags(), TINY.token_bytes).isolated(STOP)
    assert not encoder.isolated(STOP)


def test_behind_a_control_token_that_swallows_space_the_window_is_the_proof():
    tokenizer = with_flags(rstrip=True)
    seam = encoder_of(tokenizer, TINY.token_bytes).append(ids("<|im_end|>"), ["\nhello"])
    assert seam.proof is SeamProof.WINDOW
    assert [STOP, *seam.ids] == tokenizer.encode("<|im_end|>\nhello")


def test_text_before_a_token_that_swallows_space_is_refused_where_it_would_be_swallowed():
    encoder = encoder_of(with_flags(lstrip=True), TINY.token_bytes)
    stored = np.array(with_flags().encode("ab "), np.int32)
    with pytest.raises(SeamError):
        encoder.append(stored, ["<|im_end|>\n"])


def test_pieces_are_kept_apart():
    seam = tiny().append(ids("<|im_start|>"), ["x<", "|im_end|>y"])
    assert STOP not in seam.ids
    assert TINY.decode(seam.ids) == "x<|im_end|>y"


def test_a_piece_that_the_tokenizer_spells_otherwise_is_refused():
    class Padded(Hugging):
        def encode(self, text, add_special_tokens=False):
            return super().encode(text if text.startswith("<") else " " + text)

    encoder = encoder_of(Padded(with_flags().tokenizer), TINY.token_bytes)
    with pytest.raises(SeamError, match="cannot be made inert"):
        encoder.append(ids("<|im_end|>"), ["x<", "|im_end|>y"])


def test_encoded_characters_are_counted():
    encoder = tiny()
    encoder.append(ids("abc<|im_end|>"), ["\nhello", "you"])
    assert encoder.encoded_characters == len("<|im_end|>\nhello") + len("you")
