"""From a finished trial to training samples: token-in-token-out stitching with its routing rows.

One chunk of a trial is one sample; a trial whose turns all extend each other has exactly one. A
sample is checked when it is made: the ids are the sampled ones and N tokens have N - 1 routing rows.
A failed check is a defect of the capture and aborts the step; it never drops the sample.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from t1_eval import TrialResult
from t1_r3 import R3Error, RoutingRecord, RoutingSpec, stitch
from t1_tito import Chunk, TitoError, Trial, Turn, assemble, emission_drift
from t1_trainer.errors import CaptureError
from t1_trainer.rollout.engine import RoutedExperts

__all__ = ["Sample", "samples_of_trial"]


@dataclass(frozen=True, eq=False)
class Sample:
    """One training sequence.

    Attributes:
        trial_key: the trial it came from.
        task_id: its task.
        families: task families, for retention and per-family reports.
        length: subgoals of the task.
        tokens: int32 [N].
        loss_mask: bool [N], true where the token was sampled.
        logprobs: float32 [N], the sampler's, 0 where not sampled.
        routed_experts: uint8 [N - 1, L, K], row j used while token j was the input.
        reward: r of the trial.
        passed: assertions passed; None when the reward came from the terminal outcome.
        total: assertions of the task.
        resolved: whether the terminal outcome is 1.
        turns: commands of the trial.
        weight_version: version that generated every turn.
    """

    trial_key: str
    task_id: str
    families: tuple[str, ...]
    length: int
    tokens: NDArray[np.int32]
    loss_mask: NDArray[np.bool_]
    logprobs: NDArray[np.float32]
    routed_experts: NDArray[np.uint8]
    reward: float
    passed: int | None
    total: int
    resolved: bool
    turns: int
    weight_version: int


def samples_of_trial(result: TrialResult, spec: RoutingSpec) -> list[Sample]:
    """Stitch a rewarded trial of a token agent.

    Args:
        result: a trial with a reward.
        spec: routing shape of the sampler's model.

    Raises:
        CaptureError: ids, log-probs or routing rows are missing or contradict each other.
    """
    turns: list[Turn] = []
    for number, turn in enumerate(result.run.turns):
        if turn.tokens is None:
            raise CaptureError(f"trial {result.key}: turn {number} has no token ids")
        turns.append(turn.tokens)
    try:
        trial = assemble(turns)
    except TitoError as error:
        raise CaptureError(f"trial {result.key}: {error}") from error
    drift = emission_drift(trial)
    if drift:
        raise CaptureError(f"trial {result.key}: {drift} trained tokens are not the sampled ones")
    records = [_record(result, i, spec) for i in range(len(turns))]
    return [_sample(result, trial, chunk, records) for chunk in trial.chunks]


def _record(result: TrialResult, number: int, spec: RoutingSpec) -> RoutingRecord:
    turn = result.run.turns[number]
    if not isinstance(turn.payload, RoutedExperts) or turn.tokens is None:
        raise CaptureError(
            f"trial {result.key}: turn {number} has no routed experts; "
            "the engine must return one row per consumed token"
        )
    return RoutingRecord(
        rows=turn.payload.rows,
        spec=spec,
        start=turn.payload.start,
        weight_version=turn.tokens.version_received,
    )


def _sample(
    result: TrialResult, trial: Trial, chunk: Chunk, records: Sequence[RoutingRecord]
) -> Sample:
    lengths = [len(t.prompt_ids) + len(t.completion_ids) for t in trial.turns]
    try:
        routing = stitch(records, lengths, chunk.source_turn, chunk.source_index, chunk.loss_mask)
    except R3Error as error:
        raise CaptureError(f"trial {result.key}: {error}") from error
    if len(routing.rows) != len(chunk.tokens) - 1:
        raise CaptureError(
            f"trial {result.key}: {len(routing.rows)} routing rows for {len(chunk.tokens)} tokens, "
            f"expected {len(chunk.tokens) - 1}"
        )
    assert result.reward.reward is not None, "only rewarded trials are stitched"
    return Sample(
        trial_key=result.key,
        task_id=result.task_id,
        families=result.families,
        length=result.length,
        tokens=chunk.tokens,
        loss_mask=chunk.loss_mask,
        logprobs=chunk.logprobs,
        routed_experts=routing.rows.astype(np.uint8),
        reward=result.reward.reward,
        passed=result.reward.passed,
        total=result.reward.total,
        resolved=result.resolved,
        turns=len(result.run.turns),
        weight_version=trial.turns[0].version_received,
    )
