"""Greedy longest-match tokenizer with byte fallback.

The vocabulary is five specials, the 256 bytes, then the pieces of the task language. Decoding
concatenates bytes, so several id sequences decode to one text and re-encoding a sampled text may
give other ids: exactly the drift that token-in-token-out training must survive.
Knows nothing of models or turns; `t1_trainer.policy.chat` places the specials.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import cast

from t1_trainer.errors import PolicyFormatError

__all__ = ["ASSISTANT", "END", "PAD", "SPECIALS", "TOOL", "USER", "Tokenizer"]

SPECIALS = ("<|pad|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
PAD, USER, ASSISTANT, TOOL, END = range(len(SPECIALS))
_FIRST_PIECE = len(SPECIALS) + 256


class Tokenizer:
    """Encode text to ids and back; `decode(encode(text)) == text` for every valid text.

    Args:
        pieces: texts that get an id of their own, in id order; single bytes are always there.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = tuple(pieces)
        encoded = [piece.encode() for piece in self.pieces]
        if len(set(encoded)) != len(encoded) or b"" in encoded:
            raise PolicyFormatError("tokenizer: pieces must be distinct and not empty")
        self._bytes = [b""] * len(SPECIALS) + [bytes([b]) for b in range(256)] + encoded
        self._ids = {token: i for i, token in enumerate(self._bytes) if i >= len(SPECIALS)}
        self._longest = max(map(len, self._ids))

    def __len__(self) -> int:
        """Number of ids."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, longest piece first; specials are never produced from text."""
        data = text.encode("utf-8", "replace")
        ids: list[int] = []
        position = 0
        while position < len(data):
            end = min(len(data), position + self._longest)
            while data[position:end] not in self._ids:
                end -= 1
            ids.append(self._ids[data[position:end]])
            position = end
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Text of `ids`; specials decode to nothing, broken UTF-8 to U+FFFD."""
        return b"".join(self._bytes[i] for i in ids).decode("utf-8", "replace")

    def save(self, path: Path) -> None:
        """Write `tokenizer.json`."""
        path.write_text(
            json.dumps({"type": "greedy-byte-fallback", "pieces": self.pieces}, indent=0)
        )

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Read `tokenizer.json`.

        Raises:
            PolicyFormatError: the file is missing or not one that `save` wrote.
        """
        try:
            pieces = json.loads(path.read_text())["pieces"]
            if not isinstance(pieces, list):
                raise PolicyFormatError(f"pieces: expected a list of texts, got {pieces!r}")
            return cls(cast("list[str]", pieces))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise PolicyFormatError(f"{path}: cannot be read as a tokenizer: {error}") from error
