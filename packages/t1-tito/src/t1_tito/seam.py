"""The seam: new text appended to stored ids, with a proof that its ids are exact.

Stored ids S and new text t: S ‖ encode(t) is what encode(text of S ‖ t) ends in only if no token
reaches across and nothing on the left changes how t is cut. Three proofs, cheapest first:

    SPECIAL_BEFORE  S ends in a special token that the tokenizer isolates: t is encoded behind it
    SPECIAL_AFTER   t begins with one, and it does not swallow the space before it
    WINDOW          encode(text of the last ids of S ‖ t) gives those very ids, then t's

Anything else is refused. A special token is isolated if the tokenizer finds it between letters and
keeps the whitespace on both sides; that is tried, not read from flags. Where the window does not reach
back to a special token, the proof assumes that a tokenizer's cuts depend on no more than the last
64 tokens. The stored ids are never encoded again, whatever they are.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from .chat_tokenizer import ChatTemplate
from .errors import SeamError
from .token_bytes import TokenBytes
from .turn import Ids

_WINDOWS = (8, 16, 32, 64)


class SeamProof(StrEnum):
    """Why the ids of appended text are exact."""

    SPECIAL_BEFORE = "special_before"
    """The stored ids end in an isolated special token."""
    SPECIAL_AFTER = "special_after"
    """The new text begins with one."""
    WINDOW = "window"
    """Encoding the last stored ids' text with the new text reproduces those ids."""


@dataclass(frozen=True)
class Seam:
    """Appended text as ids.

    Attributes:
        ids: of the new text alone.
        proof: why they are exact.
    """

    ids: list[int]
    proof: SeamProof


class SeamEncoder:
    """Encodes text behind stored ids; counts the characters it encodes.

    Attributes:
        encoded_characters: characters given to the tokenizer so far, windows included.
    """

    def __init__(self, template: ChatTemplate, token_bytes: TokenBytes) -> None:
        self.encoded_characters = 0
        self._template = template
        self._table = token_bytes
        self._isolated: dict[int, bool] = {}
        self._special_by_start = sorted(
            token_bytes.special_text.items(), key=lambda item: len(item[1]), reverse=True
        )

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone, counted."""
        self.encoded_characters += len(text)
        return self._template.encode(text)

    def whole(self, pieces: Sequence[str]) -> list[int]:
        """Ids of a text that nothing stands before; its pieces are kept apart.

        Raises:
            SeamError: a later piece cannot be encoded on its own.
        """
        ids = self.encode(pieces[0])
        for piece in pieces[1:]:
            ids += self._apart(piece)
        return ids

    def append(self, stored: Ids, pieces: Sequence[str]) -> Seam:
        """Ids of the pieces behind the stored ids.

        Args:
            stored: int32 [N], at least the last 64 of the stored ids.
            pieces: the new text; control-token literals do not reach across pieces.

        Raises:
            SeamError: no proof holds; the message says what stands at the seam.
        """
        first = self._first(stored, pieces[0])
        for piece in pieces[1:]:
            first.ids.extend(self._apart(piece))
        return first

    def isolated(self, token: int) -> bool:
        """Whether the tokenizer finds this special token anywhere and keeps the space around it."""
        if token not in self._isolated:
            literal = self._table.special_text[token]
            ids = self._template.encode(f"a \n{literal}\n b")
            self._isolated[token] = (
                ids.count(token) == 1
                and self._table.bytes_of(ids[: ids.index(token)]).endswith(b"a \n")
                and self._table.bytes_of(ids[ids.index(token) + 1 :]).startswith(b"\n b")
                and self._template.encode(f"a{literal}b").count(token) == 1
            )
        return self._isolated[token]

    def special_at(self, text: str, start: int = 0) -> int | None:
        """The special token whose literal stands at that place of a text; the longest."""
        for token, literal in self._special_by_start:
            if text.startswith(literal, start):
                return token
        return None

    def _first(self, stored: Ids, text: str) -> Seam:
        last = int(stored[-1])
        if last in self._table.special_text and self.isolated(last):
            return Seam(self._behind(last, text), SeamProof.SPECIAL_BEFORE)
        opening = self.special_at(text)
        if opening is not None and self.isolated(opening):
            ids = self.encode(text)
            if ids and ids[0] == opening:
                return Seam(ids, SeamProof.SPECIAL_AFTER)
        ids = self._windowed(stored, text)
        if ids is None:
            raise SeamError(
                f"the stored ids end in {self._shown(stored)!r} and the new text begins with "
                f"{text[:24]!r}: no special token stands at the seam, and encoding both together "
                "changes the stored ids; let the turn end in its stop token"
            )
        return Seam(ids, SeamProof.WINDOW)

    def _behind(self, special: int, text: str) -> list[int]:
        literal = self._table.special_text[special]
        ids = self.encode(literal + text)
        if not ids or ids[0] != special:
            raise SeamError(
                f"the tokenizer does not encode {literal!r} before {text[:24]!r} as id {special}"
            )
        return ids[1:]

    def _apart(self, piece: str) -> list[int]:
        """Ids of a piece inside of text, which must spell it and nothing else."""
        ids = self.encode(piece)
        spelled = self._table.bytes_of(ids)
        if spelled not in {piece.encode(), unicodedata.normalize("NFC", piece).encode()}:
            raise SeamError(
                f"the tokenizer spells the text piece {piece[:24]!r} as {spelled[:32]!r}, so that "
                "control-token text before it cannot be made inert; remove it from the message"
            )
        return ids

    def _windowed(self, stored: Ids, text: str) -> list[int] | None:
        reach = min(len(stored), _WINDOWS[-1])
        specials = [n for n in range(1, reach + 1) if int(stored[-n]) in self._table.special_text]
        sizes = [size for size in _WINDOWS if size < (specials[0] if specials else reach + 1)]
        if specials:
            sizes.append(specials[0])
        elif len(stored) not in sizes and len(stored) < reach + 1:
            sizes.append(len(stored))
        for size in sizes:
            window = [int(token) for token in stored[-size:]]
            try:
                spelled = self._table.bytes_of(window).decode()
            except UnicodeDecodeError:
                continue
            ids = self.encode(spelled + text)
            if ids[:size] == window:
                return ids[size:]
        return None

    def _shown(self, stored: Ids) -> str:
        return self._table.text(stored[-4:])
