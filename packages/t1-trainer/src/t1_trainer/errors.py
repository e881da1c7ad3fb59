"""Errors of t1-trainer, each with the exit code its command ends with.

TrainerError
├── ConfigError (ValueError)        exit 2: a configuration key or value is wrong
├── PolicyFormatError (ValueError)  exit 2: a policy directory is incomplete or foreign
├── RunDirectoryError (ValueError)  exit 2: a run directory is missing or taken
├── CaptureError (RuntimeError)     exit 3: token ids or routing rows are missing or wrong
├── TrainingDiverged (RuntimeError)  exit 3: a gradient is not finite
├── RolloutFailed (RuntimeError)    exit 3: the rollout process died or could not go on
└── StorageError (OSError)          exit 3: the run directory cannot be written
"""

__all__ = [
    "CaptureError",
    "ConfigError",
    "PolicyFormatError",
    "RolloutFailed",
    "RunDirectoryError",
    "StorageError",
    "TrainerError",
    "TrainingDiverged",
]


class TrainerError(Exception):
    """Base of every error this package raises on purpose."""

    exit_code = 3


class ConfigError(TrainerError, ValueError):
    """A configuration file or override names an unknown key or holds a wrong value."""

    exit_code = 2


class PolicyFormatError(TrainerError, ValueError):
    """A policy directory lacks a file, or holds another model type or other shapes."""

    exit_code = 2


class RunDirectoryError(TrainerError, ValueError):
    """A run directory is missing or already taken."""

    exit_code = 2


class CaptureError(TrainerError, RuntimeError):
    """Token ids, log-probs or routing rows of a sample are missing or contradict each other."""


class TrainingDiverged(TrainerError, RuntimeError):
    """A gradient is not finite; that optimizer step was not made, earlier ones of its batch were."""


class RolloutFailed(TrainerError, RuntimeError):
    """The rollout process ended, or reported that it cannot go on; the message has the cause."""


class StorageError(TrainerError, OSError):
    """Writing below the run directory failed, for example because the disk is full."""
