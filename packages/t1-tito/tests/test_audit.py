"""The measures on hand-made trials, and a planted fault for every kind of finding."""

import ast
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from audit_trials import OPENER, STOP, TABLE, THOUGHT, turn

import t1_tito
from t1_tito import (
    Chunk,
    FidelityError,
    FinishReason,
    Kind,
    Policy,
    TokenBytes,
    TurnError,
    assemble,
)
from t1_tito.audit import audit, emission_drift
from t1_tito.audit_report import FindingKind
from t1_tito.partition import Partition

A, B, C, AB, BC, ABC, SPACE, LINE = range(8)


@pytest.fixture
def turns():
    return [
        turn([1, 2], [3, 4]),
        turn([1, 2, 3, 4, 5], [6, 7]),
        turn([9, 8], [7]),
    ]


@pytest.fixture
def trial(turns):
    return assemble(turns)


def planted(trial, index, **arrays):
    """The trial with arrays of one chunk replaced."""
    chunks = list(trial.chunks)
    chunks[index] = dataclasses.replace(chunks[index], **arrays)
    return dataclasses.replace(trial, chunks=tuple(chunks))


def changed(array, position, value):
    copy = array.copy()
    copy[position] = value
    return copy


def without(chunk, *positions):
    kept = np.ones(len(chunk), bool)
    kept[list(positions)] = False
    return {f.name: getattr(chunk, f.name)[kept] for f in dataclasses.fields(Chunk)}


def places(report):
    return [(f.kind.value, f.chunk, f.position) for f in report.findings]


# measures


def test_an_intact_trial_has_no_findings(trial, turns):
    report = audit(trial, turns)
    assert report.ok
    assert (report.tokens, report.loss_tokens, report.sampled_tokens) == (10, 5, 5)
    assert (report.emission_drift, report.context_drift, report.conditioning_exact) == (0, 0, 1)
    assert report.partition == Partition(10, 0, 0)
    assert report.loss_partition == Partition(5, 0, 0)
    # ids alone cannot tell why the third prompt is another
    assert sum(report.boundaries.values()) == 2
    report.raise_on_findings()


RESPELLED = [
    turn([C, OPENER], [A, B, C, STOP]),
    # "abc" comes back as one token
    turn([C, OPENER, ABC, STOP, LINE, OPENER], [AB, C, STOP]),
    # and "abc" of the second turn as two others, while the first stays as it was re-spelled
    turn([C, OPENER, ABC, STOP, LINE, OPENER, A, BC, STOP, LINE, OPENER], [C, STOP]),
]


def test_each_respelled_run_drifts_once():
    trial = assemble(RESPELLED, TABLE)
    report = audit(trial, RESPELLED, token_bytes=TABLE)
    assert report.ok
    assert len(trial.chunks) == 1
    # a, b, c of the first turn and ab, c of the second; the stop tokens are repeated as they are
    assert report.context_drift == 5
    assert report.context_drift_share == 5 / report.tokens
    assert report.emission_drift == 0
    # only the first turn stands behind its own prompt, id by id
    assert report.conditioning_exact == 4 / 9
    assert report.boundaries == {"same_bytes": 2}
    # the last row of each repaired turn is in no capture; the tokens behind them carry no loss
    assert report.partition == Partition(report.tokens - 2, 0, 2)
    assert report.loss_partition == Partition(9, 0, 0)


def test_drift_ends_where_both_spellings_have_a_boundary():
    turns = [turn([C], [A, B, SPACE, A, STOP]), turn([C, AB, SPACE, A, STOP, LINE], [C, STOP])]
    report = audit(assemble(turns, TABLE), turns, token_bytes=TABLE)
    assert report.ok
    assert report.context_drift == 2


def test_context_that_is_respelled_later_is_retokenized():
    turns = [turn([A, B, C], [C, STOP]), turn([AB, C, C, STOP, LINE], [C, STOP])]
    trial = assemble(turns, TABLE)
    assert len(trial.chunks) == 1
    report = audit(trial, turns, token_bytes=TABLE)
    assert report.ok
    assert report.partition == Partition(report.tokens - 3, 2, 1)


