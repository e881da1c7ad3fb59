"""Publication barrier, atomic checkpoint store, capacity plan and clocks for RL training systems."""

from .clock import Clock, ManualClock, MonotonicClock
from .errors import ArgumentError, CheckpointError, InfraError, PublishError
from .footprint import Footprint, ModelSize, ParallelPlan, footprint
from .manifest import CheckpointKind
from .publication import PublishReport, publish
from .replica import Phase, Replica
from .store import Checkpoint, CheckpointStore
from .weights import Weights, weights_digest

__all__ = [
    "ArgumentError",
    "Checkpoint",
    "CheckpointError",
    "CheckpointKind",
    "CheckpointStore",
    "Clock",
    "Footprint",
    "InfraError",
    "ManualClock",
    "ModelSize",
    "MonotonicClock",
    "ParallelPlan",
    "Phase",
    "PublishError",
    "PublishReport",
    "Replica",
    "Weights",
    "footprint",
    "publish",
    "weights_digest",
]
