"""One audit from samples to report: read, follow, check, sum up."""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from t1_tito.audit_report import AuditReport, BoundaryAudit, FindingKind
from t1_tito.errors import FidelityError
from t1_tito.partition import Partition, partition
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Trial
from t1_tito.turn import FinishReason

from .checks import SampledTokens, check_logprobs, check_once, check_sources, check_tokens
from .findings import Findings
from .history import History
from .sample import Placement, Run, Sample, placements_of, read_sample, runs_of, sources
from .tracks import SeamRecord, Track
from .unrecorded import RecordedText, check_recorded
from .windows import spell

_WORST = 10
_Placed = list[tuple[Track, Placement]]


class AuditRun:
    """One audit: read the samples, follow them through the turns, check, report."""

    def __init__(
        self, history: History, token_bytes: TokenBytes | None, stop_ids: Iterable[int]
    ) -> None:
        self.history = history
        self.token_bytes = token_bytes
        self.findings = Findings(token_bytes)
        self.laid = SampledTokens(history)
        # without bytes, what any turn stopped on may be missing behind any other
        stopped = {
            int(turn.completion_ids[-1])
            for turn in history.turns
            if turn.finish_reason is FinishReason.STOP and token_bytes is None
        }
        self.stop_ids = np.array(sorted(stopped | set(stop_ids)), np.int64)
        self.numbers: list[int] = []
        self.samples: list[Sample] = []
        self.known: list[npt.NDArray[np.bool_]] = []
        self.sampled: list[npt.NDArray[np.int64]] = []
        self.wrong: list[npt.NDArray[np.bool_]] = []
        self.runs: dict[int, list[tuple[int, Run]]] = {}
        self.placements: list[list[Placement]] = []
        self.tracks: list[Track] = []
        self.synthetic = 0

    def read(self, given: list[object]) -> None:
        """Read the samples; one that cannot be read is a finding and left out."""
        if not given or not len(self.history):
            held = f"{len(self.history)} turns and {len(given)} samples"
            self.findings.add(FindingKind.ALIGNMENT, f"expected at least one of each, got {held}")
        taken: set[int] = set()
        for number, one in enumerate(given):
            try:
                sample = read_sample(number, one, self.history, taken)
            except FidelityError as error:
                self.findings.add(FindingKind.ALIGNMENT, error.problem, chunk=number)
                continue
            self._take(number, sample)

    def _take(self, number: int, sample: Sample) -> None:
        known = sources(sample, self.history)
        runs = runs_of(number, sample, known)
        for run in runs:
            self.runs.setdefault(run.turn, []).append((len(self.samples), run))
        self.numbers.append(number)
        self.samples.append(sample)
        self.known.append(known)
        self.sampled.append(self.laid.index(sample, known))
        self.wrong.append(np.zeros(sample.tokens.size, bool))
        self.placements.append(placements_of(runs, self.history))
        self.tracks.append(
            Track(number, sample, self.history, self.findings, self.token_bytes, self.stop_ids)
        )

    def follow(self) -> None:
        """Take the turns in order; compare what the samples hold of each."""
        placed: dict[int, _Placed] = {}
        for track, placements in zip(self.tracks, self.placements, strict=True):
            for placement in placements:
                placed.setdefault(placement.turn, []).append((track, placement))
        for turn in range(len(self.history)):
            for slot, run in self.runs.get(turn, ()):
                self._compare(slot, run)
            self._place(turn, placed.get(turn, []))
        for track in self.tracks:
            track.finish()

    def _place(self, turn: int, here: _Placed) -> None:
        if here:
            shared = self.history.shared(turn) if turn else None
            for track, placement in here:
                track.place(placement, shared)
        elif turn and not self.history.turns[turn].completion_ids.size:
            for track in self.tracks:
                if track.last_turn == turn - 1:
                    track.place_empty(turn, self.history.shared(turn))

    def _compare(self, slot: int, run: Run) -> None:
        stop = run.index + run.stop - run.start
        held = self.samples[slot].tokens[run.start : run.stop]
        different = held != self.history.ids(run.turn, run.index, stop)
        if different.any():
            self.wrong[slot][run.start : run.stop] = different
        turn = self.history.turns[run.turn]
        made_up = (turn.base_length, turn.base_length + turn.synthetic_length)
        self.synthetic += max(0, min(stop, made_up[1]) - max(run.index, made_up[0]))

    def check(self) -> None:
        """The checks of single tokens, and once over all samples."""
        for slot, sample in enumerate(self.samples):
            number, sampled = self.numbers[slot], self.sampled[slot]
            check_sources(number, sample, self.known[slot], sampled, self.findings)
            check_tokens(number, sample, self.wrong[slot], self.findings)
            check_logprobs(number, sample, sampled, self.laid, self.findings)
        everywhere = [one for placements in self.placements for one in placements]
        by_number = dict(zip(self.numbers, self.samples, strict=True))
        check_once(by_number, self.sampled, everywhere, self.laid, self.findings)

    def check_records(self, trial: Trial) -> None:
        """The records of a trial say where the completions are."""
        if len(trial.turns) != len(self.history):
            problem = f"{len(trial.turns)} records for {len(self.history)} turns"
            self.findings.add(FindingKind.ALIGNMENT, problem)
            return
        held = {(one.turn, one.chunk, one.start) for each in self.placements for one in each}
        for turn, record in enumerate(trial.turns):
            sizes = (record.prompt_length, record.length)
            actual = (int(self.history.prompt_lengths[turn]), int(self.history.lengths[turn]))
            misplaced = record.completion_length and (turn, record.chunk, record.start) not in held
            if sizes != actual or misplaced:
                self.findings.add(
                    FindingKind.PROVENANCE,
                    f"its record says chunk {record.chunk}, start {record.start} and sizes {sizes}; "
                    f"the arrays disagree",
                    turn=turn,
                )

    def find_unrecorded(self, opener: npt.NDArray[np.int32]) -> None:
        """Look for assistant messages that no turn recorded."""
        recorded = RecordedText(self.history, self.token_bytes)
        for slot, sample in enumerate(self.samples):
            check_recorded(
                self.numbers[slot],
                sample,
                self.placements[slot],
                opener,
                recorded,
                self.token_bytes,
                self.findings,
            )

    def report(self, reasons: Sequence[str] | None) -> AuditReport:
        """Sum up. `reasons` are those of the trial's own boundaries, None where it has none."""
        everything, with_loss = Partition(), Partition()
        drift = exact = 0
        for sample, track, wrong, sampled in zip(
            self.samples, self.tracks, self.wrong, self.sampled, strict=True
        ):
            wrong = wrong | (sample.loss_mask & (sampled < 0))  # noqa: PLW2901
            rowless = track.rowless | (sample.source_turn < 0)
            parts = partition(sample.loss_mask, wrong, track.drifted, rowless)
            everything, with_loss = everything + parts[0], with_loss + parts[1]
            drift += int(np.count_nonzero(track.drifted | wrong))
            exact += track.exact_loss
        losses = with_loss.total
        found = [relation for track in self.tracks for relation in track.relations]
        return AuditReport(
            turns=len(self.history),
            chunks=len(self.samples),
            tokens=everything.total,
            loss_tokens=losses,
            sampled_tokens=self.laid.total,
            emission_drift=self._emission_drift(),
            context_drift=drift,
            conditioning_exact=exact / losses if losses else 1.0,
            partition=everything,
            loss_partition=with_loss,
            synthetic_tokens=self.synthetic,
            boundaries=dict(Counter(found if reasons is None else reasons).most_common()),
            worst=self._worst(),
            findings=self.findings.kept(),
            finding_counts=dict(self.findings.counts),
        )

    def _emission_drift(self) -> int:
        return sum(
            int(np.count_nonzero(sample.loss_mask & (wrong | (sampled < 0))))
            for sample, wrong, sampled in zip(self.samples, self.wrong, self.sampled, strict=True)
        )

    def _worst(self) -> tuple[BoundaryAudit, ...]:
        seams = [seam for track in self.tracks for seam in track.seams]
        seams.sort(key=lambda seam: (-seam.drifted, -seam.repeated, seam.turn))
        return tuple(self._boundary(seam) for seam in seams[:_WORST])

    def _boundary(self, seam: SeamRecord) -> BoundaryAudit:
        held, shown = (
            spell(seam.left, self.token_bytes) + "⟦" + spell(ids, self.token_bytes)
            for ids in (seam.held, seam.shown)
        )
        return BoundaryAudit(
            seam.turn,
            seam.chunk,
            seam.position,
            seam.relation,
            seam.drifted,
            seam.repeated,
            held,
            shown,
        )
