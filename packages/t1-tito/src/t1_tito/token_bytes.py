"""Token bytes: what every id spells, as flat arrays.

Text equality is not enough to tell whether two id sequences say the same: a half UTF-8 character
decodes to a replacement character, and a control token spells like the letters of its name. So
sequences are compared as *symbols*:

    symbol 0..255      one byte of an ordinary token
    symbol 256 + id    a special (control) token, whole

Two sequences say the same exactly if their symbols are equal. The running sum of the symbol lengths
of a prompt is its offset map; nothing is ever encoded or decoded for it. How a tokenizer's own
files become such a table is `t1_tito.byte_tables`' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .errors import ByteTableError

_WHITESPACE = b" \t\n\r\v\f"
SPECIAL = 256
"""The first symbol that is no byte."""


@dataclass(frozen=True, eq=False)
class TokenBytes:
    """The bytes behind every id of a vocabulary of V ids.

    Build it with `from_tokens`, or from a tokenizer with `t1_tito.token_bytes_of`.

    Attributes:
        lengths: int64 [V], symbols of each id; 0 for an empty token.
        starts: int64 [V + 1], where each id's symbols start in `flat`.
        flat: int32 [starts[-1]], the symbols of all ids end to end.
        known: bool [V], whether the id exists.
        complete_below: every id below it exists.
        owned: bool [V], whether the token is of a kind that templates add or drop: special, or nothing
            but whitespace.
        special_text: literal spelling of each special id.
    """

    lengths: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    flat: npt.NDArray[np.int32]
    known: npt.NDArray[np.bool_]
    complete_below: int
    owned: npt.NDArray[np.bool_]
    special_text: Mapping[int, str]

    @classmethod
    def from_tokens(
        cls, pieces: Sequence[bytes | None], special: Mapping[int, str] | None = None
    ) -> "TokenBytes":
        """Build the table from the spelling of every id.

        Args:
            pieces: for each id its bytes; None where there is no such id. What stands at a special
                id is not read.
            special: literal text of every special id.

        Raises:
            ByteTableError: a special id lies outside of `pieces`.
        """
        literals = dict(special or {})
        outside = [token for token in literals if not 0 <= token < len(pieces)]
        if outside:
            raise ByteTableError(
                f"special id {outside[0]} lies outside of a vocabulary of {len(pieces)} ids"
            )
        spelled = [b"\0" if i in literals else piece or b"" for i, piece in enumerate(pieces)]
        flat = np.frombuffer(b"".join(spelled), np.uint8).astype(np.int32)
        lengths = np.fromiter(map(len, spelled), np.int64, len(spelled))
        starts = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        special_ids = np.fromiter(literals, np.int64, len(literals))
        flat[starts[special_ids]] = SPECIAL + special_ids
        owned = [i in literals or not piece.strip(_WHITESPACE) for i, piece in enumerate(spelled)]
        known = [i in literals or piece is not None for i, piece in enumerate(pieces)]
        missing = [i for i, there in enumerate(known) if not there]
        return cls(
            lengths=lengths,
            starts=starts,
            flat=flat,
            known=np.array(known, bool),
            complete_below=missing[0] if missing else len(known),
            special_text=literals,
            owned=np.array(owned, bool),
        )

    @property
    def special(self) -> frozenset[int]:
        """The special ids."""
        return frozenset(self.special_text)

    @property
    def vocabulary_size(self) -> int:
        """V, one more than the largest id."""
        return self.lengths.size

    def __len__(self) -> int:
        return self.lengths.size

    def symbol_lengths(self, ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Symbols of each id, int64 [N].

        Raises:
            ByteTableError: an id is not in the vocabulary; names its position.
        """
        return self.lengths[self._checked(ids)]

    def symbols(self, ids: npt.ArrayLike) -> npt.NDArray[np.int32]:
        """The symbols of all ids end to end, int32, in O(symbols).

        Raises:
            ByteTableError: an id is not in the vocabulary; names its position.
        """
        return self.spelled(self._checked(ids))[0]

    def spelled(
        self, ids: npt.NDArray[np.integer]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """The symbols of ids that are known to be in the vocabulary, and where each token ends.

        Args:
            ids: [N].

        Returns:
            Symbols, int32 [ends[-1]], and ends, int64 [N]: token i spells symbols[ends[i - 1]:ends[i]].
        """
        lengths = self.lengths.take(ids)
        ends = lengths.cumsum()
        # symbol k of the result is symbol k - (start of its token here) of its token in `flat`
        places = (self.starts.take(ids) - (ends - lengths)).repeat(lengths)
        places += np.arange(places.size)
        return self.flat.take(places), ends

    def bytes_of(self, ids: npt.ArrayLike) -> bytes:
        """The bytes of all ids, special ones spelled literally.

        Raises:
            ByteTableError: an id is not in the vocabulary; names its position.
        """
        array = self._checked(ids)
        if not self.special_text:
            return self.symbols(array).astype(np.uint8).tobytes()
        return b"".join(self._literal(int(token)) for token in array)

    def text(self, ids: npt.ArrayLike) -> str:
        """The text of all ids, special ones spelled literally; for people, never for comparison.

        Bytes that are no UTF-8 become U+FFFD.

        Raises:
            ByteTableError: an id is not in the vocabulary; names its position.
        """
        return self.bytes_of(ids).decode("utf-8", errors="replace")

    def template_owned(self, ids: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each token is of a kind that templates add or drop: special, or only whitespace.

        Raises:
            ByteTableError: an id is not in the vocabulary; names its position.
        """
        return self.owned[self._checked(ids)]

    def _literal(self, token: int) -> bytes:
        text = self.special_text.get(token)
        if text is not None:
            return text.encode()
        return self.flat[self.starts[token] : self.starts[token + 1]].astype(np.uint8).tobytes()

    def _checked(self, ids: npt.ArrayLike) -> npt.NDArray[np.int64]:
        array = np.asarray(ids, np.int64)
        position = self.first_unknown(array)
        if position is not None:
            raise ByteTableError(
                f"id {array[position]} at position {position} is not in this vocabulary of "
                f"{self.vocabulary_size} ids"
            )
        return array

    def first_unknown(self, ids: npt.NDArray[np.integer]) -> int | None:
        """Position of the first id that the vocabulary lacks, None if it has all."""
        inside = (ids >= 0) & (ids < self.vocabulary_size)
        fine = inside & self.known[np.where(inside, ids, 0)] if self.known.size else inside
        return None if fine.all() else int(np.argmin(fine))
