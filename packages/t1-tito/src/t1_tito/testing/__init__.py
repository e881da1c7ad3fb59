"""The testing kit: tokenizers, harnesses and engines gone wrong, and every invariant to hold them to.

    strategies   draw tokenizers, templates, conversations, mutations, faults, whole trials
    check_*      the invariants, naive and independent of what they check
    Conformance  the invariants against an assembler of yours; without pytest, or `pytest --tito-..`
    .._machine   stateful machines: any order of calls on an assembler or a session of yours
    FAULTS       a planted fault for every invariant, which proves that it fires

Needs the extra `testing`.
"""

from .assembler_machine import ForkingAssembler, assembler_machine
from .behaviour_invariants import (
    Assembling,
    check_append,
    check_inert,
    check_roundtrip,
    check_rows,
    check_seam,
    check_stream,
    check_template,
    check_work,
)
from .byte_bpe import ByteBpe
from .byte_invariants import (
    check_boundary,
    check_bytes,
    check_guard,
    check_ladder,
    check_nocopy,
)
from .cases import Case, Failure
from .conformance import Conformance, Outcome, Report, Status, conforms
from .engine_faults import EngineFault, plant, reply_of
from .engine_probe import EngineProbe
from .faults import FAULTS, Fault
from .invariants import (
    check_bos,
    check_cond,
    check_drift_local,
    check_emit,
    check_idempotent,
    check_logp,
    check_once,
    check_split,
    check_synth,
)
from .reference import NaiveLadder, reference_assemble
from .replay import ReplayOutcome, run_case
from .session_machine import session_machine
from .simulator import (
    Mutation,
    MutationKind,
    Script,
    Step,
    as_delta,
    as_full,
    simulate,
)
from .spelling import Speller
from .strategies import (
    SimulatedTrial,
    byte_bpe,
    completions,
    conversations,
    dialogues,
    engine_fault,
    harness_mutation,
    noncanonical,
    replays,
    scripts,
    simulated_trials,
    template_quirk,
    texts,
    tiny_chats,
)
from .tiny_chat import TemplateQuirks, TinyChat

INVARIANTS = {
    "emit": check_emit,
    "once": check_once,
    "logp": check_logp,
    "nocopy": check_nocopy,
    "bytes": check_bytes,
    "cond": check_cond,
    "ladder": check_ladder,
    "guard": check_guard,
    "boundary": check_boundary,
    "append": check_append,
    "stream": check_stream,
    "split": check_split,
    "rows": check_rows,
    "synth": check_synth,
    "idempotent": check_idempotent,
    "drift_local": check_drift_local,
    "template": check_template,
    "seam": check_seam,
    "inert": check_inert,
    "bos": check_bos,
    "work": check_work,
    "roundtrip": check_roundtrip,
}
"""Every invariant by the name that its `FidelityError` carries."""

__all__ = [
    "FAULTS",
    "INVARIANTS",
    "Assembling",
    "ByteBpe",
    "Case",
    "Conformance",
    "EngineFault",
    "EngineProbe",
    "Failure",
    "Fault",
    "ForkingAssembler",
    "Mutation",
    "MutationKind",
    "NaiveLadder",
    "Outcome",
    "ReplayOutcome",
    "Report",
    "Script",
    "SimulatedTrial",
    "Speller",
    "Status",
    "Step",
    "TemplateQuirks",
    "TinyChat",
    "as_delta",
    "as_full",
    "assembler_machine",
    "byte_bpe",
    "check_append",
    "check_bos",
    "check_boundary",
    "check_bytes",
    "check_cond",
    "check_drift_local",
    "check_emit",
    "check_guard",
    "check_idempotent",
    "check_inert",
    "check_ladder",
    "check_logp",
    "check_nocopy",
    "check_once",
    "check_roundtrip",
    "check_rows",
    "check_seam",
    "check_split",
    "check_stream",
    "check_synth",
    "check_template",
    "check_work",
    "completions",
    "conforms",
    "conversations",
    "dialogues",
    "engine_fault",
    "harness_mutation",
    "noncanonical",
    "plant",
    "reference_assemble",
    "replays",
    "reply_of",
    "run_case",
    "scripts",
    "session_machine",
    "simulate",
    "simulated_trials",
    "template_quirk",
    "texts",
    "tiny_chats",
]