def test_a_dropped_scaffold_drifts_and_is_no_finding():
    turns = [
        turn([C, OPENER, THOUGHT, LINE], [A, STOP]),
        turn([C, OPENER, A, STOP, LINE, C, OPENER, THOUGHT, LINE], [B, STOP]),
    ]
    report = audit(assemble(turns, TABLE), turns, token_bytes=TABLE)
    assert report.ok
    assert report.boundaries == {"scaffold": 1}
    assert report.context_drift == 2
    assert report.conditioning_exact == 0.5


def test_a_scaffold_is_found_where_what_follows_it_begins_alike():
    turns = [
        turn([C, OPENER, LINE, LINE], [LINE, A, STOP]),
        turn([C, OPENER, LINE, A, STOP, C, OPENER, LINE, LINE], [B, STOP]),
    ]
    trial = assemble(turns, TABLE)
    assert len(trial.chunks) == 1
    assert audit(trial, turns, token_bytes=TABLE).ok


def test_a_drop_that_could_be_elsewhere_is_no_doubling():
    # one control token fewer: of the generation prompt, as the last token of p' says
    turns = [turn([A, THOUGHT], [THOUGHT, STOP]), turn([A, THOUGHT, THOUGHT], [B, STOP])]
    trial = assemble(turns, TABLE)
    assert len(trial.chunks) == 1
    assert trial.boundaries[0].scaffold_dropped == trial.boundaries[0].tail_dropped == 1
    assert audit(trial, turns, token_bytes=TABLE).ok


def test_without_a_byte_table_a_respelling_is_not_taken_on_trust():
    trial = assemble(RESPELLED, TABLE)
    report = audit(trial, RESPELLED)
    assert places(report) == [("conditioning", 0, 2), ("conditioning", 0, 8)]
    assert "bytes" in report.findings[0].why


def test_a_tail_is_dropped_without_a_byte_table_only_if_turns_stop_on_it():
    turns = [turn([1], [2, 3, STOP]), turn([1, 2, 3, 5], [STOP])]
    assert audit(assemble(turns, stop_ids=[STOP]), turns).ok
    paper = assemble([turns[0], turn([1, 2, 5], [STOP])], policy=Policy(ladder="paper"))
    report = audit(paper, [turns[0], turn([1, 2, 5], [STOP])])
    assert places(report) == [("conditioning", 0, 2)]


def test_synthetic_tokens_are_counted():
    turns = [
        turn([1], [2, 3], FinishReason.LENGTH),
        turn([8, 8, 4], [5], base_length=3, synthetic_length=2),
    ]
    report = audit(assemble(turns), turns)
    assert report.ok
    assert report.synthetic_tokens == 2
    assert report.synthetic_share == 2 / report.tokens


def test_splits_are_listed_by_what_they_repeat(trial, turns):
    report = audit(trial, turns)
    (worst,) = report.worst
    assert (worst.turn, worst.chunk, worst.relation, worst.repeated) == (2, 1, "new_chunk", 2)
    assert worst.prompt_window == "⟦ 9 8 "
    assert worst.stream_window.startswith("⟦ 1 2 3")


def test_windows_are_text_where_bytes_are_known():
    trial = assemble(RESPELLED, TABLE)
    report = audit(trial, RESPELLED, token_bytes=TABLE)
    assert [seam.relation for seam in report.worst] == ["respelled", "respelled"]
    assert report.worst[0].stream_window == "c<as>⟦abc<stop>"
    assert report.worst[0].prompt_window.startswith("c<as>⟦abc<stop>\\n")


def test_a_report_is_text_and_json(trial, turns):
    fault = planted(trial, 0, tokens=changed(trial.chunks[0].tokens, 3, 99))
    report = audit(fault, turns)
    assert "emission drift      1" in str(report)
    assert "⟦ 99 ⟧" in str(report)
    read = json.loads(json.dumps(report.to_json()))
    assert read["emission_drift"] == 1
    assert read["findings"][0]["kind"] == "emission"
    assert not read["ok"]


def test_delta_turns_are_audited_as_full_ones():
    full = RESPELLED
    delta = [
        full[0],
        turn(full[1].prompt_ids[2:], full[1].completion_ids, base_length=2),
        turn(full[2].prompt_ids[6:], full[2].completion_ids, base_length=6),
    ]
    one, other = (
        audit(assemble(turns, TABLE), turns, token_bytes=TABLE).to_json() for turns in (full, delta)
    )
    assert one == other


