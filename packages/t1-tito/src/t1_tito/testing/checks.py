"""The invariants that a conformance run tries, what each is tried on, and what it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from t1_tito.errors import FidelityError

from .abilities import Ability
from .byte_invariants import check_boundary, check_guard, check_ladder, check_nocopy
from .cases import Case
from .invariants import check_split, check_synth
from .sample_invariants import (
    check_sample_append,
    check_sample_bytes,
    check_sample_cond,
    check_sample_emit,
    check_sample_logp,
    check_sample_once,
)
from .subject import Subject


class Scenario(StrEnum):
    """What kind of trials an invariant is tried on."""

    SIMULATED = "simulated"
    """Harnesses with any habit and any accident."""
    REPLAY = "replay"
    """Every id is replayed."""
    DRIFT = "drift"
    """Every id is replayed until history is spelled otherwise from one turn on."""


@dataclass(frozen=True)
class Check:
    """One invariant of a conformance run.

    Attributes:
        name: its name.
        says: what it says, in a line.
        run: tries it on a case; raises what is wrong.
        scenario: what it is tried on.
        needs: abilities that a subject must have for it to apply; none where it is required.
    """

    name: str
    says: str
    run: Callable[[Subject, Case], None]
    scenario: Scenario = Scenario.SIMULATED
    needs: tuple[Ability, ...] = ()

    @property
    def required(self) -> bool:
        """Whether every subject must hold it."""
        return not self.needs


def _shape(subject: Subject, case: Case) -> None:
    subject.samples(case)


def _emit(subject: Subject, case: Case) -> None:
    check_sample_emit(subject.samples(case), case.turns)


def _once(subject: Subject, case: Case) -> None:
    check_sample_once(subject.samples(case), case.turns)


def _logp(subject: Subject, case: Case) -> None:
    check_sample_logp(subject.samples(case), case.turns)


def _cond(subject: Subject, case: Case) -> None:
    check_sample_cond(subject.samples(case), case.turns)


def _bytes(subject: Subject, case: Case) -> None:
    check_sample_bytes(subject.samples(case), case.turns, case.token_bytes)


def _append(subject: Subject, case: Case) -> None:
    whole = subject.samples(case)
    for count in range(1, len(case.turns)):
        check_sample_append(subject.samples(case, case.turns[:count]), whole)


def _idempotent(subject: Subject, case: Case) -> None:
    count = len(subject.samples(case))
    if count != 1:
        raise FidelityError(
            "idempotent", None, None, f"every id was replayed, and {count} samples came of it"
        )


def _drift(subject: Subject, case: Case) -> None:
    samples = subject.samples(case)
    check_sample_once(samples, case.turns)
    clean = len(subject.samples(case, case.clean))
    if len(samples) > clean + 1:
        raise FidelityError(
            "drift_local",
            None,
            None,
            f"history was spelled otherwise once, and {clean} samples became {len(samples)}",
        )


def _provenance(subject: Subject, case: Case) -> None:
    """Every named origin holds the token that stands there."""
    prompts = [[*turn.prompt_ids.tolist(), *turn.completion_ids.tolist()] for turn in case.turns]
    for c, sample in enumerate(subject.samples(case)):
        for j, (i, index) in enumerate(sample.source or ()):
            known = 0 <= i < len(prompts) and 0 <= index < len(prompts[i])
            if not known or prompts[i][index] != sample.tokens[j]:
                raise FidelityError("provenance", c, j, f"index {index} of turn {i} is another id")


_ORIGINS, _TRIALS = (Ability.NAMES_ORIGINS,), (Ability.RETURNS_TRIALS,)

CHECKS = {
    check.name: check
    for check in (
        Check("shape", "tokens, mask and log-probabilities are of one length", _shape),
        Check("emit", "what carries loss was sampled, id for id", _emit),
        Check("once", "every sampled token carries loss exactly once", _once),
        Check("logp", "with its own log-probability; 0 without loss", _logp),
        Check("cond", "every completion stands behind its prompt", _cond),
        Check("bytes", "no text is lost or doubled where a sample goes on", _bytes),
        Check("append", "more turns leave the samples of fewer as beginnings", _append),
        Check(
            "idempotent",
            "replayed ids give one sample",
            _idempotent,
            Scenario.REPLAY,
            (Ability.MERGES,),
        ),
        Check(
            "drift_local",
            "another spelling of history costs one sample at most and no loss",
            _drift,
            Scenario.DRIFT,
            (Ability.MERGES,),
        ),
        Check("provenance", "named origins hold the token", _provenance, needs=_ORIGINS),
        Check(
            "split",
            "chunks open with a whole prompt",
            lambda subject, case: check_split(subject.trial(case), case.turns),
            needs=_TRIALS,
        ),
        Check(
            "synth",
            "invented ids are marked",
            lambda subject, case: check_synth(subject.trial(case), case.turns),
            needs=_TRIALS,
        ),
        Check(
            "nocopy",
            "no completion enters twice",
            lambda subject, case: check_nocopy(subject.trial(case), case.turns, case.token_bytes),
            needs=_TRIALS,
        ),
        Check(
            "ladder",
            "boundaries are what trying every pair gives",
            lambda subject, case: check_ladder(subject.trial(case), case.turns, case.token_bytes),
            needs=_TRIALS,
        ),
        Check(
            "guard",
            "what was dropped is not said again",
            lambda subject, case: check_guard(subject.trial(case), case.turns, case.token_bytes),
            needs=_TRIALS,
        ),
        Check(
            "boundary",
            "re-tokenized spans spell the completion",
            lambda subject, case: check_boundary(subject.trial(case), case.turns, case.token_bytes),
            needs=_TRIALS,
        ),
    )
}
"""Every invariant of a conformance run, by name."""
