"""What auditing a trial costs, and whether the audit sees what is wrong.

The trials are those of `tito_stitch.py`: seeded, 300 turns, 96k tokens, with and without events. The
audit takes the assembled trial, every turn that it was made of, and the byte table. The figure is
that of the slowest mix and of the slower of two forms of the turns, as arrays:

    whole    each turn with its whole prompt, 8 to 14 million ids in all
    delta    each turn with what its prompt adds

Trials as assembled must come out clean; the same trials with one fault in them must not. Tables and
these counts go to stderr. One thread.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from support.timing import figure, median_ms, show
from support.tito_trials import MIXES, SIZES, make_trial, vocabulary

from t1_tito import Trial, Turn, assemble, audit

_LARGE = SIZES[2]


def changed(trial: Trial, field: str, change: Callable[[Any, int], None]) -> Trial:
    """Returns the trial with one array of its first chunk changed at its middle loss position."""
    chunk = trial.chunks[0]
    loss = np.flatnonzero(chunk.loss_mask)
    array = getattr(chunk, field).copy()
    change(array, int(loss[loss.size // 2]))
    return dataclasses.replace(
        trial, chunks=(dataclasses.replace(chunk, **{field: array}), *trial.chunks[1:])
    )


def _next_id(array: Any, position: int) -> None:
    array[position] += 1


def _next_float(array: Any, position: int) -> None:
    array[position] = np.nextafter(array[position], np.float32(0))


def _no_loss(array: Any, position: int) -> None:
    array[position] = False


FAULTS: dict[str, Callable[[Trial], Trial]] = {
    "another id": partial(changed, field="tokens", change=_next_id),
    "log-probability off by one bit": partial(changed, field="logprobs", change=_next_float),
    "sampled token without loss": partial(changed, field="loss_mask", change=_no_loss),
}


def audit_ms(repeats: int) -> dict[str, float]:
    """Returns median milliseconds by mix and form of the turns."""
    table = vocabulary().token_bytes
    times: dict[str, float] = {}
    for mix in MIXES:
        synthetic = make_trial(_LARGE, mix)
        prompts = synthetic.prompts()
        whole = [
            Turn(**step.arrays(prompt))
            for step, prompt in zip(synthetic.steps, prompts, strict=True)
        ]
        delta = [Turn(**step.delta_arrays()) for step in synthetic.steps]
        trial = assemble(whole, table)
        works = {
            f"{mix} {form}": partial(audit, trial, turns, token_bytes=table)
            for form, turns in (("whole", whole), ("delta", delta))
        }
        times |= median_ms(works, repeats)
        report = audit(trial, whole, token_bytes=table)
        note(
            f"{_LARGE} {mix!s:>6}: emission drift {report.emission_drift}, "
            f"{len(report.findings)} findings; "
            + ", ".join(f"{form.split()[-1]} {times[form]:.1f} ms" for form in works)
        )
        for fault, plant in FAULTS.items():
            found = audit(plant(trial), whole, token_bytes=table).findings
            note(f"{'':19}{fault}: {len(found)} findings")
    return times


def note(text: str) -> None:
    """Prints what is no figure."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Prints the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="end within 40 s on 2 cores")
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    options = parser.parse_args()
    times = audit_ms(7 if options.quick else 25)
    slowest = max(times.values())
    show(figure("audit_ms_300x96k", slowest, 100.0, "lower", each=times), as_json=options.json)


if __name__ == "__main__":
    main()
