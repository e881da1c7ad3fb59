"""Windows for people: a few tokens around a place, as text where bytes are known, else as ids.

The marked stretch stands between ⟦ and ⟧. Line breaks are escaped, so a window is one line.
"""

import json

from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import Ids

_MARGIN = 8
_LONGEST = 24


def window(tokens: Ids, start: int, stop: int, token_bytes: TokenBytes | None) -> str:
    """The tokens [start, stop) of a sample, marked, with a few on either side.

    Args:
        tokens: int32 [N].
        start: first marked token.
        stop: one past the last marked token; long stretches are shortened.
        token_bytes: the bytes behind every id; None prints ids.
    """
    shown = min(stop, start + _LONGEST)
    left = spell(tokens[max(0, start - _MARGIN) : start], token_bytes)
    right = spell(tokens[stop : stop + _MARGIN], token_bytes)
    return f"{left}⟦{spell(tokens[start:shown], token_bytes)}{'…' * (shown < stop)}⟧{right}"


def spell(ids: Ids, token_bytes: TokenBytes | None) -> str:
    """The text of the ids, or the ids themselves where one of them has no known bytes."""
    if token_bytes is None or token_bytes.first_unknown(ids) is not None:
        return f" {' '.join(map(str, ids.tolist()))} " if ids.size else ""
    return json.dumps(token_bytes.text(ids), ensure_ascii=False)[1:-1]
