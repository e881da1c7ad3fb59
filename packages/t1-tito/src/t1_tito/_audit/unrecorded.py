"""Sampled text that no turn recorded: assistant messages in the context without a completion.

A harness may put a model's text into the history and lose the turn it came from, as when a reply cut
by a limit is dropped with its ids. The next prompt then still extends the stream, the text enters as
context, and nothing else notices. What gives it away is the assistant opener of the template: in
recorded context the only opener is the one that the next completion stands behind.

The prompt that opens a sample holds earlier messages by right. There, an assistant message counts as
recorded if what it says, or what the first turn was given, is known; a message that the harness
rewrote, such as a tool call written anew, is not. Knows ids and symbols, no template.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from t1_tito.audit_report import FindingKind
from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import FinishReason, Ids, Turn

from .findings import Findings
from .history import History
from .sample import Placement, Sample


def _stopped(turn: Turn) -> bool:
    return turn.finish_reason is FinishReason.STOP


def occurrences(tokens: Ids, pattern: Ids) -> npt.NDArray[np.int64]:
    """Positions at which `pattern`, at least one id, starts in `tokens`."""
    last = tokens.size - pattern.size + 1
    if last <= 0:
        return np.empty(0, np.int64)
    hits = np.flatnonzero(tokens[:last] == pattern[0])
    for offset in range(1, pattern.size):
        hits = hits[tokens[hits + offset] == pattern[offset]]
    return hits


class RecordedText:
    """All that the turns sampled and that the first prompt said, to be searched."""

    def __init__(self, history: History, token_bytes: TokenBytes | None) -> None:
        self._token_bytes = token_bytes
        parts = [turn.completion_ids for turn in history.turns]
        parts += [history.ids(0, 0, int(history.prompt_lengths[0]))] if len(history) else []
        # what turns stopped on ends a message
        self.enders = np.unique(
            [turn.completion_ids[-1:] for turn in history.turns if _stopped(turn)]
        )
        # a separator that is no unit of text keeps matches inside of one completion
        self._text = b"\xff\xff\xff\xff".join(self._units(ids) for ids in parts)

    def __contains__(self, span: Ids) -> bool:
        wanted = self._units(self._trimmed(span))
        # a match counts only where it starts on a unit of four bytes
        found = (hit.start() for hit in re.finditer(re.escape(wanted), self._text))
        return any(start % 4 == 0 for start in found)

    def _units(self, ids: Ids) -> bytes:
        table = self._token_bytes
        if table is None or table.first_unknown(ids) is not None:
            return ids.astype("<i4").tobytes()
        return table.symbols(ids).astype("<i4").tobytes()

    def _trimmed(self, span: Ids) -> Ids:
        """Without the template's tokens at both ends: stop token, line breaks, an empty thought."""
        table = self._token_bytes
        if table is None or table.first_unknown(span) is not None:
            return span
        said = np.flatnonzero(~table.template_owned(span))
        return span[said[0] : said[-1] + 1] if said.size else span[:0]


def check_recorded(
    chunk: int,
    sample: Sample,
    placements: Sequence[Placement],
    opener: Ids,
    recorded: RecordedText,
    token_bytes: TokenBytes | None,
    findings: Findings,
) -> None:
    """Report every assistant message in the context of a sample that no turn recorded.

    Args:
        chunk: index of the sample.
        sample: the sample.
        placements: the completions it holds, in order of position.
        opener: ids that open an assistant message, at least one.
        recorded: what is known to have been said.
        token_bytes: the bytes behind every id; None where they are not known.
        findings: takes the findings.
    """
    tokens, mask = sample.tokens, sample.loss_mask
    hits = occurrences(tokens, opener)
    ends = hits + opener.size
    # an opener that the model itself sampled opens nothing
    hits = hits[~mask[ends - 1]]
    starts = np.array([placement.start for placement in placements], np.int64)
    opening = int(starts[0]) if starts.size else 0
    # a completion stands behind the last opener before it
    owned = np.unique(np.searchsorted(hits + opener.size, starts, side="right") - 1)
    unowned = np.setdiff1d(np.arange(hits.size), owned)
    for number in unowned.tolist():
        start = int(hits[number]) + opener.size
        stop = _message_end(tokens, start, hits, number, recorded.enders, token_bytes)
        if start < opening and tokens[start:stop] in recorded:
            continue
        later = np.searchsorted(starts, start)
        turn = placements[int(later)].turn if later < starts.size else None
        findings.add(
            FindingKind.UNRECORDED,
            "an assistant message stands in the context that no turn recorded",
            turn=turn,
            chunk=chunk,
            span=(start, max(stop, min(start + 1, tokens.size))),
            tokens=tokens,
        )


def _message_end(
    tokens: Ids,
    start: int,
    hits: npt.NDArray[np.int64],
    number: int,
    enders: npt.NDArray[np.integer],
    token_bytes: TokenBytes | None,
) -> int:
    """One past the message: what ends a turn, a control token behind some text, or the next opener."""
    stop = int(hits[number + 1]) if number + 1 < hits.size else int(tokens.size)
    body = tokens[start:stop]
    ended = np.flatnonzero(np.isin(body, enders))
    if ended.size:
        return start + int(ended[0])
    if token_bytes is None or token_bytes.first_unknown(body) is not None:
        return stop
    special = np.isin(body, np.fromiter(token_bytes.special, np.int64, len(token_bytes.special)))
    said = np.flatnonzero(~token_bytes.template_owned(body))
    if not said.size:
        return stop
    closing = np.flatnonzero(special[said[0] :])
    return start + int(said[0] + closing[0]) if closing.size else stop
