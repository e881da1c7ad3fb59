"""Medians of interleaved runs, and figures as lines."""

import contextlib
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collects garbage, then keeps the collector off; it would walk lists that only some have."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def milliseconds(work: Callable[[], object]) -> float:
    """Returns how long `work` takes; what it returns is released after the clock has stopped."""
    began = time.perf_counter()
    result = work()
    passed = time.perf_counter() - began
    del result
    return passed * 1e3


def median_ms(works: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Times every work `repeats` times in turn, after one round that does not count.

    Returns:
        The median milliseconds of each.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    with without_collection():
        for round_number in range(repeats + 1):
            for name, work in works.items():
                passed = milliseconds(work)
                if round_number:
                    times[name].append(passed)
            gc.collect()
    return {name: statistics.median(values) for name, values in times.items()}


def figure(name: str, value: float, target: float, better: str, **more: Any) -> dict[str, Any]:
    """Returns a figure of the package; `more` holds what else belongs to it."""
    return {"figure": f"tito.{name}", "value": value, "target": target, "better": better, **more}


def show(line: Mapping[str, Any], *, as_json: bool) -> None:
    """Prints a figure."""
    text = f"{line['figure']:38} {line['value']:12.4f}  target {line['target']} ({line['better']})"
    print(json.dumps(line) if as_json else text, flush=True)