def test_a_turn_that_builds_on_more_than_there_is_raises(trial):
    with pytest.raises(TurnError) as caught:
        audit(trial, [turn([1], [2]), turn([3], [4], base_length=5)])
    assert (caught.value.turn, caught.value.field) == (1, "base_length")


# faults


def test_a_replaced_sampled_id_is_found(trial, turns):
    fault = planted(trial, 0, tokens=changed(trial.chunks[0].tokens, 3, 99))
    report = audit(fault, turns)
    assert ("emission", 0, 3) in places(report)
    assert report.emission_drift == emission_drift(fault, turns) == 1
    assert report.loss_partition.retokenized == 1
    # what was sampled behind it has another prefix now: 3 of 5 stand as they were
    assert report.conditioning_exact == 3 / 5


def test_a_replaced_context_id_is_found(trial, turns):
    fault = planted(trial, 0, tokens=changed(trial.chunks[0].tokens, 4, 99))
    report = audit(fault, turns)
    assert ("context", 0, 4) in places(report)
    assert report.emission_drift == emission_drift(fault, turns) == 0
    assert report.partition.retokenized == 1
    assert report.conditioning_exact == 3 / 5


def test_a_mask_shifted_by_one_is_found(trial, turns):
    fault = planted(trial, 0, loss_mask=np.roll(trial.chunks[0].loss_mask, 1))
    found = places(audit(fault, turns))
    assert ("provenance", 0, 4) in found
    assert ("once", 0, 2) in found
    assert emission_drift(fault, turns) == 2


@pytest.mark.parametrize("position", [2, 3, 5, 6])
def test_a_sampled_token_without_loss_is_found(trial, turns, position):
    fault = planted(trial, 0, loss_mask=changed(trial.chunks[0].loss_mask, position, False))
    assert ("once", 0, position) in places(audit(fault, turns))


def test_log_probabilities_shifted_by_one_are_found(trial, turns):
    fault = planted(trial, 0, logprobs=np.roll(trial.chunks[0].logprobs, -1))
    assert ("logprob", 0, 1) in places(audit(fault, turns))


@pytest.mark.parametrize("value", [-1.0, -0.0, np.nan])
def test_a_log_probability_on_context_is_found(trial, turns, value):
    fault = planted(trial, 1, logprobs=changed(trial.chunks[1].logprobs, 0, value))
    assert places(audit(fault, turns)) == [("logprob", 1, 0)]


def test_a_log_probability_off_by_one_bit_is_found(trial, turns):
    logprobs = trial.chunks[1].logprobs
    fault = planted(
        trial, 1, logprobs=changed(logprobs, 2, np.nextafter(logprobs[2], np.float32(0)))
    )
    assert places(audit(fault, turns)) == [("logprob", 1, 2)]


def test_a_duplicated_chunk_is_found(trial, turns):
    fault = dataclasses.replace(trial, chunks=(*trial.chunks, trial.chunks[0]))
    assert places(audit(fault, turns)) == [("once", 2, 2), ("once", 2, 5)]


def test_a_dropped_chunk_is_found(trial, turns):
    fault = dataclasses.replace(trial, chunks=trial.chunks[:1])
    assert ("once", None, None) in places(audit(fault, turns))


def test_a_completion_that_lost_its_end_is_found(trial, turns):
    fault = planted(trial, 0, **without(trial.chunks[0], 3))
    assert ("once", None, None) in places(audit(fault, turns))


def test_context_that_is_missing_is_found(trial, turns):
    fault = planted(trial, 0, **without(trial.chunks[0], 1))
    assert ("conditioning", 0, 1) in places(audit(fault, turns))
    fault = planted(trial, 0, **without(trial.chunks[0], 4))
    assert ("conditioning", 0, 4) in places(audit(fault, turns))


def test_a_completion_under_another_prompt_is_found():
    first = turn([1, 2], [3])
    one, other = ([first, turn([1, x, 3, 4], [5])] for x in (9, 2))
    fault = dataclasses.replace(assemble(one), chunks=assemble(other).chunks)
    report = audit(fault, one)
    assert ("conditioning", 0, 1) in places(report)
    assert report.conditioning_exact == 0.5


