"""What an audit says: the three drift measures, the partition, the findings, the worst boundaries.

A finding is a broken promise at a place. Drift is not: a repaired boundary is sound and still shows
later turns other ids than the stream holds, so it is measured and not reported as a fault.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .errors import FidelityError
from .partition import Partition


class FindingKind(StrEnum):
    """Which promise is broken."""

    ALIGNMENT = "alignment"
    """The arrays of a sample disagree in length, or there is no sample or turn."""
    PROVENANCE = "provenance"
    """A source does not exist, or a position with loss or its kind contradicts its source."""
    EMISSION = "emission"
    """A position with loss holds another id than its turn sampled."""
    CONTEXT = "context"
    """A position without loss holds another id than its source."""
    LOGPROB = "logprob"
    """A log-probability is not the sampler's, bit for bit, or is not 0 where there is no loss."""
    ONCE = "once"
    """A sampled token is trained never, or more than once."""
    CONDITIONING = "conditioning"
    """The ids before a completion are not its prompt, and no sound boundary explains it."""
    BYTES = "bytes"
    """Text is lost or doubled at a boundary."""
    UNRECORDED = "unrecorded"
    """An assistant message stands in the context that no turn recorded."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise.

    Attributes:
        kind: which.
        turn: index of the turn concerned, None where none is.
        chunk: index of the sample, None where it concerns the trial.
        position: first offending position of that sample, None where there is none.
        why: what is wrong there.
        window: tokens around it, decoded where a byte table is given, the place marked.
    """

    kind: FindingKind
    turn: int | None
    chunk: int | None
    position: int | None
    why: str
    window: str = ""

    def __str__(self) -> str:
        """Kind and place before the problem, the window on a line of its own."""
        places = {"turn": self.turn, "chunk": self.chunk, "position": self.position}
        where = ", ".join(f"{name} {at}" for name, at in places.items() if at is not None)
        head = f"{self.kind} ({where})" if where else self.kind.value
        return f"{head}: {self.why}" + (f"\n    {self.window}" if self.window else "")


@dataclass(frozen=True, slots=True)
class BoundaryAudit:
    """One boundary that is not a plain continuation, as the auditor found it.

    Attributes:
        turn: index of the later turn.
        chunk: index of the sample that holds it.
        position: where the later turn's own context starts.
        relation: "respelled", "dropped", "changed" or "new_chunk".
        drifted: stream positions that the later prompt shows in other ids or not at all.
        repeated: context tokens that a new sample had to open with.
        stream_window: what was said until then, from a few tokens before the first difference on,
            which is marked.
        prompt_window: what the later prompt has instead.
    """

    turn: int
    chunk: int
    position: int
    relation: str
    drifted: int
    repeated: int
    stream_window: str
    prompt_window: str

    def __str__(self) -> str:
        """One line, then the two windows."""
        head = (
            f"turn {self.turn}, chunk {self.chunk}, position {self.position}: {self.relation}, "
            f"{self.drifted} drifted, {self.repeated} repeated"
        )
        return f"{head}\n    stream: {self.stream_window}\n    prompt: {self.prompt_window}"


@dataclass(frozen=True)
class AuditReport:
    """What one trial holds, measured against its raw turns.

    Attributes:
        turns: number of turns.
        chunks: number of samples.
        tokens: stream positions over all samples.
        loss_tokens: positions with loss.
        sampled_tokens: tokens that the turns sampled.
        emission_drift: loss positions whose token is not its own turn's completion token; must be 0.
        context_drift: stream positions whose token run differs from what a later turn of the same
            sample was shown; run by run where bytes are known, else the whole differing run.
        conditioning_exact: share of loss tokens, in [0, 1], whose full stream prefix equals the
            prompt and completion prefix that they were sampled under.
        partition: A/D/P of equation 11 of the paper over all positions.
        loss_partition: the same over the positions with loss.
        synthetic_tokens: positions that a renderer made up.
        boundaries: how often each reason occurs.
        worst: up to ten boundaries with the most drifted and repeated tokens.
        findings: broken promises, the first hundred of each kind.
        finding_counts: number of findings of each kind that occurs.
    """

    turns: int
    chunks: int
    tokens: int
    loss_tokens: int
    sampled_tokens: int
    emission_drift: int
    context_drift: int
    conditioning_exact: float
    partition: Partition
    loss_partition: Partition
    synthetic_tokens: int
    boundaries: Mapping[str, int]
    worst: tuple[BoundaryAudit, ...]
    findings: tuple[Finding, ...]
    finding_counts: Mapping[str, int]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def context_drift_share(self) -> float:
        """Drifted share of all stream positions, in [0, 1]."""
        return self.context_drift / self.tokens if self.tokens else 0.0

    @property
    def synthetic_share(self) -> float:
        """Share of all stream positions that a renderer made up, in [0, 1]."""
        return self.synthetic_tokens / self.tokens if self.tokens else 0.0

    def raise_on_findings(self) -> None:
        """Turn the first finding into an exception.

        Raises:
            FidelityError: with the finding's kind, chunk and position.
        """
        for finding in self.findings:
            turn = "" if finding.turn is None else f"turn {finding.turn}: "
            window = f" | {finding.window}" if finding.window else ""
            raise FidelityError(
                finding.kind.value,
                finding.chunk,
                finding.position,
                f"{turn}{finding.why}{window}",
            )

    def to_json(self) -> dict[str, object]:
        """The report as plain values for `json.dumps`."""
        return {
            **dataclasses.asdict(self),
            "ok": self.ok,
            "context_drift_share": self.context_drift_share,
            "synthetic_share": self.synthetic_share,
        }

    def __str__(self) -> str:
        """The measures, then findings, then the worst boundaries, as lines of text."""
        lines = [
            f"{self.turns} turns, {self.chunks} chunks, {self.tokens} tokens",
            f"tokens with loss    {self.loss_tokens} of {self.sampled_tokens} sampled",
            f"emission drift      {self.emission_drift}",
            f"context drift       {self.context_drift} ({self.context_drift_share:.3%})",
            f"conditioning exact  {self.conditioning_exact:.3%}",
            f"aligned/retokenized/placeholder  {self.partition}, with loss {self.loss_partition}",
            f"synthetic tokens    {self.synthetic_tokens} ({self.synthetic_share:.3%})",
            "boundaries          "
            + (", ".join(f"{n} {name}" for name, n in self.boundaries.items()) or "none"),
        ]
        if self.worst:
            lines += ["", "boundaries with the most drifted or repeated tokens:"]
            lines += [f"  {boundary}" for boundary in self.worst]
        total = sum(self.finding_counts.values())
        lines += ["", f"{total} findings" if total else "no findings"]
        return "\n".join(lines + [f"  {finding}" for finding in self.findings])
