"""Errors of t1-eval.

EvalError
├── EngineError (RuntimeError)        the engine refused or lost a request
└── TrialFailed (RuntimeError)        infrastructure failed during a trial: invalid, never reward 0
"""

__all__ = ["EngineError", "EvalError", "TrialFailed"]


class EvalError(Exception):
    """Base of every error this package raises on purpose."""


class EngineError(EvalError, RuntimeError):
    """An engine refused a request (the message says which field) or cannot serve any more."""


class TrialFailed(EvalError, RuntimeError):
    """A trial could not be carried out; `trial_key` and `phase` say which and where."""

    def __init__(self, trial_key: str, phase: str, cause: str) -> None:
        super().__init__(f"trial {trial_key}: {phase} failed: {cause}")
        self.trial_key = trial_key
        self.phase = phase
        self.cause = cause

    def __reduce__(self) -> tuple[type["TrialFailed"], tuple[str, str, str]]:
        """Pickle by the three fields."""
        return (TrialFailed, (self.trial_key, self.phase, self.cause))
