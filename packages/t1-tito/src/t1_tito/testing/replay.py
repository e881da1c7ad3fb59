"""Replay: run a saved case against its subject again."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from t1_tito.errors import FileFormatError

from .cases import Failure, read_case
from .checks import CHECKS
from .subject import Subject, load_subject


@dataclass(frozen=True)
class ReplayOutcome:
    """How a saved case went this time.

    Attributes:
        invariant: what was checked.
        subject: whose samples.
        failure: what is wrong; None where it holds now.
    """

    invariant: str
    subject: str
    failure: Failure | None

    @property
    def passed(self) -> bool:
        """Whether the invariant holds on the case."""
        return self.failure is None

    def __str__(self) -> str:
        """One line, and the case where it failed."""
        if self.failure is None:
            return f"{self.subject}: {self.invariant} holds on this case"
        return f"{self.subject}: {self.failure}\n{self.failure.case!r}"


def run_case(path: str | PathLike[str]) -> ReplayOutcome:
    """Run a saved case.

    Raises:
        FileFormatError: the file is no case, names an invariant that does not exist, or its subject
            cannot be imported.
    """
    content, case = read_case(Path(path))
    check = CHECKS.get(content["invariant"])
    if check is None:
        known = ", ".join(CHECKS)
        raise FileFormatError(
            f"{path}: there is no invariant {content['invariant']!r}; known are {known}"
        )
    subject = Subject(load_subject(content["subject"]))
    failure = None
    try:
        check.run(subject, case)
    except Exception as error:
        # whatever the subject raises is the outcome
        failure = Failure.of(check.name, error, case)
    return ReplayOutcome(check.name, content["subject"], failure)