def test_residual_context_from_another_place_is_found():
    turns = [turn([1], [2]), turn([1, 2, 5, 6], [7])]
    trial = assemble(turns)
    swap = [0, 1, 3, 2, 4]
    arrays = {f.name: getattr(trial.chunks[0], f.name)[swap] for f in dataclasses.fields(Chunk)}
    assert ("conditioning", 0, 2) in places(audit(planted(trial, 0, **arrays), turns))


def test_sampled_tokens_of_one_id_may_not_change_places():
    turns = [turn([1], [7, 7], logprobs=[-1.0, -2.0])]
    trial = assemble(turns)
    order = [0, 2, 1]
    chunk = trial.chunks[0]
    fault = planted(
        trial, 0, source_index=chunk.source_index[order], logprobs=chunk.logprobs[order]
    )
    assert not audit(fault, turns).ok


def test_text_said_twice_at_a_boundary_is_found():
    # "abc<stop>" of the completion comes back in other ids at its very end; the printed ladder
    # drops it from the comparison, keeps it in the stream, and appends the re-spelling
    turns = [turn([C, OPENER], [AB, C, STOP]), turn([C, OPENER, ABC, STOP, LINE], [C, STOP])]
    fault = assemble(turns, TABLE, policy=Policy(ladder="paper"))
    report = audit(fault, turns, token_bytes=TABLE)
    assert places(report) == [("bytes", 0, 2)]
    assert report.findings[0].window == "c<as>⟦abc<stop>⟧abc<stop>\\nc<stop>"
    assert audit(assemble(turns, TABLE), turns, token_bytes=TABLE).ok


def test_whitespace_said_twice_at_a_boundary_is_found():
    turns = [turn([C], [A, LINE], FinishReason.LENGTH), turn([C, A, 8, B], [C, STOP])]
    fault = assemble(turns, TABLE, policy=Policy(ladder="paper"))
    assert [len(fault.chunks), fault.boundaries[0].tail_dropped] == [1, 1]
    report = audit(fault, turns, token_bytes=TABLE)
    assert places(report) == [("bytes", 0, 2)]
    assert "again" in report.findings[0].why


def test_a_half_character_that_only_decodes_alike_is_found():
    # a smiley cut in half decodes to U+FFFD, which the harness encodes as itself
    table = TokenBytes.from_tokens([b"a", "😀".encode()[:2], "\ufffd".encode(), b"\n"], {})
    turns = [turn([0], [1], FinishReason.LENGTH), turn([0, 2, 3], [0])]
    fault = assemble(turns, table, policy=Policy(ladder="paper", max_tail=0, max_scaffold=0))
    assert len(fault.chunks) == 1
    assert places(audit(fault, turns, token_bytes=table)) == [("bytes", 0, 1)]
    assert audit(assemble(turns, table), turns, token_bytes=table).ok


def test_a_rewritten_completion_is_reported_as_not_trained():
    turns = [turn([C], [A, STOP]), turn([C, A, LINE, OPENER], [C, STOP])]
    rewritten = assemble(turns, TABLE, policy=Policy(repair="rewrite"))
    report = audit(rewritten, turns, token_bytes=TABLE)
    assert places(report) == [("once", None, None)]
    assert (report.conditioning_exact, report.context_drift) == (1.0, 0)


def lost_turn():
    """A reply was cut by a limit: its ids are gone, its text is in the history."""
    return [
        turn([A, OPENER], [B, STOP]),
        turn([A, OPENER, B, STOP, OPENER, C, C, STOP, A, OPENER], [A, STOP]),
    ]


def test_a_message_that_no_turn_recorded_is_found():
    turns = lost_turn()
    trial = assemble(turns, TABLE)
    assert audit(trial, turns, token_bytes=TABLE).ok
    report = audit(trial, turns, token_bytes=TABLE, assistant_opener=[OPENER])
    assert places(report) == [("unrecorded", 0, 5)]
    assert report.findings[0].turn == 1
    assert report.findings[0].window == "a<as>b<stop><as>⟦cc⟧<stop>a<as>a<stop>"
    assert places(audit(trial, turns, assistant_opener=[OPENER])) == [("unrecorded", 0, 5)]


