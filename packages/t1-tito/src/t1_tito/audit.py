"""The audit: what a trial holds, measured and checked against its raw turns alone.

It reads the arrays of the samples and the turns, and shares no code with the assembly: whatever
made the samples, the same questions are asked of them.

    emission      every position with loss holds the id its own turn sampled
    logprob       and that turn's log-probability bit for bit; 0 elsewhere
    once          every sampled token is trained exactly once over all samples
    context       every other position holds the id of its source
    conditioning  before a completion stands its prompt; behind a repaired boundary, the stream so far
                  and the end of its prompt
    bytes         no text is lost or doubled at a repaired boundary
    unrecorded    no assistant message stands in the context that no turn recorded

Cost: one pass over the ids of every whole prompt, and over the samples. Turns given as a suffix are
not laid out.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ._audit.checks import SampledTokens
from ._audit.history import History
from ._audit.run import AuditRun
from ._audit.sample import read_sample, samples_in, sources
from .audit_report import AuditReport
from .errors import TurnError
from .token_bytes import TokenBytes
from .trial import Trial
from .turn import Ids, Turn


def audit(
    trial_or_samples: Trial | Iterable[object],
    turns: Sequence[Turn],
    *,
    token_bytes: TokenBytes | None = None,
    assistant_opener: Sequence[int] | None = None,
    stop_ids: Iterable[int] = (),
) -> AuditReport:
    """Measure and check a trial, or the samples of any stack, against the turns they were made of.

    Args:
        trial_or_samples: a `Trial`, or samples with `tokens` and `loss_mask` as attributes or keys,
            and where they have them `logprobs`, `source_turn`, `source_index` and `kind`.
        turns: the turns, in order.
        token_bytes: the bytes behind every id. Without it a boundary is sound only if ids prove it,
            and windows show ids.
        assistant_opener: ids that open an assistant message, in history as in the generation prompt
            (without what only the latter adds, such as an empty thought); with them, messages that
            no turn recorded are found.
        stop_ids: without a byte table, ids that a later prompt may lack at a completion's end, besides
            those that turns stopped on.

    Returns:
        The report. Nothing wrong in the samples raises: it is a finding.

    Raises:
        TurnError: something in `turns` is no `Turn`, or builds on more ids than the turn before it
            has; `assistant_opener` or `stop_ids` are no ids.
        FidelityError: `trial_or_samples` is neither a trial nor a list.
    """
    samples = samples_in(trial_or_samples)
    opener = _ids("assistant_opener", () if assistant_opener is None else assistant_opener)
    run = AuditRun(History(turns), token_bytes, _ids("stop_ids", stop_ids).tolist())
    run.read(samples)
    run.follow()
    run.check()
    if opener.size:
        run.find_unrecorded(opener)
    reasons = None
    if isinstance(trial_or_samples, Trial):
        run.check_records(trial_or_samples)
        reasons = [boundary.reason.value for boundary in trial_or_samples.boundaries]
    return run.report(reasons)


def emission_drift(trial_or_samples: Trial | Iterable[object], turns: Sequence[Turn]) -> int:
    """Count loss positions whose token is not the id their own turn sampled there.

    Exactly 0 for every assembled trial. A loss position whose source lies outside its turn's
    completion, or does not exist, counts as drift.

    Args:
        trial_or_samples: as for `audit`.
        turns: the turns, in order.

    Raises:
        TurnError: something in `turns` is no `Turn`, or builds on more ids than the turn before it has.
        FidelityError: `trial_or_samples` is neither a trial nor a list, or the arrays of a sample
            disagree in length.
    """
    given = samples_in(trial_or_samples)
    history = History(turns)
    laid = SampledTokens(history)
    completions = [turn.completion_ids for turn in history.turns]
    ids = np.concatenate([*completions, np.empty(1, np.int32)])
    taken: set[int] = set()
    drift = 0
    for index, one in enumerate(given):
        sample = read_sample(index, one, history, taken)
        sampled = laid.index(sample, sources(sample, history))
        same = (sampled >= 0) & (ids[sampled] == sample.tokens)
        drift += int(np.count_nonzero(sample.loss_mask & ~same))
    return drift


def _ids(name: str, given: Iterable[int]) -> Ids:
    try:
        ids = np.array([*given])
    except (TypeError, ValueError) as error:
        raise TurnError(name, None, f"expected a list of ids: {error}") from error
    if not ids.size:
        return np.empty(0, np.int32)
    if ids.ndim != 1 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= 2**31:
        raise TurnError(name, None, f"expected ids in [0, 2**31), got {ids.tolist()}")
    return ids.astype(np.int32)
