"""Vocabularies: what tokenizers of several libraries tell of their ids.

    spelling in the tokenizer's file   ->   bytes of the id, or special

A byte-level vocabulary spells each byte by one letter. One of SentencePiece's style spells a space by
▁ and, where a character has no piece, each of its bytes by <0xNN>. Nothing is checked here against
what the tokenizer does; `t1_tito.byte_tables` does that.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ByteTableError

INSTEAD = "build the table with TokenBytes.from_tokens from what you know of the tokenizer"


@dataclass(frozen=True)
class Vocabulary:
    """What a tokenizer tells of its ids, and how to ask it for a proof.

    Attributes:
        name: what it is, for messages.
        pieces: bytes of every id, None where there is no such id; meaningless for special ones.
        special: literal text of the special ids.
        encode: ids of a text with nothing added; None where there is only a vocabulary.
        decode: text of ids; None where there is only a vocabulary.
    """

    name: str
    pieces: list[bytes | None]
    special: dict[int, str]
    encode: Callable[[str], Sequence[int]] | None
    decode: Callable[[list[int]], str] | None


def read_vocabulary(tokenizer: Any) -> Vocabulary:
    """Read the vocabulary of any tokenizer that has the methods of a known library's.

    Raises:
        ByteTableError: it is of no known kind, or its ids do not stand for bytes.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if hasattr(backend, "to_str") and hasattr(backend, "get_vocab_size"):
        return _read_tokenizers(backend)
    if hasattr(tokenizer, "serialized_model_proto"):
        return _read_sentencepiece(tokenizer)
    if hasattr(tokenizer, "decode_single_token_bytes"):
        return _read_tiktoken(tokenizer)
    if isinstance(tokenizer, Mapping):
        ranks: Mapping[Any, Any] = tokenizer
        return _read_ranks(ranks)
    raise ByteTableError(
        f"no way is known to read the bytes of a {type(tokenizer).__module__}."
        f"{type(tokenizer).__qualname__}; pass the tokenizers.Tokenizer, SentencePieceProcessor or "
        f"tiktoken.Encoding behind it, or {INSTEAD}"
    )


# ---- tokenizers and transformers ----


def _read_tokenizers(tokenizer: Any) -> Vocabulary:
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    model: dict[str, Any] = content["model"]
    spell = _spelling(content)
    items = _model_pieces(model)
    added: list[dict[str, Any]] = content["added_tokens"]
    size = 1 + max([-1, *items.values(), *[token["id"] for token in added]])
    pieces: list[bytes | None] = [None] * size
    for piece, token in items.items():
        pieces[token] = spell(piece)
    special: dict[int, str] = {}
    unknown = model.get("unk_token")
    if model.get("unk_id") is not None:
        unknown = model["vocab"][model["unk_id"]][0]
    if unknown in items:
        special[items[unknown]] = unknown
    for token in added:
        if token["special"] or token["content"].strip():
            special[token["id"]] = token["content"]
        else:
            pieces[token["id"]] = token["content"].encode()
    return Vocabulary(
        name=f"a tokenizers.Tokenizer with model {model['type']}",
        pieces=pieces,
        special=special,
        encode=lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        decode=lambda ids: tokenizer.decode(ids, skip_special_tokens=False),
    )


def _model_pieces(model: dict[str, Any]) -> dict[str, int]:
    """Spelling -> id of a model's own tokens."""
    for mark in ("end_of_word_suffix", "continuing_subword_prefix"):
        if model.get(mark):
            raise ByteTableError(
                f"the {model['type']} model marks words by {mark} {model[mark]!r}, which stands for "
                f"no bytes; {INSTEAD}"
            )
    vocabulary: dict[str, int] | list[tuple[str, float]] = model["vocab"]
    if isinstance(vocabulary, dict):
        return vocabulary
    # Unigram: an id is a place in the list
    return {piece: token for token, (piece, _) in enumerate(vocabulary)}


def _spelling(content: dict[str, Any]) -> Callable[[str], bytes]:
    """How the decoder turns a token's spelling into bytes.

    Raises:
        ByteTableError: it does something else than that.
    """
    decoder: dict[str, Any] = content["decoder"] or {"type": "none"}
    steps: list[dict[str, Any]] = decoder.get("decoders", [decoder])
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}:
        return _from_alphabet
    if all(_keeps_spaces(step) for step in steps) and kinds & {"Metaspace", "Replace"}:
        fallback = "ByteFallback" in kinds
        return lambda piece: _from_sentencepiece(piece, fallback)
    raise ByteTableError(
        f"the {content['model']['type']} model's decoder is {json.dumps(decoder)[:200]}, whose bytes "
        f"are not known; {INSTEAD}"
    )


