r"""Reading a verifier's report: which assertions exist and which of them passed.

A report is TAP: a plan `1..N` and one line per assertion, `ok 1 - id` or `not ok 2 - id`. Reading
is total: any bytes give a report or the cause why there is none, in time linear in the bytes, of
which more than `MAX_REPORT_BYTES` are never looked at. A report that stops short of its plan is no report.
An assertion directed to SKIP or TODO did not pass; an id reported twice passed only if it always did.
A `#` begins a directive or a comment when white space or one of these two words follows; any other,
and an escaped one (`\#`), belongs to the id.

The reader does not know which assertions a task should have.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["MAX_REPORT_BYTES", "Assertion", "Cause", "VerifierReport", "read_report"]

MAX_REPORT_BYTES = 1 << 18


class Cause(StrEnum):
    """Why there is, or is not, a report; the closed list of what can have happened."""

    OK = "ok"
    """A complete report."""
    REPORT_MISSING = "report_missing"
    """The verifier ended without writing a report."""
    REPORT_OVERSIZE = "report_oversize"
    """The report is longer than `MAX_REPORT_BYTES`."""
    REPORT_MALFORMED = "report_malformed"
    """The report is not TAP."""
    REPORT_TRUNCATED = "report_truncated"
    """The report stops short of its plan or has none."""
    REPORT_EMPTY = "report_empty"
    """The report's plan is 1..0."""
    VERIFIER_TIMEOUT = "verifier_timeout"
    """The verifier did not end in time."""
    SANDBOX_LOST = "sandbox_lost"
    """The sandbox ended before the verifier did."""
    TESTS_CHANGED = "tests_changed"
    """The mounted tests are not what was mounted."""


@dataclass(frozen=True)
class Assertion:
    """One assertion: its id and whether it passed."""

    id: str
    passed: bool


@dataclass(frozen=True)
class VerifierReport:
    """What the verifier said, in its order, every id once."""

    assertions: tuple[Assertion, ...]

    @property
    def passed(self) -> frozenset[str]:
        """The ids of the assertions that passed."""
        return frozenset(assertion.id for assertion in self.assertions if assertion.passed)


_PLAN = re.compile(r"1\.\.(\d{1,6})\s*(?:#.*)?")
_DIRECTIVE = re.compile(r"(?<!\\)#(?=\s|skip|todo)", re.IGNORECASE)
# comments, YAML details and subtests (both indented), version and pragma lines carry no outcome
_IGNORED = re.compile(r"#.*|\s.*|TAP version \d+\s*|pragma .*|")


def read_report(data: bytes | None) -> tuple[VerifierReport | None, Cause]:
    """Returns the report, or None and the cause.

    Args:
        data: what the verifier wrote; None or nothing counts as missing.
    """
    if not data:
        return None, Cause.REPORT_MISSING
    if len(data) > MAX_REPORT_BYTES:
        return None, Cause.REPORT_OVERSIZE
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError:
        return None, Cause.REPORT_MALFORMED
    return _read_lines(lines)


def _read_lines(lines: list[str]) -> tuple[VerifierReport | None, Cause]:
    planned: int | None = None
    outcomes: dict[str, bool] = {}
    count = 0
    for line in lines:
        if line.startswith("Bail out!"):
            return None, Cause.REPORT_TRUNCATED
        if test := _read_test(line):
            count += 1
            name = test.id or str(count)
            outcomes[name] = outcomes.get(name, True) and test.passed
        elif (plan := _PLAN.fullmatch(line)) and planned is None:
            planned = int(plan[1])
        elif not _IGNORED.fullmatch(line):
            return None, Cause.REPORT_MALFORMED
    return _conclude(outcomes, count, planned)


def _read_test(line: str) -> Assertion | None:
    rest = line.removeprefix("not ")
    verb, _, rest = rest.partition(" ")
    if verb.rstrip("\r") != "ok":
        return None
    description, *directive = _DIRECTIVE.split(rest, maxsplit=1)
    number, _, after_number = description.strip().partition(" ")
    name = after_number if number.isdecimal() else description
    name = name.strip().removeprefix("- ").strip().replace("\\#", "#")
    skipped = "".join(directive).strip().upper().startswith(("SKIP", "TODO"))
    return Assertion(name, line.startswith("ok") and not skipped)


def _conclude(
    outcomes: dict[str, bool], count: int, planned: int | None
) -> tuple[VerifierReport | None, Cause]:
    if planned == 0 and count == 0:
        return None, Cause.REPORT_EMPTY
    if planned is None or count < planned:
        return None, Cause.REPORT_TRUNCATED
    if count > planned:
        return None, Cause.REPORT_MALFORMED
    assertions = tuple(Assertion(name, passed) for name, passed in outcomes.items())
    return VerifierReport(assertions), Cause.OK
