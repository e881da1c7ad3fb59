"""Other spellings: ids that say the same bytes in other tokens, as a sampler may choose them."""

from collections.abc import Sequence
from functools import lru_cache

from t1_tito.token_bytes import TokenBytes


class Speller:
    """Splits and merges tokens of one vocabulary without changing what they spell."""

    def __init__(self, token_bytes: TokenBytes) -> None:
        self._ids: dict[bytes, int] = {}
        raw = token_bytes.flat.astype("u1").tobytes()
        starts = token_bytes.starts.tolist()
        for token in range(token_bytes.vocabulary_size):
            if token_bytes.known[token] and token not in token_bytes.special_text:
                self._ids.setdefault(raw[starts[token] : starts[token + 1]], token)
        self._spelling = {token: piece for piece, token in self._ids.items()}

    def respell(self, ids: Sequence[int], choices: Sequence[int]) -> list[int]:
        """The ids with every choice applied to the token at its place.

        Args:
            ids: any ids; special tokens and ids that have a twin of the same bytes stay.
            choices: for each token 0 to leave it, an odd number to split it in two, an even number to
                merge it with the token after it. Where the vocabulary lacks the parts or the whole,
                the token stays. Tokens beyond the choices stay.
        """
        left = [int(token) for token in ids]
        spelled: list[int] = []
        choice = iter(choices)
        while left:
            token, chosen = left.pop(0), next(choice, 0)
            piece = self._spelling.get(token)
            if chosen and piece is not None:
                after = self._spelling.get(left[0]) if left and chosen % 2 == 0 else None
                merged = self._ids.get(piece + after) if after is not None else None
                if merged is not None:
                    spelled.append(merged)
                    del left[0]
                    continue
                if chosen % 2 and len(piece) > 1:
                    cut = 1 + chosen // 2 % (len(piece) - 1)
                    parts = [self._ids.get(piece[:cut]), self._ids.get(piece[cut:])]
                    if None not in parts:
                        spelled += [part for part in parts if part is not None]
                        continue
            spelled.append(token)
        return spelled


@lru_cache(maxsize=4)
def speller_of(token_bytes: TokenBytes) -> Speller:
    """The speller of a byte table; a large vocabulary takes a while to index."""
    return Speller(token_bytes)
