"""Byte tables say what the tokenizer says, or are refused."""

import io
import json

import numpy as np
import pytest
import sentencepiece
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from t1_tito.byte_tables import token_bytes_of
from t1_tito.errors import ByteTableError
from t1_tito.tiny import TINY_FOLDER, tiny_tokenizer
from t1_tito.vocabularies import letters_of_bytes

BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
TEXTS = st.text(st.characters(exclude_categories=("Cs",)))


def byte_level():
    return Tokenizer.from_file(str(TINY_FOLDER / "tokenizer.json"))


def metaspace(decoder=None):
    """A ▁ tokenizer with byte fallback and SentencePiece's space before the text."""
    pieces = ["<unk>", *BYTE_PIECES, "▁", "▁the", "▁def", "e", "the", "f"]
    tokenizer = Tokenizer(
        models.Unigram([(piece, -1.0) for piece in pieces], unk_id=0, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoder or decoders.Sequence(
        [replace(), decoders.ByteFallback(), decoders.Fuse(), strip()]
    )
    return tokenizer


def replace():
    return decoders.Replace("▁", " ")


def strip(left=1):
    return decoders.Strip(content=" ", left=left, right=0)


def sentencepiece_model(**arguments):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((TINY_FOLDER / "corpus.txt").read_text().splitlines()),
        model_writer=model,
        vocab_size=500,
        minloglevel=2,
        **{"byte_fallback": True, "normalization_rule_name": "identity"} | arguments,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


@pytest.fixture(scope="module")
def processor():
    return sentencepiece_model(
        user_defined_symbols=["<tool>", "\n"],
        control_symbols=["<turn>"],
        remove_extra_whitespaces=False,
    )


class Wrapped:
    """A tokenizer whose answers can be falsified."""

    def __init__(self, tokenizer, encode=None, decode=None):
        self.tokenizer = tokenizer
        self.change_ids = encode or (lambda encoding: encoding)
        self.change_text = decode or (lambda ids, text: text)

    def to_str(self):
        return self.tokenizer.to_str()

    def get_vocab_size(self):
        return self.tokenizer.get_vocab_size()

    def encode(self, text, add_special_tokens):
        return self.change_ids(self.tokenizer.encode(text, add_special_tokens=add_special_tokens))

    def decode(self, ids, skip_special_tokens):
        return self.change_text(ids, self.tokenizer.decode(ids, skip_special_tokens))


# ---- tokenizers and transformers ----


def test_a_byte_level_table_is_read_from_the_tokenizers_own_file():
    table, own = token_bytes_of(byte_level()), tiny_tokenizer().token_bytes
    assert np.array_equal(table.flat, own.flat)
    assert np.array_equal(table.starts, own.starts)
    assert table.special_text == own.special_text
    assert table.known.all()


def test_a_tokenizer_behind_a_wrapper_is_found():
    class Fast:
        backend_tokenizer = byte_level()

    assert len(token_bytes_of(Fast())) == tiny_tokenizer().vocabulary_size


def test_added_tokens_are_one_symbol_whether_or_not_they_are_marked_special():
    table = token_bytes_of(byte_level())
    marked = {token["content"]: token["special"] for token in added_tokens(byte_level())}
    for text, special in (("<think>", False), ("<|im_end|>", True)):
        assert marked[text] is special
        token = tiny_tokenizer().added[text]
        letters = [text.encode()[place] for place in range(len(text))]
        assert table.bytes_of([token]) == table.bytes_of(letters) == text.encode()
        assert table.symbols([token]).tolist() == [256 + token] != table.symbols(letters).tolist()


def added_tokens(tokenizer):
    return [
        {"content": token.content, "special": token.special}
        for token in tokenizer.get_added_tokens_decoder().values()
    ]


def test_added_tokens_of_white_space_are_text():
    tokenizer = byte_level()
    tokenizer.add_tokens([AddedToken("    ", normalized=False)])
    tokenizer.add_special_tokens([AddedToken("\n\n\n\n", normalized=False)])
    table = token_bytes_of(tokenizer)
    spaces, marked = tokenizer.token_to_id("    "), tokenizer.token_to_id("\n\n\n\n")
    assert spaces not in table.special
    assert table.symbols([spaces]).tolist() == [0x20] * 4
    assert marked in table.special


@given(TEXTS)
def test_sentencepiece_style_ids_spell_the_text_and_the_space_before_it(text):
    tokenizer = metaspace()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert METASPACE.bytes_of(ids) == (f" {text}" if text else "").replace("▁", " ").encode()


METASPACE = token_bytes_of(metaspace())


def test_the_space_before_a_text_is_told_apart_from_none():
    bare, spaced = token_ids(metaspace(), "the", "▁the")
    assert metaspace().decode([bare]) == metaspace().decode([spaced]) == "the"
    assert METASPACE.symbols([bare]).tolist() != METASPACE.symbols([spaced]).tolist()


def token_ids(tokenizer, *pieces):
    return [tokenizer.token_to_id(piece) for piece in pieces]


def test_an_unknown_token_is_special_for_its_bytes_are_lost():
    assert METASPACE.special_text == {0: "<unk>"}


def test_the_metaspace_decoder_is_read_as_its_parts_are():
    vocabulary = [("<unk>", 0.0), *[(piece, -1.0) for piece in "▁abcdefghijklmnopqrstuvwxyz(:)+12"]]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    assert token_bytes_of(tokenizer).bytes_of([1, 2]) == b" a"


def word_pieces():
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "the": 1, "##se": 2}, unk_token="[UNK]"))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def word_ends():
    model = models.BPE({"a": 0, "a</w>": 1}, [], end_of_word_suffix="</w>")
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def no_decoder():
    content = json.loads(byte_level().to_str())
    return Tokenizer.from_str(json.dumps(content | {"decoder": None}))


