"""The boundary between two turns: how the next prompt continues what was said before.

Written T = p‖a for the earlier turn and p' for the later prompt. The first case that holds decides:

    STRICT       (equation 6)  T is a prefix of p'
    NORMALIZED   (equation 7)  it is, once s scaffold ids are dropped from p and u tail ids from a
    RETOKENIZED  (equation 8)  p' spells the same bytes in other ids
    SPLIT        (equation 9)  none of these; a new chunk opens with the whole of p'

These are the values that a decision consists of; `t1_tito.ladder` takes it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple


class BoundaryCase(StrEnum):
    """Which case of the ladder a boundary falls under, strongest first."""

    STRICT = "strict"
    """The later prompt starts with every id of the earlier turn."""
    NORMALIZED = "normalized"
    """It does, but for the end of the generation prompt, or for stop tokens and whitespace."""
    RETOKENIZED = "retokenized"
    """It spells the earlier turn in other ids, byte for byte."""
    SPLIT = "split"
    """It does not; the trial goes on in a new chunk."""


class Reason(StrEnum):
    """Why a boundary falls under its case."""

    EXTENDS = "extends"
    """STRICT: every id is repeated."""
    SCAFFOLD = "scaffold"
    """NORMALIZED: history lacks the end of the generation prompt (s > 0), as in an empty thought."""
    TAIL = "tail"
    """NORMALIZED: history lacks the stop token or whitespace at the completion's end (u > 0)."""
    SCAFFOLD_AND_TAIL = "scaffold_and_tail"
    """NORMALIZED: both."""
    SAME_BYTES = "same_bytes"
    """RETOKENIZED: same bytes, other ids."""
    ROLLBACK = "rollback"
    """SPLIT: history returns to an earlier point of the stream."""
    COMPACTION = "compaction"
    """SPLIT: the later prompt is shorter and leaves the stream before its first completion ends."""
    PRUNED = "pruned"
    """SPLIT: bytes of a turn are missing and its rest follows, as when a template drops reasoning."""
    TRUNCATED_TURN = "truncated_turn"
    """SPLIT: history differs inside a completion that was cut by a limit."""
    STRADDLING_TOKEN = "straddling_token"  # noqa: S105 a token of text
    """SPLIT: same bytes, but one id of the later prompt reaches across an edge of the completion."""
    PARTIAL_CHARACTER = "partial_character"
    """SPLIT: the completion ends inside a UTF-8 character; its decoded text matches, not its bytes."""
    UNICODE_NORMALIZED = "unicode_normalized"
    """SPLIT: equal only after Unicode normalisation (NFC)."""
    CONTROL_TOKEN = "control_token"  # noqa: S105 a token of text
    """SPLIT: the same letters, once as text and once as a control token."""
    TEXT_CHANGED = "text_changed"
    """SPLIT: the completion reads otherwise in the later prompt."""
    CONTEXT_CHANGED = "context_changed"
    """SPLIT: the later prompt differs before the completion starts."""
    NO_BYTE_TABLE = "no_byte_table"
    """SPLIT: the ids differ, and without a byte table nothing more can be said."""
    FORK = "fork"
    """SPLIT: the caller opened a new branch."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How boundaries are decided and repaired.

    Attributes:
        max_scaffold: largest s, ids dropped from the end of a prompt (the paper: 96).
        max_tail: largest u, ids dropped from the end of a completion (the paper: 16).
        repair: "keep" leaves prompt and completion as they were sampled and lets the later prompt's
            spelling go. "rewrite" removes the dropped ids of a NORMALIZED boundary from the stream,
            so that it equals the later prompt: u sampled tokens lose their loss, and with s > 0 the
            completion stands behind a prompt that it was not sampled under. A scaffold longer than what
            the turn added to the stream is kept.
        ladder: "proven" admits a drop only where nothing is lost or doubled, and compares bytes.
            "paper" is the ladder as printed: any (s, u) of the grid whose prefix matches, and
            decoded text instead of bytes. It doubles text where drift is near a completion's end
            and takes half characters for equal.
    """

    max_scaffold: int = 96
    max_tail: int = 16
    repair: Literal["keep", "rewrite"] = "keep"
    ladder: Literal["proven", "paper"] = "proven"

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        if self.max_scaffold < 0 or self.max_tail < 0:
            raise ValueError(
                f"max_scaffold and max_tail are numbers of ids >= 0, got {self.max_scaffold} and "
                f"{self.max_tail}"
            )
        if self.repair not in {"keep", "rewrite"}:
            raise ValueError(f'repair is "keep" or "rewrite", got {self.repair!r}')
        if self.ladder not in {"proven", "paper"}:
            raise ValueError(f'ladder is "proven" or "paper", got {self.ladder!r}')


class Boundary(NamedTuple):
    """The decision taken between turn `turn_index - 1` and turn `turn_index`.

    Attributes:
        turn_index: index of the later turn, >= 1.
        case: the case of the ladder that holds.
        reason: why.
        scaffold_dropped: s, ids at the end of the earlier prompt that the later one lacks.
        tail_dropped: u, ids at the end of the completion that the later prompt lacks.
        span: (b, e), the ids of the later prompt that stand for the completion; None where it is not
            found there.
        context_start: index in the later prompt from which on its ids enter as context.
        context_length: how many of them there are; they carry no loss.
        drifted: tokens of the stream that the later prompt lacks or spells in other ids.
        cost: ids and symbols read to decide, next to one comparison of a prompt given whole.
        detail: one sentence for people.
    """

    turn_index: int
    case: BoundaryCase
    reason: Reason
    scaffold_dropped: int
    tail_dropped: int
    span: tuple[int, int] | None
    context_start: int
    context_length: int
    drifted: int
    cost: int
    detail: str
