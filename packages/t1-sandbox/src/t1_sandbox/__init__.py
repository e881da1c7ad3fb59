"""Sandboxes that never leak, and admission control: pacing, caps, deadlines, first-N admission."""

from t1_sandbox.admission import AdmissionController, AdmissionStatistics
from t1_sandbox.bucket import TokenBucket
from t1_sandbox.clock import Clock, ManualClock, MonotonicClock
from t1_sandbox.collect import Collected, collect_first
from t1_sandbox.deadlines import Deadlines
from t1_sandbox.errors import (
    CreateError,
    DeadlineExceeded,
    IsolationUnavailable,
    JournalError,
    ReclaimError,
    SandboxError,
    SandboxLost,
    SandboxSealed,
    SealError,
    SpecError,
    TransferError,
)
from t1_sandbox.journal import Event, Journal, JournalContents, JournalRecord, read_journal
from t1_sandbox.local import LocalProvider, ProviderStatistics
from t1_sandbox.sandbox import Sandbox, SandboxProvider, SealedSandbox
from t1_sandbox.spec import (
    DEFAULT_ENVIRONMENT,
    Capabilities,
    ExecResult,
    Outcome,
    SandboxSpec,
)

__all__ = [
    "DEFAULT_ENVIRONMENT",
    "AdmissionController",
    "AdmissionStatistics",
    "Capabilities",
    "Clock",
    "Collected",
    "CreateError",
    "DeadlineExceeded",
    "Deadlines",
    "Event",
    "ExecResult",
    "IsolationUnavailable",
    "Journal",
    "JournalContents",
    "JournalError",
    "JournalRecord",
    "LocalProvider",
    "ManualClock",
    "MonotonicClock",
    "Outcome",
    "ProviderStatistics",
    "ReclaimError",
    "Sandbox",
    "SandboxError",
    "SandboxLost",
    "SandboxProvider",
    "SandboxSealed",
    "SandboxSpec",
    "SealError",
    "SealedSandbox",
    "SpecError",
    "TokenBucket",
    "TransferError",
    "collect_first",
    "read_journal",
]
