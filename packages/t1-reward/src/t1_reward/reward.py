"""The reward of one trial, as pure functions of one frozen record.

With a report, r = P / S: the number of assertions that passed over a scale that is fixed for a run
(the paper's section 5; r may exceed 1). Without one, but with a terminal outcome b, the fallback
decides: "scaled" gives b·T*/S, what a solved trial of this task earns with a report; "paper" gives b.
Without both there is no reward: None, to be masked, never 0.

Invariants: r never falls when one more assertion passes; assertions a task does not list do not count,
and listed ones that are not reported count as failed; a record read back from JSON scores
bit for bit what it scored before. No function looks at any other trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    model_validator,
)

from t1_reward.errors import RecordError, first_problem
from t1_reward.report import Cause, VerifierReport

__all__ = ["Fallback", "RewardRecord", "Variant", "Verdict", "rescore", "score"]

Variant = Literal["test_count", "binary"]
Fallback = Literal["scaled", "paper"]
Binary = Annotated[int, Field(ge=0, le=1)]


@dataclass(frozen=True)
class Verdict:
    """What verification of one trial found.

    Attributes:
        report: the assertions, or None.
        cause: why there is no report, or `Cause.OK`.
        listed: assertion ids of the task; empty when the task does not list them.
        assertion_count: T*, how many assertions the task has; 0 when it does not say.
        stated: terminal outcome the verifier stated apart from its report, 0 or 1, or None.
        output: what the verifier printed, for people.
        detail: what the infrastructure said, when it failed; for people.
    """

    report: VerifierReport | None
    cause: Cause
    listed: tuple[str, ...] = ()
    assertion_count: int = 0
    stated: int | None = None
    output: str = ""
    detail: str = ""

    @property
    def passed(self) -> int | None:
        """P, the number of passed assertions that count; None without a report."""
        if self.report is None:
            return None
        passed = self.report.passed
        return len(passed.intersection(self.listed)) if self.listed else len(passed)

    @property
    def total(self) -> int:
        """T, the number of assertions that count; without a report, T* if known, else 0."""
        if self.listed:
            return len(self.listed)
        return max(self.assertion_count, len(self.report.assertions) if self.report else 0)

    @property
    def binary(self) -> int | None:
        """b: 1 if every assertion passed, 0 if not; without a report, what the verifier stated."""
        if self.report is None:
            return self.stated
        return int(self.passed == self.total)


class RewardRecord(BaseModel):
    """Everything the reward of one trial depends on, and the reward.

    Checked wherever a record is read or scored: where there is a P, the cause is `Cause.OK`, P is at
    most T, and b says whether P is T.

    Attributes:
        passed: P; None without a report.
        total: T.
        scale: S.
        binary: b; None when unknown.
        reward: r; None means invalid, to be masked.
        cause: why there is no report, or `Cause.OK`.
        variant: `test_count` (r = P/S) or `binary` (r = b).
        fallback: what b earns without a report under `test_count`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    schema_version: Literal[1] = 1
    passed: NonNegativeInt | None
    total: NonNegativeInt
    scale: PositiveInt
    binary: Binary | None
    reward: float | None
    cause: Cause
    variant: Variant
    fallback: Fallback

    @model_validator(mode="after")
    def _is_consistent(self) -> "RewardRecord":
        if self.passed is None:
            return self
        if self.cause is not Cause.OK:
            raise ValueError(f"expected cause {Cause.OK.value!r} where there is a report")
        if self.passed > self.total:
            raise ValueError(f"expected passed of at most total {self.total}, got {self.passed}")
        if self.binary != int(self.passed == self.total):
            raise ValueError(f"expected binary to say whether passed is total, got {self.binary}")
        return self

    @classmethod
    def from_json(cls, text: str | bytes) -> "RewardRecord":
        """Returns a stored record.

        Raises:
            RecordError: not a record, or its reward is not what its other fields give.
        """
        try:
            record = cls.model_validate_json(text)
        except ValidationError as error:
            raise _invalid(error) from error
        expected = rescore(record).reward
        if record.reward != expected:
            raise RecordError(
                f"reward record: reward: expected {expected} from the other fields, got {record.reward}"
            )
        return record


def score(
    verdict: Verdict,
    *,
    scale: int,
    variant: Variant = "test_count",
    fallback: Fallback = "scaled",
) -> RewardRecord:
    """Returns the reward of a verdict.

    Args:
        verdict: what verification found.
        scale: S, fixed for a run; at least 1.
        variant: how a report becomes a reward.
        fallback: how a terminal outcome without a report becomes one.

    Raises:
        RecordError: scale is below 1, there is no such variant or fallback, or the verdict
            contradicts itself.
    """
    return _score(
        {
            "passed": verdict.passed,
            "total": verdict.total,
            "scale": scale,
            "binary": verdict.binary,
            "cause": verdict.cause,
            "variant": variant,
            "fallback": fallback,
        }
    )


def rescore(
    record: RewardRecord,
    *,
    scale: int | None = None,
    variant: Variant | None = None,
    fallback: Fallback | None = None,
) -> RewardRecord:
    """Returns the record under another scale, variant or fallback; by default under its own.

    Raises:
        RecordError: scale is below 1, there is no such variant or fallback, or the record
            contradicts itself.
    """
    changes = {"scale": scale, "variant": variant, "fallback": fallback}
    wanted = {name: value for name, value in changes.items() if value is not None}
    return _score({**dict(record), **wanted})


def _score(fields: Mapping[str, object]) -> RewardRecord:
    try:
        record = RewardRecord.model_validate({**fields, "reward": None})
    except ValidationError as error:
        raise _invalid(error) from error
    return record.model_copy(update={"reward": _reward(record)})


def _invalid(error: ValidationError) -> RecordError:
    return RecordError(f"reward record: {first_problem(error, 'the record')}")


def _reward(record: RewardRecord) -> float | None:
    if record.variant == "test_count" and record.passed is not None:
        return record.passed / record.scale
    if record.binary is None:
        return None
    if record.variant == "binary" or record.fallback == "paper":
        return float(record.binary)
    # a task that does not say how many assertions it has has at least one
    return record.binary * max(record.total, 1) / record.scale
