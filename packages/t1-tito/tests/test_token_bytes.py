import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from vocabulary import PIECES, SPECIAL, TABLE

from t1_tito import ByteTableError, TokenBytes

_ALL = st.lists(st.integers(0, len(TABLE) - 1))


@given(_ALL)
def test_symbols_are_the_bytes_with_each_special_token_as_one(tokens):
    expected = []
    for token in tokens:
        expected += [256 + token] if token in SPECIAL else PIECES[token]
    assert TABLE.symbols(tokens).tolist() == expected
    assert TABLE.symbol_lengths(tokens).sum() == len(expected)


@given(_ALL)
def test_bytes_and_text_spell_special_tokens_literally(tokens):
    expected = b"".join(SPECIAL[t].encode() if t in SPECIAL else PIECES[t] for t in tokens)
    assert TABLE.bytes_of(tokens) == expected
    assert TABLE.text(tokens) == expected.decode("utf-8", errors="replace")


def test_a_control_token_is_not_the_letters_of_its_name():
    letters = [PIECES.index(b"<"), PIECES.index(b"end>")]
    assert TABLE.bytes_of(letters) == TABLE.bytes_of([21])
    assert not np.array_equal(TABLE.symbols(letters), TABLE.symbols([21]))


def test_special_tokens_and_whitespace_are_what_templates_own():
    owned = {i for i in range(len(TABLE)) if TABLE.template_owned([i])[0]}
    assert owned == {*SPECIAL, *(PIECES.index(piece) for piece in (b" ", b"\n", b"\n\n"))}


@pytest.mark.parametrize("ids", [[0, 3], [0, -1], [0, 1]], ids=["beyond", "negative", "hole"])
def test_an_id_that_does_not_exist_is_named_by_position(ids):
    table = TokenBytes.from_tokens([b"a", None, b"b"])
    with pytest.raises(ByteTableError, match=rf"id {ids[1]} at position 1"):
        table.symbols(ids)


def test_a_special_id_must_have_a_place():
    with pytest.raises(ByteTableError, match="special id 5 lies outside"):
        TokenBytes.from_tokens([b"a"], {5: "<end>"})
