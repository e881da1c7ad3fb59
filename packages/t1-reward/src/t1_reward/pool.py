"""A pool: a directory of tasks with an index, built once and opened lazily.

    <pool>/index.jsonl      one line per task: id, path, split, families, skills, length, ...
    <pool>/tasks/<id>/      the task, in Harbor's layout

A pool appears complete or not at all: it is built beside its place and renamed into it. Opening
reads the index only; a task is read when it is asked for and must still have the hash in the index.

`Pool.order(epoch, seed)` is a permutation of the training tasks that depends on these two numbers and
the ids alone, so a run resumes at (epoch, cursor) on any machine. The pool knows nothing of rewards.
"""

import json
import math
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from t1_reward.errors import PoolError, TaskFormatError, first_problem
from t1_reward.stream import Stream
from t1_reward.synthesis import Split, SynthesizedTask, generate_task
from t1_reward.task import Task

__all__ = ["Pool", "PoolEntry"]

_INDEX = "index.jsonl"
# a pool's tasks have consecutive seeds, so pools of different seeds share none
_SEEDS_PER_POOL = 1_000_000


class PoolEntry(BaseModel):
    """One line of the index.

    Attributes:
        schema_version: version of the line's format.
        id: unique in the pool.
        path: the task's directory, relative to the pool.
        split: training or held out.
        families: family of each subgoal.
        skills: skill of each subgoal.
        length: number of subgoals.
        assertions: T*, the number of assertions.
        seed: what the task was generated from, together with the split.
        content_hash: SHA-256 of the task's files, in hex.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    id: str
    path: str
    split: Split
    families: tuple[str, ...]
    skills: tuple[str, ...]
    length: NonNegativeInt
    assertions: NonNegativeInt
    seed: int
    content_hash: str


class Pool:
    """An opened pool; use `Pool.open` or `Pool.build`.

    Args:
        directory: where it lies.
        entries: its index.
    """

    def __init__(self, directory: Path, entries: Iterable[PoolEntry]) -> None:
        self.directory = directory
        self._entries = {entry.id: entry for entry in entries}

    @classmethod
    def build(cls, directory: Path | str, sizes: Mapping[str, int], seed: int = 0) -> "Pool":
        """Generates a pool and returns it opened.

        Args:
            directory: its place; must not exist yet.
            sizes: how many tasks of each split.
            seed: pools of different seeds share no task.

        Raises:
            PoolError: the place is taken, or a size is out of range.
            SynthesisError: a split is unknown.
        """
        directory = Path(directory)
        if directory.exists():
            raise PoolError(f"{directory}: exists already; remove it or choose another place")
        _check_sizes(sizes)
        directory.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
        try:
            tasks = (
                generate_task(seed * _SEEDS_PER_POOL + number, split)
                for split, size in sizes.items()
                for number in range(size)
            )
            _write(draft, tasks)
            draft.chmod(0o755)
            draft.rename(directory)
        except BaseException:
            shutil.rmtree(draft)
            raise
        return cls.open(directory)

    @classmethod
    def open(cls, directory: Path | str) -> "Pool":
        """Returns the pool in a directory.

        Raises:
            PoolError: the index is missing, broken or names a task twice; the message says the
                file and the line.
        """
        directory = Path(directory)
        index = directory / _INDEX
        if not index.is_file():
            raise PoolError(f"{index}: missing; expected a pool built by Pool.build in {directory}")
        entries: dict[str, PoolEntry] = {}
        for number, line in enumerate(index.read_bytes().splitlines(), start=1):
            entry = _read_entry(line, f"{index}, line {number}")
            if entry.id in entries:
                raise PoolError(f"{index}, line {number}: id {entry.id!r} appears twice")
            entries[entry.id] = entry
        if not entries:
            raise PoolError(f"{index}: empty; expected one line per task; build the pool again")
        return cls(directory, entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PoolEntry]:
        return iter(self._entries.values())

    def ids(self, split: Split | str) -> tuple[str, ...]:
        """Returns the ids of a split, in the order of the index."""
        return tuple(entry.id for entry in self if entry.split == split)

    def entry(self, id: str) -> PoolEntry:
        """Returns a task's line of the index.

        Raises:
            PoolError: no such task.
        """
        try:
            return self._entries[id]
        except KeyError:
            raise PoolError(f"{self.directory}: no task {id!r} in its index") from None

    def task(self, id: str) -> Task:
        """Returns a task.

        Raises:
            PoolError: no such task, or its files are missing or not those of the index.
        """
        entry = self.entry(id)
        try:
            task = Task.load(self.directory / entry.path)
        except TaskFormatError as error:
            raise PoolError(
                f"{self.directory}: task {id!r}: {error}; build the pool again"
            ) from error
        if task.content_hash() != entry.content_hash:
            raise PoolError(
                f"{self.directory / entry.path}: changed since the pool was built; build it again"
            )
        return task

    def percentile_assertions(self, percent: float) -> int:
        """Returns the percentile (nearest rank) of assertions per training task.

        The paper takes the 90th percentile as the scale S of the reward.

        Raises:
            PoolError: percent is not in (0, 100], or the pool has no training task.
        """
        counts = sorted(entry.assertions for entry in self if entry.split is Split.TRAIN)
        if not 0 < percent <= 100:
            raise PoolError(f"percent: expected a number in (0, 100], got {percent}")
        if not counts:
            raise PoolError(f"{self.directory}: no training task to take a percentile of")
        return counts[math.ceil(percent * len(counts) / 100) - 1]

    def order(self, epoch: int, seed: int) -> tuple[str, ...]:
        """Returns the training ids in the order of an epoch; resume at a cursor by slicing.

        Args:
            epoch: how often the training tasks have been gone through before.
            seed: the run's seed.
        """
        stream = Stream("t1-reward/order/1", seed, epoch)
        return tuple(stream.permutation(sorted(self.ids(Split.TRAIN))))


def _check_sizes(sizes: Mapping[str, int]) -> None:
    for split, size in sizes.items():
        if not 0 <= size <= _SEEDS_PER_POOL:
            raise PoolError(f"sizes[{split!r}]: expected 0 .. {_SEEDS_PER_POOL}, got {size}")
    if sum(sizes.values()) == 0:
        raise PoolError("sizes: expected at least one task")


def _write(directory: Path, tasks: Iterable[SynthesizedTask]) -> None:
    with (directory / _INDEX).open("w", encoding="utf-8") as index:
        for made in tasks:
            path = f"tasks/{made.id}"
            made.task.write(directory / path)
            entry = PoolEntry(
                id=made.id,
                path=path,
                split=made.split,
                families=made.families,
                skills=made.skills,
                length=len(made.subgoals),
                assertions=len(made.conditions),
                seed=made.seed,
                content_hash=made.task.content_hash(),
            )
            index.write(json.dumps(entry.model_dump(mode="json")) + "\n")


def _read_entry(line: bytes, place: str) -> PoolEntry:
    try:
        return PoolEntry.model_validate_json(line)
    except ValidationError as error:
        problem = first_problem(error, "the line")
        raise PoolError(f"{place}: {problem}; build the pool again") from error
