"""Token-in-token-out: stitch agent turns into training samples on the exact sampled token ids."""

from .assembler import Assembler, assemble
from .audit import audit, emission_drift
from .audit_report import AuditReport, Finding, FindingKind
from .boundary import Boundary, BoundaryCase, Policy, Reason
from .byte_tables import token_bytes_of
from .chat_tokenizer import ChatTokenizer
from .errors import (
    AdapterError,
    ByteTableError,
    FidelityError,
    FileFormatError,
    MissingExtraError,
    PayloadError,
    SeamError,
    TemplateError,
    TitoError,
    TurnError,
    VersionError,
)
from .partition import Partition
from .payload import Gathered, gather
from .retokenization import RetokenizationReport, retokenization_drift
from .seam import SeamProof
from .session import Session
from .session_prompt import Prompt
from .template_check import check_template
from .template_pin import TemplatePin, pin_template
from .template_report import TemplateProperty, TemplateReport
from .token_bytes import TokenBytes
from .trial import Chunk, Kind, Trial, TurnRecord
from .trial_file import TrialRecord, read_trials, write_trials
from .turn import FinishReason, Turn

__all__ = [
    "AdapterError",
    "Assembler",
    "AuditReport",
    "Boundary",
    "BoundaryCase",
    "ByteTableError",
    "ChatTokenizer",
    "Chunk",
    "FidelityError",
    "FileFormatError",
    "Finding",
    "FindingKind",
    "FinishReason",
    "Gathered",
    "Kind",
    "MissingExtraError",
    "Partition",
    "PayloadError",
    "Policy",
    "Prompt",
    "Reason",
    "RetokenizationReport",
    "SeamError",
    "SeamProof",
    "Session",
    "TemplateError",
    "TemplatePin",
    "TemplateProperty",
    "TemplateReport",
    "TitoError",
    "TokenBytes",
    "Trial",
    "TrialRecord",
    "Turn",
    "TurnError",
    "TurnRecord",
    "VersionError",
    "assemble",
    "audit",
    "check_template",
    "emission_drift",
    "gather",
    "pin_template",
    "read_trials",
    "retokenization_drift",
    "token_bytes_of",
    "write_trials",
]
