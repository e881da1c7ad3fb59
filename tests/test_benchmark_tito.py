"""The benchmarks of t1-tito: every figure under its name, and a judge that sees what is wrong."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
sys.path.append(str(FOLDER))

from support.tito_peers import (  # noqa: E402 found by the line above
    GreedyPrefixMerge,
    PairwiseMerge,
    RealigningBuilder,
    Sample,
)
from support.tito_quality import judge, samples_of  # noqa: E402
from support.tito_trials import (  # noqa: E402
    CLEAN,
    MIXES,
    TURN_END,
    Mix,
    Size,
    make_trial,
    vocabulary,
)

from t1_tito import BoundaryCase, Policy, Turn, assemble  # noqa: E402

SMALL = Size(20, 6_000)
FIGURES = {
    *("delta_ms_300x96k", "verify_ms_300x96k", "turn_latency_growth", "retokenized_boundary_ms"),
    *("scaling_exponent", "bytes_per_token", "vs_list_merge_x", "vs_reencode_x"),
    *(
        "delta_arrays_ms_300x96k",
        "delta_lists_ms_300x96k",
        "verify_lists_ms_300x96k",
        "verify_lists_vs_list_merge_x",
    ),
}
# the benchmark itself, on trials so small that nothing but its output means anything
ON_SMALL_TRIALS = """
import tito_stitch
from support.tito_trials import Size
sizes = [Size(12, 4_000), Size(14, 5_000), Size(20, 6_000), Size(24, 7_000)]
tito_stitch.SIZES = tuple(sizes)
tito_stitch._SMALL, tito_stitch._MIDDLE, tito_stitch._LARGE, tito_stitch._HUGE = sizes
tito_stitch.main()
"""


def printed(*command: str | Path) -> list[dict]:
    """The figures that a benchmark prints."""
    output = subprocess.run(
        [sys.executable, *command, "--quick", "--json"],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return [json.loads(line) for line in output.splitlines()]


def check_figures(figures, names):
    assert sorted(figure["figure"] for figure in figures) == sorted(f"tito.{n}" for n in names)
    for figure in figures:
        assert math.isfinite(figure["value"])
        assert figure["value"] > 0
        assert figure["target"] > 0
        assert figure["better"] in {"lower", "higher"}


@pytest.mark.timeout(300)
def test_stitching_prints_every_figure_once():
    check_figures(printed("-c", ON_SMALL_TRIALS), FIGURES)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_stitching_prints_every_figure_of_the_sizes_it_names():
    check_figures(printed("tito_stitch.py"), FIGURES)


@pytest.mark.timeout(300)
def test_auditing_prints_its_figure():
    check_figures(printed("tito_audit.py"), {"audit_ms_300x96k"})


@pytest.mark.parametrize("mix", [*MIXES, Mix(0.5, events=False)], ids=str)
def test_a_trial_is_what_its_mix_says(mix):
    trial, again = make_trial(SMALL, mix), make_trial(SMALL, mix)
    table = vocabulary().token_bytes
    said = np.empty(0, np.int32)
    drifted = set()
    for turn, (step, prompt) in enumerate(zip(trial.steps, trial.prompts(), strict=True)):
        assert np.array_equal(step.added, again.steps[turn].added)
        assert (step.completion[-1] == TURN_END) == (turn != trial.truncated)
        if turn and turn != trial.compacted:
            if not np.array_equal(prompt[: said.size], said):
                drifted.add(turn - 1)
            spelled = table.bytes_of(said)
            assert table.bytes_of(prompt)[: len(spelled)] == spelled
        said = np.concatenate([prompt, step.completion])
    assert drifted == trial.retokenized
    assert (trial.compacted is not None, trial.truncated is not None) == (mix.events, mix.events)
    assert len(drifted) == (max(1, round(mix.retokenized * SMALL.turns)) if mix.retokenized else 0)
    logprobs = np.concatenate([step.logprobs for step in trial.steps])
    assert np.unique(logprobs).size == trial.sampled


@pytest.mark.parametrize("mix", MIXES, ids=str)
def test_both_modes_of_ours_keep_every_sampled_token(mix):
    trial = make_trial(SMALL, mix)
    whole = [
        Turn(**step.whole(prompt))
        for step, prompt in zip(trial.steps, trial.prompts(), strict=True)
    ]
    delta = [Turn(**step.delta()) for step in trial.steps]
    table = vocabulary().token_bytes
    both = [assemble(turns, table) for turns in (whole, delta)]
    for assembled in both:
        quality = judge(samples_of(assembled), trial)
        assert (quality.kept, quality.drifted, quality.silent) == (trial.sampled, 0, 0)
        cases = [boundary.case for boundary in assembled.boundaries]
        assert cases.count(BoundaryCase.RETOKENIZED) == len(trial.retokenized)
        assert cases.count(BoundaryCase.SPLIT) == mix.events
    for left, right in zip(both[0].chunks, both[1].chunks, strict=True):
        assert np.array_equal(left.tokens, right.tokens)


def merged(merger, trial):
    for step, prompt in zip(trial.steps, trial.prompts(), strict=True):
        merger.add(prompt.tolist(), step.completion.tolist(), step.logprobs.tolist())
    return merger.finish()


@pytest.mark.parametrize("merger", [GreedyPrefixMerge, RealigningBuilder, PairwiseMerge])
def test_every_list_merger_is_right_about_a_clean_trial(merger):
    trial = make_trial(SMALL, CLEAN)
    quality = judge(merged(merger(), trial), trial)
    assert (quality.kept, quality.exact, quality.samples) == (trial.sampled, trial.sampled, 1)
    assert (quality.repeated, quality.drifted, quality.silent) == (0, 0, 0)


def test_list_mergers_do_with_drift_what_they_document():
    trial = make_trial(SMALL, Mix(0.2, events=False))
    count = len(trial.retokenized)
    multiplied = judge(merged(GreedyPrefixMerge(), trial), trial)
    assert (multiplied.samples, multiplied.kept) == (count + 1, trial.sampled)
    masked = judge(merged(RealigningBuilder(), trial), trial)
    assert (masked.samples, masked.silent) == (1, count)
    assert masked.kept < trial.sampled
    with pytest.raises(AssertionError):
        merged(PairwiseMerge(), trial)


def test_the_ladder_as_printed_is_seen_to_double_text():
    trial = make_trial(SMALL, Mix(0.2, events=False))
    turns = [Turn(**step.delta()) for step in trial.steps]
    as_printed = assemble(turns, vocabulary().token_bytes, policy=Policy(ladder="paper"))
    assert judge(samples_of(as_printed), trial).silent > 0


def one_loss_position(sample):
    return next(i for i, loss in enumerate(sample.loss_mask) if loss)


def other_id(samples):
    position = one_loss_position(samples[0])
    samples[0].tokens[position] += 1


def without_loss(samples):
    samples[0].loss_mask[one_loss_position(samples[0])] = 0


def twice(samples):
    first = samples[0]
    samples.append(Sample(list(first.tokens), list(first.loss_mask), list(first.logprobs)))


def one_context_token_more(samples):
    for values, value in zip(vars(samples[0]).values(), (300, 0, 0.0), strict=True):
        values.insert(1, value)


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        (other_id, "drifted"),
        (without_loss, "kept"),
        (twice, "repeated"),
        (one_context_token_more, "exact"),
    ],
)
def test_the_judge_sees_each_fault(fault, field):
    trial = make_trial(SMALL, CLEAN)
    samples = merged(GreedyPrefixMerge(), trial)
    fine = judge(samples, trial)
    fault(samples)
    faulty = judge(samples, trial)
    assert getattr(faulty, field) != getattr(fine, field)
    assert faulty.silent > fine.silent == 0
