"""The initial state of a task: what lies in the work directory before the agent starts.

A state is a sequence of entries (`File`, `Symlink`, `Archive`, `t1_reward.synthesis.repository.Repository`),
each of which knows the nodes it consists of. The state knows nothing of what is to be done with it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from t1_reward.archive import Node, pack

__all__ = ["Archive", "Entry", "File", "Symlink", "pack_state"]


class Entry(Protocol):
    """Anything that can be part of an initial state."""

    def nodes(self) -> Iterator[Node]:
        """Yields the files and links it consists of."""
        ...


@dataclass(frozen=True)
class File:
    """A regular file with the given text and permission bits."""

    path: str
    text: str
    mode: int = 0o644

    def nodes(self) -> Iterator[Node]:
        """Yields the file."""
        yield Node(self.path, self.text.encode(), self.mode)


@dataclass(frozen=True)
class Symlink:
    """A symbolic link."""

    path: str
    target: str

    def nodes(self) -> Iterator[Node]:
        """Yields the link."""
        yield Node(self.path, link=self.target)


@dataclass(frozen=True)
class Archive:
    """A tar archive of files."""

    path: str
    files: tuple[File, ...]

    def nodes(self) -> Iterator[Node]:
        """Yields the archive as one file."""
        yield Node(self.path, pack(node for file in self.files for node in file.nodes()))


def pack_state(entries: Iterable[Entry]) -> bytes:
    """Returns the tar archive to be unpacked in the work directory."""
    return pack(node for entry in entries for node in entry.nodes())
