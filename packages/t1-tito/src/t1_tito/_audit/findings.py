"""Collecting findings: all are counted, the first hundred of each kind are kept with a window."""

from collections import Counter

from t1_tito.audit_report import Finding, FindingKind
from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import Ids

from .windows import window

_KEPT_PER_KIND = 100


class Findings:
    """The findings of one audit, in the order of their kinds' declaration."""

    def __init__(self, token_bytes: TokenBytes | None) -> None:
        self._token_bytes = token_bytes
        self._kept: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def add(
        self,
        kind: FindingKind,
        why: str,
        *,
        turn: int | None = None,
        chunk: int | None = None,
        span: tuple[int, int] | None = None,
        tokens: Ids | None = None,
    ) -> None:
        """Record one finding.

        Args:
            kind: which promise is broken.
            why: what is wrong.
            turn: index of the turn concerned.
            chunk: index of the sample.
            span: positions [start, stop) of the sample that are wrong.
            tokens: the sample's tokens, for the window.
        """
        self.counts[kind.value] += 1
        if self.counts[kind.value] > _KEPT_PER_KIND:
            return
        shown = ""
        if span is not None and tokens is not None:
            shown = window(tokens, *span, self._token_bytes)
        position = None if span is None else span[0]
        self._kept.append(Finding(kind, turn, chunk, position, why, shown))

    def kept(self) -> tuple[Finding, ...]:
        """The findings that were kept, those of one kind together."""
        order = {kind: rank for rank, kind in enumerate(FindingKind)}
        return tuple(sorted(self._kept, key=lambda finding: order[finding.kind]))