def test_recorded_messages_in_a_later_opening_prompt_are_no_findings():
    turns = [
        turn([C, OPENER], [A, SPACE, AB, STOP]),
        # another system text: a new chunk that holds the recorded message in other ids, without
        # the thought before it, and one that nobody recorded
        turn([B, OPENER, A, B, STOP, LINE, OPENER, BC, STOP, LINE, OPENER], [C, STOP]),
    ]
    trial = assemble(turns, TABLE)
    assert len(trial.chunks) == 2
    report = audit(trial, turns, token_bytes=TABLE, assistant_opener=[OPENER])
    assert places(report) == [("unrecorded", 1, 7)]


def test_an_opener_that_the_model_sampled_opens_nothing():
    turns = [turn([A, OPENER], [OPENER, B, STOP]), turn([A, OPENER, OPENER, B, STOP, OPENER], [C])]
    assert audit(assemble(turns, TABLE), turns, assistant_opener=[OPENER]).ok


def test_examples_in_the_first_prompt_are_no_findings():
    turns = [turn([A, OPENER, B, STOP, A, OPENER], [C, STOP])]
    report = audit(assemble(turns, TABLE), turns, token_bytes=TABLE, assistant_opener=[OPENER])
    assert report.ok


@pytest.mark.parametrize("source", [3, -1])
def test_a_source_outside_of_the_turns_is_found(trial, turns, source):
    # the last token of all, so that counting from the end would arrive at the same one
    fault = planted(trial, 1, source_turn=changed(trial.chunks[1].source_turn, 2, source))
    assert ("provenance", 1, 2) in places(audit(fault, turns))
    assert emission_drift(fault, turns) == 1


@pytest.mark.parametrize(("position", "index"), [(4, 70), (4, -1), (6, 70)])
def test_a_source_index_outside_of_its_turn_is_found(trial, turns, position, index):
    fault = planted(trial, 0, source_index=changed(trial.chunks[0].source_index, position, index))
    assert ("provenance", 0, position) in places(audit(fault, turns))


def test_a_kind_that_contradicts_the_loss_is_found(trial, turns):
    fault = planted(trial, 0, kind=changed(trial.chunks[0].kind, 2, Kind.OBSERVATION))
    assert places(audit(fault, turns)) == [("provenance", 0, 2)]


def test_a_record_that_points_elsewhere_is_found(trial, turns):
    records = list(trial.turns)
    records[1] = records[1]._replace(start=4)
    report = audit(dataclasses.replace(trial, turns=tuple(records)), turns)
    assert [(f.kind, f.turn) for f in report.findings] == [(FindingKind.PROVENANCE, 1)]
    fewer = audit(dataclasses.replace(trial, turns=trial.turns[:1]), turns)
    assert [f.kind for f in fewer.findings] == [FindingKind.ALIGNMENT]


def test_arrays_that_disagree_are_found(trial, turns):
    report = audit(planted(trial, 0, logprobs=trial.chunks[0].logprobs[:-1]), turns)
    assert ("alignment", 0, None) in places(report)
    # the other chunk is audited all the same
    assert report.chunks == 1
    wide = planted(trial, 0, tokens=trial.chunks[0].tokens + 0.5)
    assert ("alignment", 0, None) in places(audit(wide, turns))
    masked = planted(trial, 0, loss_mask=np.full(len(trial.chunks[0]), 2))
    assert ("alignment", 0, None) in places(audit(masked, turns))
    assert places(audit([{"tokens": [1]}], turns))[0] == ("alignment", 0, None)
    assert places(audit([{"tokens": [], "loss_mask": []}], turns))[0] == ("alignment", 0, None)


def test_nothing_at_all_is_a_finding(turns):
    assert places(audit([], turns))[0] == ("alignment", None, None)
    assert places(audit([], [])) == [("alignment", None, None)]
    assert audit([], []).conditioning_exact == 1


def test_a_finding_becomes_an_exception_that_names_it(trial, turns):
    fault = planted(trial, 0, tokens=changed(trial.chunks[0].tokens, 3, 99))
    with pytest.raises(FidelityError) as caught:
        audit(fault, turns).raise_on_findings()
    error = caught.value
    assert (error.invariant, error.chunk, error.position) == ("emission", 0, 3)
    assert "turn 0" in error.problem


def test_many_findings_are_counted_and_a_hundred_are_kept():
    turns = [turn([1, 2], [3]) for _ in range(150)]
    trial = assemble(turns)
    assert len(trial.chunks) == 150
    chunks = tuple(dataclasses.replace(c, tokens=c.tokens ^ 1) for c in trial.chunks)
    report = audit(dataclasses.replace(trial, chunks=chunks), turns)
    assert report.finding_counts["emission"] == 150
    assert sum(f.kind is FindingKind.EMISSION for f in report.findings) == 100


