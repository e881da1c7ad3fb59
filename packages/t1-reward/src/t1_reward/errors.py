"""The errors of this package.

    RewardError
    ├── TaskFormatError (ValueError)   a task directory or its task.toml is not what it must be
    ├── PoolError (ValueError)         a pool's directory or index is missing, torn or inconsistent
    ├── RecordError (ValueError)       a stored reward record cannot be read back or scored
    └── SynthesisError (ValueError)    a request to the task generator makes no sense

Every message names the file or field, what was expected there and what to do about it. What the
agent's work or a verifier's output looks like never raises: that is data, and it has causes
(`t1_reward.Cause`), not errors.
"""

from pydantic import ValidationError

__all__ = [
    "PoolError",
    "RecordError",
    "RewardError",
    "SynthesisError",
    "TaskFormatError",
    "first_problem",
]


class RewardError(Exception):
    """Base of every error this package raises on purpose."""


class TaskFormatError(RewardError, ValueError):
    """A task directory cannot be read: the message names the file and the field."""


class PoolError(RewardError, ValueError):
    """A pool cannot be built or opened: the message names the file and the line."""


class RecordError(RewardError, ValueError):
    """A reward record is inconsistent: the message names the field."""


class SynthesisError(RewardError, ValueError):
    """The task generator was asked for something it does not have."""


def first_problem(error: ValidationError, whole: str) -> str:
    """Returns the first problem of a document in words: the field, what was expected, what was there.

    Args:
        error: what pydantic raised.
        whole: what to call the document where no single field is wrong.
    """
    first = error.errors()[0]
    problem = f"{'.'.join(map(str, first['loc'])) or whole}: {first['msg']}"
    # without a field or a value there, pydantic gives what surrounds it
    if not first["loc"] or first["type"] == "missing":
        return problem
    return f"{problem}, got {first['input']!r}"
