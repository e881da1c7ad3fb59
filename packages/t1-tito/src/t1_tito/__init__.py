"""Token-in-token-out: stitch agent turns into training samples on the exact sampled token ids."""

from .assembly import assemble
from .boundary import Boundary, BoundaryCase
from .errors import FidelityError, PayloadError, TitoError, TurnError, VersionError
from .fidelity import check_trial, emission_drift
from .payload import gather
from .retokenization import RetokenizationReport, retokenization_drift
from .trial import Chunk, Trial
from .turn import FinishReason, Turn

__all__ = [
    "Boundary",
    "BoundaryCase",
    "Chunk",
    "FidelityError",
    "FinishReason",
    "PayloadError",
    "RetokenizationReport",
    "TitoError",
    "Trial",
    "Turn",
    "TurnError",
    "VersionError",
    "assemble",
    "check_trial",
    "emission_drift",
    "gather",
    "retokenization_drift",
]
