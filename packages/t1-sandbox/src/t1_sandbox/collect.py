"""The first N of more trials than needed, with every trial accounted for.

    launched = admitted + cancelled + failed, without overlap

In order of arrival, or of a logical completion key: then the result does not depend on timing,
because a trial is admitted only when no running one can still come before it.
"""

import asyncio
import heapq
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from t1_sandbox.errors import SpecError

Result = TypeVar("Result")
Trial = Coroutine[Any, Any, Result] | Callable[[], Coroutine[Any, Any, Result]]

_LOSER_LIMIT_S = 30.0


@dataclass(frozen=True)
class Collected(Generic[Result]):
    """What became of every trial.

    Attributes:
        admitted: Keys and results of the first `target`, in order.
        cancelled: Keys of the others that were stopped or came too late, as they were launched.
        failed: Keys and errors of trials that raised.
        lingering: Those of `cancelled` that had not ended when this was returned.
        short: Whether fewer than `target` could be admitted.
    """

    admitted: tuple[tuple[str, Result], ...]
    cancelled: tuple[str, ...]
    failed: tuple[tuple[str, Exception], ...]
    lingering: tuple[str, ...]
    short: bool


async def collect_first(
    trials: Iterable[tuple[str, Trial[Result]]],
    target: int,
    *,
    order: Literal["arrival", "logical"] = "arrival",
    completion_key: Callable[[Result], Any] | None = None,
    frontier: Callable[[Collection[str]], Any] | None = None,
    loser_limit_s: float = _LOSER_LIMIT_S,
) -> Collected[Result]:
    """Runs all trials at once, admits the first `target` and cancels the rest.

    A trial that raises is never admitted; the next completion takes its place.

    Args:
        trials: Unique keys, each with a coroutine or a function that returns one.
        target: How many to admit.
        order: "arrival", or "logical" for the order of (completion key, trial key).
        completion_key: For "logical": the sortable key of a result.
        frontier: For "logical": given the keys of the trials whose end has not been taken in yet,
            the least completion key one of them could have. Without it, or when it returns None,
            nothing is admitted before all trials have ended.
        loser_limit_s: Seconds the cancelled trials get to end.

    Raises:
        SpecError: `target` is below 1, two keys are equal, or "logical" has no `completion_key`.
    """
    listed = list(trials)
    _check(listed, target, order, completion_key)
    collection = _Collection(target, completion_key if order == "logical" else None, frontier)
    for key, trial in listed:
        task = asyncio.ensure_future(trial() if callable(trial) else trial)
        collection.add(key, task)
    try:
        await collection.run()
    finally:
        lingering = await collection.stop(loser_limit_s)
    return collection.result(lingering)


def _check(
    trials: list[tuple[str, Trial[Result]]],
    target: int,
    order: str,
    completion_key: Callable[[Result], Any] | None,
) -> None:
    problem = None
    if target < 1:
        problem = f"target={target}, expected 1 or more"
    elif len({key for key, _ in trials}) < len(trials):
        problem = f"keys of {len(trials)} trials, expected all to differ"
    elif order == "logical" and completion_key is None:
        problem = 'order="logical", expected a completion_key with it'
    if problem:
        for _, trial in trials:
            if not callable(trial):
                trial.close()
        raise SpecError(problem)


class _Collection(Generic[Result]):
    def __init__(
        self,
        target: int,
        completion_key: Callable[[Result], Any] | None,
        frontier: Callable[[Collection[str]], Any] | None,
    ) -> None:
        self.running: dict[asyncio.Future[Result], str] = {}
        self._launched: list[str] = []
        self._target = target
        self._completion_key = completion_key
        self._frontier = frontier
        self._arrived = 0
        self._waiting: list[tuple[Any, str, int, Result]] = []
        self._admitted: list[tuple[str, Result]] = []
        self._cancelled: list[str] = []
        self._failed: list[tuple[str, Exception]] = []
        # in the order of their ends, which asyncio.wait does not tell
        self._ended: list[asyncio.Future[Result]] = []

    def add(self, key: str, task: "asyncio.Future[Result]") -> None:
        self.running[task] = key
        self._launched.append(key)
        task.add_done_callback(self._note_end)

    def _note_end(self, task: "asyncio.Future[Result]") -> None:
        self._ended.append(task)

    async def run(self) -> None:
        while self.running and len(self._admitted) < self._target:
            await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
            ended, self._ended = self._ended, []
            for task in ended:
                self._note(task)
            self._admit()

    def _note(self, task: "asyncio.Future[Result]") -> None:
        key = self.running.pop(task)
        if task.cancelled():
            self._cancelled.append(key)
            return
        error = task.exception()
        if error is None:
            result = task.result()
            place = self._completion_key(result) if self._completion_key else self._arrived
            self._arrived += 1
            heapq.heappush(self._waiting, (place, key, self._arrived, result))
        elif isinstance(error, Exception):
            self._failed.append((key, error))
        else:
            raise error

    def _admit(self) -> None:
        while self._waiting and len(self._admitted) < self._target and self._is_next():
            _, key, _, result = heapq.heappop(self._waiting)
            self._admitted.append((key, result))

    def _is_next(self) -> bool:
        if self._completion_key is None or not self.running:
            return True
        least = self._frontier(self.running.values()) if self._frontier else None
        return least is not None and self._waiting[0][0] < least

    async def stop(self, limit_s: float) -> tuple[str, ...]:
        for task in self.running:
            task.cancel()
        if self.running:
            ended, _ = await asyncio.wait(self.running, timeout=limit_s)
            for task in [task for task in self.running if task in ended]:
                self._note(task)
        self._cancelled += [key for _, key, _, _ in self._waiting]
        lingering = tuple(self.running.values())
        self._cancelled += lingering
        return lingering

    def result(self, lingering: tuple[str, ...]) -> Collected[Result]:
        return Collected(
            admitted=tuple(self._admitted),
            cancelled=tuple(key for key in self._launched if key in self._cancelled),
            failed=tuple(self._failed),
            lingering=lingering,
            short=len(self._admitted) < self._target,
        )
