"""Token-in-token-out: stitch agent turns into training samples on the exact sampled token ids."""

from .assembler import Assembler, assemble
from .boundary import Boundary, BoundaryCase, Policy, Reason
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
from .payload import Gathered, gather
from .retokenization import RetokenizationReport, retokenization_drift
from .token_bytes import TokenBytes
from .trial import Chunk, Kind, Trial, TurnRecord
from .turn import FinishReason, Turn

__all__ = [
    "AdapterError",
    "Assembler",
    "Boundary",
    "BoundaryCase",
    "ByteTableError",
    "Chunk",
    "FidelityError",
    "FileFormatError",
    "FinishReason",
    "Gathered",
    "Kind",
    "MissingExtraError",
    "PayloadError",
    "Policy",
    "Reason",
    "RetokenizationReport",
    "SeamError",
    "TemplateError",
    "TitoError",
    "TokenBytes",
    "Trial",
    "Turn",
    "TurnError",
    "TurnRecord",
    "VersionError",
    "assemble",
    "gather",
    "retokenization_drift",
]