@pytest.mark.parametrize(
    ("tokenizer", "found"),
    [
        (word_pieces, "WordPiece"),
        (no_decoder, "none"),
        (word_ends, "end_of_word_suffix '</w>'"),
        (lambda: metaspace(decoders.CTC()), "CTC"),
        (lambda: metaspace(decoders.Replace("_", " ")), "Replace"),
        (lambda: metaspace(decoders.Sequence([strip(), decoders.BPEDecoder()])), "BPEDecoder"),
        (lambda: metaspace(decoders.Sequence([replace(), strip(2)])), "Strip"),
        (object, "builtins.object"),
    ],
)
def test_a_tokenizer_whose_ids_do_not_stand_for_bytes_is_refused(tokenizer, found):
    with pytest.raises(ByteTableError, match=found) as caught:
        token_bytes_of(tokenizer())
    assert "TokenBytes.from_tokens" in str(caught.value)


def test_a_decoding_that_differs_for_one_id_is_found():
    word = tiny_tokenizer().pieces.index(b" command")
    lying = Wrapped(byte_level(), decode=lambda ids, text: text + "!" * (word in ids))
    with pytest.raises(ByteTableError, match=rf"decodes \[{word}\] to ' command!'"):
        token_bytes_of(lying)
    token_bytes_of(Wrapped(byte_level()))


def test_a_decoding_that_differs_where_tokens_share_a_character_is_found():
    lying = Wrapped(byte_level(), decode=lambda ids, text: text.replace("🫠", "?"))
    with pytest.raises(ByteTableError, match=r"decodes .* to .*你好 \?"):
        token_bytes_of(lying)


def test_a_token_with_a_letter_outside_of_the_byte_alphabet_is_plain_text():
    content = json.loads(byte_level().to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary |= {"über x": 700, "你": 701}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    assert token_bytes_of(tokenizer).bytes_of([700, 701]) == "über x你".encode()


def test_an_encoding_that_loses_text_is_found():
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.Replace("x", "")
    with pytest.raises(ByteTableError, match=r"ids that spell 'def f\(\): return"):
        token_bytes_of(tokenizer)


def test_a_tokenizer_that_cannot_encode_the_probes_is_refused():
    tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), ("▁", -1.0)], 0, False))
    tokenizer.decoder = decoders.Metaspace()
    with pytest.raises(ByteTableError, match="no probe text"):
        token_bytes_of(tokenizer)


