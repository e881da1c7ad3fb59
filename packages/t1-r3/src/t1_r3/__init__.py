"""Rollout routing replay: train each token through the experts that produced it."""

from .errors import MissingExtraError, MissingRouting, R3Error, ReplayMismatch, RoutingError
from .record import RoutingRecord, RoutingSpec
from .replay import assert_replayed, disagreement
from .stitching import StitchedRouting, stitch

__all__ = [
    "MissingExtraError",
    "MissingRouting",
    "R3Error",
    "ReplayMismatch",
    "RoutingError",
    "RoutingRecord",
    "RoutingSpec",
    "StitchedRouting",
    "assert_replayed",
    "disagreement",
    "stitch",
]
