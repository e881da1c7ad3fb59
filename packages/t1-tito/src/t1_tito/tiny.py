r"""A tiny byte-level BPE tokenizer with a chat template: real in kind, small, and in this package.

    tokenizer = tiny_tokenizer()
    ids = tokenizer.encode("<|im_start|>user\nhello<|im_end|>\n")

It has what makes tokenizers hard: merges that depend on what stands around a text, characters of
several tokens, and control tokens that text can spell. Its files below `TINY_FOLDER` are in Hugging
Face's format, so that `tokenizers` and `transformers` load the same tokenizer and template from them;
the classes here need neither.

    text -> cut out added tokens -> cut into words and white space -> merge bytes, lowest rank first

Trained by `train` on the corpus in the same folder, which gives the same files again.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from .token_bytes import TokenBytes
from .vocabularies import letters_of_bytes

TINY_FOLDER = Path(__file__).parent / "data" / "tiny"
"""Folder with the tokenizer's files."""

_MERGES = 400
_CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MARKUP = ("<think>", "</think>", "<tool_call>", "</tool_call>")
_WORDS = " ?[^ \\t\\r\\n]+|[ \\t\\r\\n]+"

Message = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class TinyTokenizer:
    """A byte-level BPE tokenizer: ids 0..255 are bytes, then one per merge, then added tokens.

    Attributes:
        pieces: the bytes of every ordinary id.
        ranks: rank of each pair of ids that merge; the result has id 256 + rank.
        added: literal text -> id of added tokens; `_CONTROL` ones are marked special in the file.
    """

    pieces: tuple[bytes, ...]
    ranks: Mapping[tuple[int, int], int]
    added: Mapping[str, int]

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return len(self.pieces) + len(self.added)

    @property
    def stop_id(self) -> int:
        """Id of `<|im_end|>`, which ends a message."""
        return self.added["<|im_end|>"]

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes behind every id."""
        pieces = [*self.pieces, *[None] * len(self.added)]
        return TokenBytes.from_tokens(pieces, {token: text for text, token in self.added.items()})

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of a text; what spells an added token becomes that token.

        Args:
            text: any text.
            add_special_tokens: changes nothing, for this tokenizer adds none; for callers that speak
                to transformers' tokenizers.
        """
        ids: list[int] = []
        for place, part in enumerate(self._added_pattern.split(text)):
            if place % 2:
                ids.append(self.added[part])
            else:
                for word in re.findall(_WORDS, part):
                    ids += self._merged(word)
        return ids

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        if skip_special_tokens:
            control = {self.added[text] for text in _CONTROL}
            ids = [token for token in ids if token not in control]
        return self.token_bytes.text(ids)

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str | list[int]:
        """The conversation as text, or as ids if `tokenize`.

        Every message is a block of its own, whatever stands around it: a conversation's text starts
        with the text of each of its beginnings, and its ids with their ids. What an assistant said
        loses the white space in front.

        Args:
            messages: each with "role" and "content", and maybe "reasoning_content" and "tool_calls".
            tokenize: whether to return ids.
            add_generation_prompt: whether to open an assistant's message at the end.
            tools: descriptions of tools, listed in a system message of their own at the start.
        """
        text = _block("system", "\n".join(["Tools:", *map(_json, tools)])) if tools else ""
        text += "".join(_block(message["role"], _said(message)) for message in messages)
        text += "<|im_start|>assistant\n" if add_generation_prompt else ""
        return self.encode(text) if tokenize else text

    @property
    def chat_template(self) -> str:
        """The same template in Jinja's language."""
        return (TINY_FOLDER / "chat_template.jinja").read_text(encoding="utf-8")

    def to_json(self) -> str:
        """The tokenizer in the format of Hugging Face's tokenizer.json."""
        letters = [letters_of_bytes(piece) for piece in self.pieces]
        pairs = sorted(self.ranks, key=lambda pair: self.ranks[pair])
        split = {
            "type": "Split",
            "pattern": {"Regex": _WORDS},
            "behavior": "Isolated",
            "invert": False,
        }
        byte_level = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        }
        content = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_added_token(text, token) for text, token in self.added.items()],
            "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {piece: token for token, piece in enumerate(letters)},
                "merges": [[letters[first], letters[second]] for first, second in pairs],
            },
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"

    @cached_property
    def _added_pattern(self) -> re.Pattern[str]:
        return re.compile("(" + "|".join(map(re.escape, self.added)) + ")")

    @cached_property
    def _words(self) -> dict[str, list[int]]:
        return {}

    def _merged(self, word: str) -> list[int]:
        ids = self._words.get(word)
        if ids is None:
            ids = self._words[word] = _merge(list(word.encode()), self.ranks)
        return ids


@cache
def tiny_tokenizer() -> TinyTokenizer:
    """The tokenizer of this package, 663 ids; read once per process."""
    content = json.loads((TINY_FOLDER / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = content["model"]["vocab"]
    pairs: list[list[str]] = content["model"]["merges"]
    merges = [(vocabulary[first], vocabulary[second]) for first, second in pairs]
    return _tokenizer(merges)


def train(corpus: str, merges: int = _MERGES) -> TinyTokenizer:
    """A tokenizer for a corpus: the most frequent pair merges next, of equals that of smaller ids.

    Args:
        corpus: any text.
        merges: how many pairs to merge at most; it ends earlier where no pair occurs twice.
    """
    words = Counter(re.findall(_WORDS, corpus))
    spelled = [(list(word.encode()), count) for word, count in words.items()]
    found: list[tuple[int, int]] = []
    while len(found) < merges:
        pairs: Counter[tuple[int, int]] = Counter()
        for ids, count in spelled:
            for pair in pairwise(ids):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < 2:
            break
        rank = {best: len(found)}
        found.append(best)
        spelled = [(_merge(ids, rank), count) for ids, count in spelled]
    return _tokenizer(found)


def _tokenizer(merges: Sequence[tuple[int, int]]) -> TinyTokenizer:
    pieces = [bytes([byte]) for byte in range(256)]
    for first, second in merges:
        pieces.append(pieces[first] + pieces[second])
    added = {text: len(pieces) + place for place, text in enumerate([*_CONTROL, *_MARKUP])}
    return TinyTokenizer(tuple(pieces), {pair: rank for rank, pair in enumerate(merges)}, added)


def _merge(ids: list[int], ranks: Mapping[tuple[int, int], int]) -> list[int]:
    """Merge pairs, the one of lowest rank first, all of its places from left to right."""
    while True:
        known = [pair for pair in pairwise(ids) if pair in ranks]
        if not known:
            return ids
        best = min(known, key=lambda pair: ranks[pair])
        merged: list[int] = []
        place = 0
        while place < len(ids):
            if tuple(ids[place : place + 2]) == best:
                merged.append(256 + ranks[best])
                place += 2
            else:
                merged.append(ids[place])
                place += 1
        ids = merged


def _added_token(text: str, token: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": token, "content": text, **flags, "special": text in _CONTROL}


def _block(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def _said(message: Message) -> str:
    text = message.get("content") or ""
    if message.get("reasoning_content"):
        text = f"<think>\n{message['reasoning_content']}\n</think>\n\n{text}"
    for call in message.get("tool_calls") or []:
        text += f"\n<tool_call>\n{_json(call.get('function') or call)}\n</tool_call>"
    # white space in front would merge with the line break that the opener ends in
    return text.lstrip(" \t\r\n") if message["role"] == "assistant" else text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
