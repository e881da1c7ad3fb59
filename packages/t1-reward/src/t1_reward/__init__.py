"""Dense per-assertion reward, task format, verifier reports, pools and task synthesis.

    task = generate_task(seed, "train").task        or Task.load(directory), Pool.open(...).task(id)
    verdict = await verify(task, sandbox, timeout_s)
    record = score(verdict, scale=S)                r = P/S; None means invalid, never 0

The generator's parts (skills, splits, steps) are in `t1_reward.synthesis`.
"""

from t1_reward.errors import (
    PoolError,
    RecordError,
    RewardError,
    SynthesisError,
    TaskFormatError,
)
from t1_reward.manifest import TaskManifest, TaskMetadata
from t1_reward.pool import Pool, PoolEntry
from t1_reward.report import MAX_REPORT_BYTES, Assertion, Cause, VerifierReport, read_report
from t1_reward.reward import Fallback, RewardRecord, Variant, Verdict, rescore, score
from t1_reward.stream import Stream
from t1_reward.synthesis import (
    Split,
    SynthesizedTask,
    build_demonstration,
    generate_task,
    vocabulary_pieces,
)
from t1_reward.task import Task
from t1_reward.verify import CommandResult, SealedVerifierSandbox, VerifierSandbox, verify

__all__ = [
    "MAX_REPORT_BYTES",
    "Assertion",
    "Cause",
    "CommandResult",
    "Fallback",
    "Pool",
    "PoolEntry",
    "PoolError",
    "RecordError",
    "RewardError",
    "RewardRecord",
    "SealedVerifierSandbox",
    "Split",
    "Stream",
    "SynthesisError",
    "SynthesizedTask",
    "Task",
    "TaskFormatError",
    "TaskManifest",
    "TaskMetadata",
    "Variant",
    "Verdict",
    "VerifierReport",
    "VerifierSandbox",
    "build_demonstration",
    "generate_task",
    "read_report",
    "rescore",
    "score",
    "verify",
    "vocabulary_pieces",
]