def test_the_audit_shares_no_code_with_the_assembly():
    folder = Path(t1_tito.__file__).parent
    files = [*folder.glob("_audit/*.py"), *folder.glob("audit*.py")]
    files += [folder / "provenance.py", folder / "partition.py"]
    assert len(files) > 8
    forbidden = {"assembler", "ladder", "boundary", "payload", "_history", "_chunk_builder"}
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").removeprefix("t1_tito.") not in forbidden, file


# arguments that are no trial


def test_a_trial_without_its_turns_is_a_finding(trial, turns):
    report = audit(trial, [])
    assert report.findings[0].kind is FindingKind.ALIGNMENT
    assert report.findings[0].why == "expected at least one of each, got 0 turns and 2 samples"
    assert emission_drift(trial, []) == 5
    bare = [{"tokens": c.tokens, "loss_mask": c.loss_mask} for c in trial.chunks]
    assert audit(bare, []).findings[0].kind is FindingKind.ALIGNMENT
    assert not audit([], turns).ok


@pytest.mark.parametrize("measure", [audit, emission_drift])
@pytest.mark.parametrize(
    ("given", "of", "message"),
    [
        ("chunks", [{"prompt_ids": [1]}], r"turns\[0\]: expected a Turn, got dict"),
        ("chunks", None, "turns: expected a list of Turn, got NoneType"),
        ("chunks", {}, "turns: expected a list of Turn, got dict"),
        (None, "turns", "expected a Trial or a list of samples, got NoneType"),
        ("chunk", "turns", "expected a Trial or a list of samples, got Chunk"),
        ({"tokens": [1]}, "turns", "expected a Trial or a list of samples, got dict"),
    ],
)
def test_what_is_no_trial_or_turn_is_named(measure, given, of, message, trial, turns):
    samples = {"chunks": trial.chunks, "chunk": trial.chunks[0]}
    given = samples[given] if isinstance(given, str) else given
    with pytest.raises((TurnError, FidelityError), match=message):
        measure(given, turns if of == "turns" else of)


def test_arrays_that_are_not_flat_are_a_finding(turns):
    report = audit([{"tokens": [[1], [2, 3]], "loss_mask": [0, 1]}], turns)
    assert report.findings[0].kind is FindingKind.ALIGNMENT
    assert "tokens is no flat sequence" in report.findings[0].why


@pytest.mark.parametrize("name", ["assistant_opener", "stop_ids"])
@pytest.mark.parametrize("ids", [["x"], [2**40], [-1], [[1]], [0.5], 5])
def test_an_opener_or_stop_that_is_no_list_of_ids_is_named(name, ids, trial, turns):
    with pytest.raises(TurnError, match=f"{name}: expected"):
        audit(trial, turns, **{name: ids})
    audit(trial, turns, **{name: np.array([7])})


def test_an_empty_message_in_a_new_chunks_history_was_recorded():
    turns = [
        turn([C, OPENER], [STOP]),
        turn([C, OPENER, STOP, LINE, B, OPENER], [THOUGHT, A, THOUGHT, B, STOP]),
        # the thought is pruned, which opens a chunk
        turn([C, OPENER, STOP, LINE, B, OPENER, B, STOP, LINE, A, OPENER], [C, STOP]),
    ]
    trial = assemble(turns, TABLE)
    assert len(trial.chunks) == 2
    assert audit(trial, turns, token_bytes=TABLE, assistant_opener=[OPENER]).findings == ()


@pytest.mark.parametrize("wrong", [4, 5], ids=["first", "last"])
def test_loss_on_an_observation_is_found_without_provenance(wrong):
    turns = [turn([A, B], [C, A]), turn([A, B, C, A, AB, BC], [B, STOP])]
    mask = [False, False, True, True, False, False, True, True]
    mask[wrong] = True
    sample = {"tokens": [A, B, C, A, AB, BC, B, STOP], "loss_mask": mask}
    report = audit([sample], turns)
    # beside a completion the whole run cannot be told from what was sampled
    assert report.emission_drift in (1, 3)
    assert ("emission", 0, wrong) in places(report)
