"""What a subject can do, found out on two fixed trials."""

from collections.abc import Mapping
from enum import StrEnum

from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Trial
from t1_tito.turn import FinishReason, Turn

from .cases import Case
from .subject import Subject


class Ability(StrEnum):
    """What only some subjects do."""

    MERGES = "merges"
    """Puts turns that repeat every id into one sample."""
    NAMES_ORIGINS = "names_origins"
    """Returns `source_turn` and `source_index`."""
    RETURNS_TRIALS = "returns_trials"
    """Returns a `Trial`, with boundaries and kinds."""


def abilities_of(subject: Subject) -> Mapping[Ability, str]:
    """For each ability "" where the subject has it, else what was seen instead."""
    case = _probe()
    try:
        returned, samples = subject.returned(case.turns, case), subject.samples(case)
    except Exception as error:
        # a required invariant reports it, with a case
        return dict.fromkeys(Ability, f"it failed on the probe: {error}")
    names = all(sample.source is not None for sample in samples)
    return {
        Ability.MERGES: "" if len(samples) == 1 else "it does not put turns into one sample",
        Ability.NAMES_ORIGINS: "" if names else "its samples name no origins",
        Ability.RETURNS_TRIALS: ""
        if isinstance(returned, Trial)
        else f"it returns {type(returned).__name__}, not a Trial",
    }


def _probe() -> Case:
    """Two turns, the second of which repeats every id of the first."""
    pieces = [bytes([byte]) for byte in range(256)]
    turns = [
        Turn([97], [98, 99], [-0.25, -0.5], 0, 0, FinishReason.STOP),
        Turn([97, 98, 99, 100], [101], [-0.75], 0, 0, FinishReason.STOP),
    ]
    return Case(turns, TokenBytes.from_tokens(pieces))
