"""Byte-BPE tokenizers small enough to draw at random, with the quirks of the real ones.

    text -> cut out control tokens -> normalise -> bytes -> merge, lowest rank first

Ids 0..255 are bytes, then one id per distinct merge, then the control tokens. There is no
pre-tokenizer, so that merges reach across words, lines and roles: ids depend on what stands around a
text as much as they can.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from t1_tito.token_bytes import TokenBytes

CONTROL_TOKENS = (
    "<s>",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
)
"""Literals of the control tokens that every drawn tokenizer has."""


@dataclass(frozen=True)
class ByteBpe:
    """A byte-BPE tokenizer.

    Attributes:
        merges: pairs of byte strings that merge, the most preferred first. A pair whose parts do not
            exist when its turn comes is ignored.
        words: byte strings that become one token each, before anything else merges.
        control: literals of the control tokens.
        nfc: whether text is put into Unicode normal form C before it is cut.
        dummy_prefix: whether a space is put before every run of ordinary text.
        byte_fallback: whether bytes of characters beyond ASCII never merge.
    """

    merges: tuple[tuple[bytes, bytes], ...] = ()
    words: tuple[bytes, ...] = ()
    control: tuple[str, ...] = CONTROL_TOKENS
    nfc: bool = False
    dummy_prefix: bool = False
    byte_fallback: bool = False

    @cached_property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes of every ordinary id."""
        pieces = {bytes([byte]): None for byte in range(256)}
        chains = [(word[:i], word[i : i + 1]) for word in self.words for i in range(1, len(word))]
        for left, right in (*chains, *self.merges):
            ascii_only = (left + right).isascii()
            if left in pieces and right in pieces and (ascii_only or not self.byte_fallback):
                pieces[left + right] = None
        return tuple(pieces)

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes behind every id."""
        first = len(self.pieces)
        control = {first + place: literal for place, literal in enumerate(self.control)}
        return TokenBytes.from_tokens([*self.pieces, *[None] * len(control)], control)

    @property
    def vocabulary_size(self) -> int:
        """Number of ids."""
        return len(self.pieces) + len(self.control)

    def id_of(self, literal: str) -> int:
        """Id of a control token."""
        return len(self.pieces) + self.control.index(literal)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """The ids of a text; what spells a control token becomes that token.

        Args:
            text: any text that UTF-8 can hold.
            add_special_tokens: changes nothing; for callers that speak to transformers' tokenizers.
        """
        ids: list[int] = []
        for place, part in enumerate(self._control_pattern.split(text)):
            if place % 2:
                ids.append(self.id_of(part))
            elif part:
                ids += self.encode_bytes(self._normalised(part).encode())
        return ids

    def encode_bytes(self, spelled: bytes) -> list[int]:
        """The ids of ordinary bytes, UTF-8 or not."""
        parts = [bytes([byte]) for byte in spelled]
        while len(parts) > 1:
            ranked = [
                (self._ranks[parts[i] + parts[i + 1]], i)
                for i in range(len(parts) - 1)
                if parts[i] + parts[i + 1] in self._ranks
            ]
            if not ranked:
                break
            _, place = min(ranked)
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return [self._ids[part] for part in parts]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        if skip_special_tokens:
            ids = [token for token in ids if token < len(self.pieces)]
        return self.token_bytes.text(ids)

    def _normalised(self, text: str) -> str:
        text = unicodedata.normalize("NFC", text) if self.nfc else text
        return " " + text if self.dummy_prefix else text

    @cached_property
    def _ids(self) -> dict[bytes, int]:
        return {piece: token for token, piece in enumerate(self.pieces)}

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        return {piece: rank for rank, piece in enumerate(self.pieces[256:])}

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.control, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
