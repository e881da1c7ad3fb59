"""Any trial that was assembled passes the audit; any planted fault is found where it is."""

import dataclasses
from random import Random

import numpy as np
from audit_trials import STOP, TABLE, trials
from hypothesis import assume, given
from hypothesis import strategies as st

from t1_tito import Assembler, Chunk, assemble
from t1_tito.audit import audit, emission_drift
from t1_tito.audit_report import FindingKind


def whole(turns):
    """Prompt and T of every turn as lists."""
    out, stream = [], []
    for one in turns:
        prompt = stream[: one.base_length] + one.prompt_ids.tolist()
        stream = prompt + one.completion_ids.tolist()
        out.append((prompt, stream))
    return out


def naive_conditioning(trial, turns):
    exact = total = 0
    for record, (prompt, _) in zip(trial.turns, whole(turns), strict=True):
        stream = trial.chunks[record.chunk].tokens.tolist()
        total += record.completion_length
        exact += record.completion_length * (stream[: record.start] == prompt)
    return exact / total if total else 1.0


@given(trials())
def test_an_assembled_trial_has_no_findings(turns):
    trial = assemble(turns, TABLE)
    report = audit(trial, turns, token_bytes=TABLE)
    assert report.ok, str(report)
    assert report.emission_drift == emission_drift(trial, turns) == 0
    assert report.partition.total == report.tokens == sum(map(len, trial.chunks))
    assert report.loss_partition.total == report.sampled_tokens
    assert report.loss_partition.retokenized == 0
    assert report.conditioning_exact == naive_conditioning(trial, turns)


@given(trials())
def test_an_assembled_trial_has_no_findings_without_a_byte_table(turns):
    trial = assemble(turns, stop_ids=[STOP])
    report = audit(trial, turns, stop_ids=[STOP])
    assert report.ok, str(report)
    assert report.conditioning_exact == naive_conditioning(trial, turns)


@given(trials(), st.data())
def test_a_forked_trial_has_no_findings(turns, data):
    assembler = Assembler(TABLE)
    for one in turns:
        assembler.add(one, fork=data.draw(st.booleans()))
    assert audit(assembler.finish(), turns, token_bytes=TABLE).ok


@given(trials())
def test_drift_is_zero_exactly_if_no_boundary_in_a_chunk_is_repaired(turns):
    trial = assemble(turns, TABLE)
    report = audit(trial, turns, token_bytes=TABLE)
    repaired = [b for b in trial.boundaries if b.case.value in ("normalized", "retokenized")]
    if not repaired:
        assert report.context_drift == 0
        assert report.conditioning_exact == 1
    elif any(b.case.value == "normalized" for b in repaired):
        assert report.context_drift > 0


def planted(trial, index, **arrays):
    chunks = list(trial.chunks)
    chunks[index] = dataclasses.replace(chunks[index], **arrays)
    return dataclasses.replace(trial, chunks=tuple(chunks))


@st.composite
def places(draw):
    """Turns, their trial, and a chunk and position in it."""
    turns = draw(trials())
    trial = assemble(turns, TABLE)
    index = draw(st.integers(0, len(trial.chunks) - 1))
    return turns, trial, index, draw(st.integers(0, len(trial.chunks[index]) - 1))


def found(fault, turns, kind):
    report = audit(fault, turns, token_bytes=TABLE)
    return [(f.chunk, f.position) for f in report.findings if f.kind is kind], report


@given(places(), st.integers(1, 12))
def test_a_changed_token_is_found_at_its_position(place, by):
    turns, trial, index, position = place
    tokens = trial.chunks[index].tokens.copy()
    tokens[position] = (tokens[position] + by) % len(TABLE)
    fault = planted(trial, index, tokens=tokens)
    sampled = bool(trial.chunks[index].loss_mask[position])
    kind = FindingKind.EMISSION if sampled else FindingKind.CONTEXT
    where, report = found(fault, turns, kind)
    assert where == [(index, position)]
    assert report.emission_drift == emission_drift(fault, turns) == int(sampled)
    assert report.partition.total == report.tokens


@given(places(), st.sampled_from([-0.0, 1e-9, -3.5, float("nan")]))
def test_a_changed_log_probability_is_found_at_its_position(place, value):
    turns, trial, index, position = place
    logprobs = trial.chunks[index].logprobs.copy()
    assume(logprobs[position].tobytes() != np.float32(value).tobytes())
    logprobs[position] = value
    where, _ = found(planted(trial, index, logprobs=logprobs), turns, FindingKind.LOGPROB)
    assert where == [(index, position)]


@given(places())
def test_a_flipped_loss_is_found_at_its_position(place):
    turns, trial, index, position = place
    mask = trial.chunks[index].loss_mask.copy()
    mask[position] ^= True
    fault = planted(trial, index, loss_mask=mask)
    where, report = found(fault, turns, FindingKind.ONCE)
    if mask[position]:
        where, report = found(fault, turns, FindingKind.PROVENANCE)
    assert (index, position) in where
    assert report.emission_drift == int(mask[position])


@given(places())
def test_a_lost_position_is_found(place):
    turns, trial, index, position = place
    chunk = trial.chunks[index]
    assume(len(chunk) > 1)
    kept = np.arange(len(chunk)) != position
    arrays = {f.name: getattr(chunk, f.name)[kept] for f in dataclasses.fields(Chunk)}
    report = audit(planted(trial, index, **arrays), turns, token_bytes=TABLE)
    # what stands behind the last completion is missed by nobody but its own turn
    assume(chunk.loss_mask[position:].any())
    assert not report.ok


@given(places(), st.data())
def test_a_chunk_trained_twice_is_found(place, data):
    turns, trial, index, _ = place
    chunk = trial.chunks[index]
    assume(chunk.loss_mask.any())
    at = data.draw(st.integers(0, len(trial.chunks)))
    chunks = [*trial.chunks[:at], chunk, *trial.chunks[at:]]
    where, report = found(dataclasses.replace(trial, chunks=tuple(chunks)), turns, FindingKind.ONCE)
    assert where
    assert report.finding_counts["once"] >= 1


@given(trials(), st.integers(0, 2**32 - 1))
def test_turns_given_whole_or_as_suffixes_are_audited_alike(turns, seed):
    random = Random(seed)
    again = []
    for one, (prompt, _), before in zip(
        turns, whole(turns), [[], *[t for _, t in whole(turns)]], strict=False
    ):
        shared = 0
        while shared < min(len(prompt), len(before)) and prompt[shared] == before[shared]:
            shared += 1
        base = random.randint(0, shared)
        again.append(
            type(one)(
                prompt[base:],
                one.completion_ids,
                one.logprobs,
                0,
                0,
                one.finish_reason,
                base_length=base,
            )
        )
    trial = assemble(turns, TABLE)
    first, second = (audit(trial, each, token_bytes=TABLE).to_json() for each in (turns, again))
    assert first == second