def _keeps_spaces(step: dict[str, Any]) -> bool:
    """Whether a step of a decoder belongs to those that read ▁ as a space and <0xNN> as a byte."""
    kind = step["type"]
    if kind == "Replace":
        return step["pattern"] == {"String": "▁"} and step["content"] == " "
    if kind == "Metaspace":
        return step["replacement"] == "▁"
    if kind == "Strip":
        return step["content"] == " " and step["stop"] == 0 and step["start"] <= 1
    return kind in {"ByteFallback", "Fuse"}


# ---- spellings ----


class _Alphabet(dict[int, int]):
    """Byte-level BPE's letters -> bytes: printable Latin-1 as it is, the rest from U+0100 upwards."""

    def __init__(self) -> None:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = sorted(set(range(256)) - set(printable))
        super().__init__({byte: byte for byte in printable})
        self.update({0x100 + place: byte for place, byte in enumerate(others)})

    def __missing__(self, _: int) -> int:
        # Latin-1 has no such letter, so that encoding what it stands in fails
        return 0x100


_ALPHABET = _Alphabet()
_LETTERS = {byte: letter for letter, byte in _ALPHABET.items()}
_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")


def letters_of_bytes(piece: bytes) -> str:
    """A token's bytes in the letters of byte-level BPE, one letter per byte: b" a" -> "Ġa"."""
    return piece.decode("latin-1").translate(_LETTERS)


def _from_alphabet(piece: str) -> bytes:
    try:
        return piece.translate(_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:
        # as the decoder does it: a token with a letter outside of the alphabet is plain text
        return piece.encode()


def _from_sentencepiece(piece: str, fallback: bool) -> bytes:
    byte = _BYTE.fullmatch(piece) if fallback else None
    return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()


# ---- sentencepiece ----

_UNKNOWN, _CONTROL, _USER_DEFINED, _UNUSED, _BYTE_PIECE = 2, 3, 4, 5, 6


def _read_sentencepiece(processor: Any) -> Vocabulary:
    pieces: list[bytes | None] = []
    special: dict[int, str] = {}
    # the processor's methods do not tell user-defined pieces, which it cuts out of texts, from others
    for token, (piece, kind) in enumerate(_model_proto_pieces(processor.serialized_model_proto())):
        spelled = _from_sentencepiece(piece, kind == _BYTE_PIECE)
        pieces.append(None if kind == _UNUSED else spelled)
        if kind in {_UNKNOWN, _CONTROL} or (kind == _USER_DEFINED and spelled.strip()):
            special[token] = piece
    return Vocabulary(
        name="a SentencePieceProcessor",
        pieces=pieces,
        special=special,
        encode=lambda text: processor.encode(text, out_type=int),
        decode=processor.decode,
    )


def _model_proto_pieces(model: bytes) -> list[tuple[str, int]]:
    """Spelling and type of every piece: field 1 of the model, in it fields 1 and 3."""
    pieces: list[tuple[str, int]] = []
    for number, value in _proto_fields(model):
        if number == 1 and isinstance(value, bytes):
            fields = dict(_proto_fields(value))
            piece, kind = fields[1], fields.get(3, 1)
            assert isinstance(piece, bytes)
            assert isinstance(kind, int)
            pieces.append((piece.decode(), kind))
    return pieces


def _proto_fields(message: bytes) -> list[tuple[int, int | bytes]]:
    """Numbers and values of a protocol buffer's fields, in order."""
    fields: list[tuple[int, int | bytes]] = []
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        if key & 7 == 0:
            value, place = _varint(message, place)
            fields.append((key >> 3, value))
            continue
        length, place = {1: (8, place), 5: (4, place)}.get(key & 7) or _varint(message, place)
        fields.append((key >> 3, message[place : place + length]))
        place += length
    return fields


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place += 1
        if byte < 0x80:
            return value, place
        shift += 7


# ---- tiktoken ----


def _read_tiktoken(encoding: Any) -> Vocabulary:
    special = {encoding.encode_single_token(text): text for text in encoding.special_tokens_set}
    pieces: list[bytes | None] = []
    for token in range(encoding.n_vocab):
        try:
            pieces.append(encoding.decode_single_token_bytes(token))
        except KeyError:
            pieces.append(None)
    return Vocabulary(
        name=f"the tiktoken encoding {encoding.name}",
        pieces=pieces,
        special=special,
        encode=encoding.encode_ordinary,
        decode=encoding.decode,
    )


def _read_ranks(ranks: Mapping[Any, Any]) -> Vocabulary:
    pieces: list[bytes | None] = [None] * (1 + max([-1, *ranks.values()]))
    for piece, token in ranks.items():
        if not isinstance(piece, bytes) or token < 0:
            raise ByteTableError(
                f"expected a mapping of bytes to ids >= 0, got {piece!r}: {token!r}; for a Hugging "
                "Face vocabulary pass the tokenizer itself"
            )
        if pieces[token] is not None:
            raise ByteTableError(f"id {token} has two spellings, {pieces[token]!r} and {piece!r}")
        pieces[token] = piece
    return Vocabulary("a mapping of ranks", pieces, {}, encode=None, decode=None)
