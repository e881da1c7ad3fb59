"""Conformance: every invariant against a subject of yours, and a report.

    report = Conformance(my_assembler).run()
    assert report.passed, report

Invariants with REQUIRED hold for whatever makes training samples out of turns. OPTIONAL ones concern
what only some do: their abilities are probed, and what a subject does not do is not held against it.
Cases are drawn and shrunk by Hypothesis, the same ones in every run. It needs the extra `testing`, but
no pytest.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .abilities import Ability, abilities_of
from .case_strategies import drift_cases, replay_cases, simulated_cases
from .cases import Case, Failure
from .checks import CHECKS, Check, Scenario
from .simulator import Chat
from .subject import OWN_ASSEMBLER, Subject, own_assembler

_ALL_HEALTH_CHECKS = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)


class Status(StrEnum):
    """How a subject did on one invariant."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not_applicable"


@dataclass(frozen=True)
class Outcome:
    """One invariant's outcome.

    Attributes:
        invariant: its name.
        required: whether every subject must hold it.
        status: how it went.
        examples: cases that were tried.
        reason: why it is not applicable, or what failed; "" where it passed.
        failure: the failure with its smallest case, if any.
    """

    invariant: str
    required: bool
    status: Status
    examples: int = 0
    reason: str = ""
    failure: Failure | None = None

    def __str__(self) -> str:
        """One line."""
        return f"{self.status.value:14} {self.invariant:12} {self.reason}".rstrip()


@dataclass(frozen=True)
class Report:
    """The outcomes of all invariants that were run.

    Attributes:
        subject: its name.
        outcomes: one per invariant.
    """

    subject: str
    outcomes: tuple[Outcome, ...]

    @property
    def failures(self) -> tuple[Failure, ...]:
        """The failures, each with its case."""
        return tuple(o.failure for o in self.outcomes if o.failure is not None)

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def to_json(self) -> dict[str, Any]:
        """The report as plain values; failures with their cases."""
        return {
            "subject": self.subject,
            "passed": self.passed,
            "outcomes": [
                {
                    "invariant": outcome.invariant,
                    "required": outcome.required,
                    "status": outcome.status.value,
                    "examples": outcome.examples,
                    "reason": outcome.reason,
                }
                for outcome in self.outcomes
            ],
            "failures": [failure.to_json(self.subject) for failure in self.failures],
        }

    def __str__(self) -> str:
        """A line per invariant, then every failure with its case."""
        lines = [f"{self.subject}: {'passed' if self.passed else 'FAILED'}"]
        lines += [f"  {outcome}" for outcome in self.outcomes]
        lines += [f"\n{failure}\n{failure.case!r}" for failure in self.failures]
        return "\n".join(lines)


@dataclass
class Conformance:
    """A subject, what it is tried on, and how often.

    Attributes:
        subject: turns (dicts with the fields of `Turn`) to samples; see `t1_tito.testing.subject`.
        name: how reports and cases name it, as "pkg:callable" so that cases can run again.
        chat: tokenizer and template of all cases; None for tiny ones drawn at random.
        examples: cases per invariant.
    """

    subject: Callable[..., object] = own_assembler
    name: str = OWN_ASSEMBLER
    chat: Chat | None = None
    examples: int = 50
    _abilities: Mapping[Ability, str] | None = field(default=None, init=False, repr=False)

    def run(self, only: Iterable[str] | None = None) -> Report:
        """Run invariants.

        Args:
            only: their names; None for all.

        Raises:
            KeyError: there is no invariant of a name.
        """
        names = list(CHECKS) if only is None else list(only)
        return Report(self.name, tuple(map(self.check, names)))

    def check(self, invariant: str) -> Outcome:
        """Run one invariant.

        Raises:
            KeyError: there is no such invariant.
        """
        check = CHECKS[invariant]
        subject = Subject(self.subject)
        if not check.required:
            if self._abilities is None:
                self._abilities = abilities_of(subject)
            missing = [a for a in check.needs if self._abilities[a]]
            if missing:
                reason = self._abilities[missing[0]]
                return Outcome(invariant, False, Status.NOT_APPLICABLE, reason=reason)
        return self._tried(check, subject)

    def _tried(self, check: Check, subject: Subject) -> Outcome:
        failed: list[tuple[Exception, Case]] = []
        count = 0

        def holds(case: Case) -> None:
            nonlocal count
            count += 1
            try:
                check.run(subject, case)
            except Exception as error:
                # Hypothesis tries the smallest case last
                failed.append((error, case))
                raise

        _search(self._cases(check.scenario), holds, self.examples)
        if not failed:
            return Outcome(check.name, check.required, Status.PASSED, count)
        failure = Failure.of(check.name, *failed[-1])
        return Outcome(
            check.name, check.required, Status.FAILED, count, str(failure).splitlines()[0], failure
        )

    def _cases(self, scenario: Scenario) -> st.SearchStrategy[Case]:
        chats = None if self.chat is None else st.just(self.chat)
        strategies = {
            Scenario.SIMULATED: simulated_cases,
            Scenario.REPLAY: replay_cases,
            Scenario.DRIFT: drift_cases,
        }
        return strategies[scenario](chats)


def quiet(search: Callable[..., None], examples: int) -> Callable[[], None]:
    """A Hypothesis search without a database, a deadline or chance."""
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        print_blob=False,
        suppress_health_check=_ALL_HEALTH_CHECKS,
        phases=(Phase.generate, Phase.shrink),
    )(search)


def _search(cases: st.SearchStrategy[Case], holds: Callable[[Case], None], examples: int) -> None:
    """Try cases until one fails, and shrink it; the failure is recorded by `holds`."""
    try:
        quiet(given(cases)(holds), examples)()
    except Exception:  # recorded by `holds`, with its case
        return


def conforms(subject: Callable[..., object], *, examples: int = 50) -> Report:
    """Run every invariant against a subject."""
    return Conformance(subject, name=_name_of(subject), examples=examples).run()


def _name_of(subject: Callable[..., object]) -> str:
    module = getattr(subject, "__module__", "?")
    return f"{module}:{getattr(subject, '__qualname__', type(subject).__qualname__)}"
