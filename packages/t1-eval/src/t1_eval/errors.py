"""Errors of t1-eval.

EvalError
├── EngineError (RuntimeError)        the engine refused or lost a request
├── TrialFailed (RuntimeError)        infrastructure failed during a trial: invalid, never reward 0
└── ScoresError (ValueError)          scores that no rate can be computed from
"""

__all__ = ["EngineError", "EvalError", "ScoresError", "TrialFailed"]


class EvalError(Exception):
    """Base of every error this package raises on purpose."""


class EngineError(EvalError, RuntimeError):
    """An engine refused a request (the message says which field) or cannot serve any more."""


class ScoresError(EvalError, ValueError):
    """Scores are missing, not finite or of different tasks; the message names the tasks."""


class TrialFailed(EvalError, RuntimeError):
    """A sandbox, an engine or a deadline failed while a trial ran; raised by `TrialRunner.run`.

    Attributes:
        trial_key: the trial.
        phase: where: session, sandbox, agent or verifier.
        cause: what the failed part said; the error itself is `__cause__`.
    """

    def __init__(self, trial_key: str, phase: str, cause: str) -> None:
        super().__init__(trial_key, phase, cause)
        self.trial_key = trial_key
        self.phase = phase
        self.cause = cause

    def __str__(self) -> str:
        """Name the trial and the phase before the cause."""
        return f"trial {self.trial_key}: {self.phase} failed: {self.cause}"
