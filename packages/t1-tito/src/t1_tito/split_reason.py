"""Why a trial splits: a name for a boundary that no case of the ladder admits.

The names tell people what their harness did; nothing is repaired by them. Each is checked against
the ids or symbols that it speaks of, and what fits none is named by where it begins to differ.
"""

import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ._history import common_prefix
from .boundary import Reason
from .ladder import Seam, respelled
from .turn import FinishReason

# so many equal symbols behind a gap show that the rest of a turn goes on there
_NEEDLE = 24
_LAST_BYTE = 255
# nothing that reads a text needs more of it to tell why it differs
_TEXT_WINDOW = 4096


def split_reason(seam: Seam, turn_ends: Sequence[int]) -> tuple[Reason, str]:
    """Name a split.

    Args:
        seam: the boundary.
        turn_ends: |T_k| of the turns of this chunk, the earlier turn's last.

    Returns:
        The reason, and a sentence that says where the prompt leaves the stream.
    """
    where = _where(seam)
    L, P = seam.shared, seam.prompt_length
    if seam.later_length == L:
        return Reason.ROLLBACK, f"the prompt ends at index {L} of a stream of {turn_ends[-1]} ids"
    if turn_ends[0] > L and seam.later_length < turn_ends[-1] and P > L:
        return Reason.COMPACTION, where
    if seam.token_bytes is None:
        return _without_bytes(seam, turn_ends), where
    if L >= P or respelled(seam, 0).straddled:
        return _in_completion(seam), where
    return _in_prompt(seam, turn_ends), where


def _where(seam: Seam) -> str:
    L = seam.shared
    ours, theirs = seam.before(L, L + 1).tolist(), seam.after(L, L + 1).tolist()
    owner = "prompt" if seam.prompt_length > L else "completion"
    return (
        f"the prompt leaves the stream at index {L}, in the earlier turn's {owner}: "
        f"{theirs} instead of {ours}"
    )


def _without_bytes(seam: Seam, turn_ends: Sequence[int]) -> Reason:
    returned = seam.shared in turn_ends[:-1] and seam.later_length < turn_ends[-1]
    return Reason.ROLLBACK if returned else Reason.NO_BYTE_TABLE


def _in_completion(seam: Seam) -> Reason:
    """The first difference lies in the completion itself."""
    if respelled(seam, 0).straddled:
        return Reason.STRADDLING_TOKEN
    text_reason = _same_text(seam)
    if text_reason is not None:
        return text_reason
    if _is_pruned(seam):
        return Reason.PRUNED
    return Reason.TEXT_CHANGED if seam.finish is FinishReason.STOP else Reason.TRUNCATED_TURN


def _in_prompt(seam: Seam, turn_ends: Sequence[int]) -> Reason:
    """The first difference lies in what the earlier turn was prompted with."""
    if _is_pruned(seam):
        return Reason.PRUNED
    behind = [end for end in turn_ends if end <= seam.shared]
    # what follows an earlier turn is new, and the history got no longer: it was gone back to
    returned = bool(behind) and seam.later_length < turn_ends[-1]
    return Reason.ROLLBACK if returned else Reason.CONTEXT_CHANGED


def _same_text(seam: Seam) -> Reason | None:
    """The name for a completion that reads the same, although its symbols differ."""
    table = seam.token_bytes
    assert table is not None, "text is compared only with a byte table"
    stop = seam.prompt_length + seam.completion.size
    ours = table.bytes_of(seam.before(seam.shared, min(stop, seam.shared + _TEXT_WINDOW)))
    theirs = table.bytes_of(seam.after(seam.shared, seam.shared + _TEXT_WINDOW))
    if theirs.startswith(ours):
        return Reason.CONTROL_TOKEN
    read, reread = (side.decode("utf-8", errors="replace") for side in (ours, theirs))
    if "\ufffd" in read and reread.startswith(read):
        return Reason.PARTIAL_CHARACTER
    normal = unicodedata.normalize("NFC", read)
    if normal != read and reread.startswith(normal):
        return Reason.UNICODE_NORMALIZED
    return None


def _is_pruned(seam: Seam) -> bool:
    """Whether bytes of the stream are missing in the prompt and what stood behind them follows."""
    stop = seam.earlier.length
    ours = seam.symbols(seam.before(seam.shared, stop))
    theirs = seam.symbols(seam.after(seam.shared, seam.shared + ours.size))
    gap = common_prefix(ours, theirs)
    needle = theirs[gap : gap + _NEEDLE]
    if not needle.size:
        return False
    return _contains(ours[gap + 1 :], needle)


def _contains(symbols: npt.NDArray[np.int32], needle: npt.NDArray[np.int32]) -> bool:
    """Whether the whole needle occurs, or as much of it as the end leaves room for.

    A needle that is short because the prompt ends must reach the end: every prompt ends in the same
    few symbols, and finding those says nothing. So does a part, and it must end a turn or be long.
    """
    for start in np.flatnonzero(symbols == needle[0]):
        found = symbols[start : start + needle.size]
        if not np.array_equal(found, needle[: found.size]):
            continue
        at_end = start + found.size == symbols.size
        telling = found.size >= _NEEDLE // 3 or found.max() > _LAST_BYTE
        if found.size == _NEEDLE or (at_end and telling):
            return True
    return False
