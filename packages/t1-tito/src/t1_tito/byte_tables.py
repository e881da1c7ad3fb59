"""Byte tables from tokenizers: the bytes behind every id, read from the tokenizer and proven on it.

    tokenizers.Tokenizer, transformers' fast tokenizers   byte-level, or ▁ with byte fallback
    sentencepiece.SentencePieceProcessor                  ▁ with byte fallback
    tiktoken.Encoding, a mapping of bytes to ranks        bytes as they are
    anything with a `TokenBytes` as `token_bytes`         that

None of these libraries is imported; a tokenizer is known by its methods.

Special, one symbol each, is every token that the tokenizer cuts out of a text before it merges
anything: control tokens, and added tokens such as `<think>` whether or not they are marked special
in its file, because their letters never become ordinary ids. Added tokens of nothing but whitespace
are text. A token for unknown text is special too, for its bytes are lost.

A ▁ spells a space wherever it stands. The space that SentencePiece puts before a text, and takes away
again when it decodes, is thus part of the bytes: two spellings may differ by it and be told apart
though they decode alike, and never the other way round.

No table is returned unproven, unless it is the tokenizer's own or there is only a mapping of
ranks to read. The tokenizer's own
decoding of every id that spells whole characters, and of texts that it encodes, must be the table's.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from .errors import ByteTableError
from .token_bytes import TokenBytes
from .vocabularies import INSTEAD, Vocabulary, read_vocabulary

_PROBES = (
    "def f(x): return x + 12",
    "a  b\n\n\tc\r\n   d ",
    "Zürich, Ωμέγα, Привет, 你好 🫠",
    "l'eau, {\"k\": [1, 2345]} </div> don't",
)


def token_bytes_of(tokenizer: Any, *, special: Mapping[int, str] | None = None) -> TokenBytes:
    """The byte table of a tokenizer; takes about a second for a vocabulary of 150,000 ids.

    Args:
        tokenizer: any of those that the module names.
        special: literal text of special ids beyond those that the tokenizer itself tells of; a
            mapping of ranks tells of none.

    Raises:
        ByteTableError: the tokenizer is of an unknown kind, or its ids do not stand for bytes; says
            what was found and what to do.
    """
    own = getattr(tokenizer, "token_bytes", None)
    if isinstance(own, TokenBytes):
        return own
    vocabulary = read_vocabulary(tokenizer)
    literals = vocabulary.special | dict(special or {})
    size = 1 + max([len(vocabulary.pieces) - 1, *literals])
    padded = [*vocabulary.pieces, *[None] * (size - len(vocabulary.pieces))]
    table = TokenBytes.from_tokens(padded, literals)
    _prove(vocabulary, table)
    return table


def _prove(vocabulary: Vocabulary, table: TokenBytes) -> None:
    """Compare the table with the tokenizer's own words.

    Raises:
        ByteTableError: they differ.
    """
    name, encode, decode = vocabulary.name, vocabulary.encode, vocabulary.decode
    if encode is None or decode is None:
        return
    # parts of characters are left out: what decoders write for them differs, and depends on neighbours
    ids = [
        token
        for token, piece in enumerate(vocabulary.pieces)
        if piece is not None and token not in table.special_text and _is_text(piece)
    ]
    everything = table.symbols(ids).astype(np.uint8).tobytes().decode()
    if not _alike(everything, decode(ids)):
        _raise_for_decoding(name, decode, table, ids)
    encoded = [(text, encode(text)) for text in _PROBES]
    # an unknown token has no bytes
    probes = [(text, ids) for text, ids in encoded if table.special.isdisjoint(ids)]
    if not probes:
        raise ByteTableError(f"{name} encodes no probe text without unknown tokens; {INSTEAD}")
    for text, ids in probes:
        said = table.text(ids)
        if not _alike(said, decode(list(ids))):
            _raise_for_decoding(name, decode, table, list(ids))
        # what else is normalised is between the tokenizer and the text; plain text comes back
        if text == _PROBES[0] and not _alike(said, text):
            raise ByteTableError(f"{name} encodes {text!r} to ids that spell {said!r}; {INSTEAD}")


def _raise_for_decoding(
    name: str, decode: Callable[[list[int]], str], table: TokenBytes, ids: list[int]
) -> NoReturn:
    """Name the first id that is at fault alone, or all of them."""
    alone = [[token] for token in ids if not _alike(table.text([token]), decode([token]))]
    wrong = alone[0] if alone else ids
    raise ByteTableError(
        f"{name} decodes {wrong[:32]} to {decode(wrong)[:200]!r}, its vocabulary spells "
        f"{table.text(wrong)[:200]!r}; {INSTEAD}"
    )


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _alike(said: str, text: str) -> bool:
    """Whether two texts agree but for the space that may be put before a text."""
    return said in {text, f" {text}"}