def test_normalisation_of_texts_is_no_reason_to_refuse():
    tokenizer = byte_level()
    tokenizer.normalizer = normalizers.NFC()
    assert len(token_bytes_of(tokenizer)) == 663


# ---- sentencepiece ----


def test_a_sentencepiece_table_knows_bytes_control_and_user_defined_pieces(processor):
    table = token_bytes_of(processor)
    control = {processor.piece_to_id(piece) for piece in ("<unk>", "<s>", "</s>", "<turn>")}
    assert table.special == control | {processor.piece_to_id("<tool>")}
    assert table.bytes_of([processor.piece_to_id("<0xF0>")]) == b"\xf0"
    assert table.symbols([processor.piece_to_id("\n")]).tolist() == [0x0A]


@given(text=TEXTS)
def test_a_sentencepiece_encoding_spells_the_text(processor, text):
    table = SENTENCEPIECE.setdefault("table", token_bytes_of(processor))
    ids = processor.encode(text)
    assert table.bytes_of(ids) == (f" {text}" if text else "").replace("▁", " ").encode()


SENTENCEPIECE = {}


def test_a_user_defined_piece_is_not_its_letters(processor):
    table = token_bytes_of(processor)
    isolated = processor.encode("a<tool>b")
    assert processor.piece_to_id("<tool>") in isolated
    letters = [processor.piece_to_id(f"<0x{byte:02X}>") for byte in b" a<tool>b"]
    assert table.bytes_of(letters) == table.bytes_of(isolated)
    assert table.symbols(letters).tolist() != table.symbols(isolated).tolist()


def test_white_space_written_behind_words_is_refused():
    with pytest.raises(ByteTableError):
        token_bytes_of(sentencepiece_model(treat_whitespace_as_suffix=True))


# ---- tiktoken and ranks ----


def ranks():
    return {piece: token for token, piece in enumerate(tiny_tokenizer().pieces)}


def test_a_tiktoken_table_has_gaps_where_the_encoding_has():
    special = {"<|endoftext|>": 700, "<|im_end|>": 702}
    encoding = tiktoken.Encoding(
        "tiny", pat_str=r"\S+|\s+", mergeable_ranks=ranks(), special_tokens=special
    )
    table = token_bytes_of(encoding)
    assert len(table) == 703
    assert table.special_text == {700: "<|endoftext|>", 702: "<|im_end|>"}
    assert np.flatnonzero(~table.known).tolist() == [*range(656, 700), 701]
    with pytest.raises(ByteTableError, match="id 701 at position 1"):
        table.symbols([5, 701])


@given(TEXTS)
def test_a_tiktoken_encoding_spells_the_text(text):
    encoding = tiktoken.Encoding(
        "tiny", pat_str=r"\S+|\s+", mergeable_ranks=ranks(), special_tokens={}
    )
    assert RANKS.bytes_of(encoding.encode_ordinary(text)) == text.encode()


RANKS = token_bytes_of(ranks())


def test_ranks_take_their_special_tokens_from_the_caller():
    table = token_bytes_of(ranks(), special={660: "<|im_end|>"})
    assert len(table) == 661
    assert table.bytes_of([72, 105, 660]) == b"Hi<|im_end|>"
    assert not table.known[656:660].any()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({b"a": 0, b"b": 0}, "id 0 has two spellings"),
        ({"Ġa": 0}, "pass the tokenizer itself"),
        ({b"a": -1}, "ids >= 0"),
    ],
)
def test_ranks_that_name_no_bytes_are_refused(wrong, problem):
    with pytest.raises(ByteTableError, match=problem):
        token_bytes_of(wrong)


def test_a_vocabulary_of_nothing_has_an_empty_table():
    assert len(token_bytes_of({})) == 0


@given(st.binary())
def test_letters_of_bytes_are_those_of_byte_level_tokenizers(piece):
    decoder = decoders.ByteLevel()
    assert decoder.decode([letters_of_bytes(piece)]) == piece.decode(errors="replace")
