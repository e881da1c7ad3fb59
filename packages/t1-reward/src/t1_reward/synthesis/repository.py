"""Small git repositories written natively, object by object.

A `Repository` is a line of commits on branch main plus files changed in the work tree since. It is
written as loose objects (stored, not compressed: the bytes must not depend on a zlib version), one
ref and an index of version 2. Authors and dates are fixed, so equal repositories have equal commit
ids. The index carries no stat data; git compares contents.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from t1_reward.archive import Node

__all__ = ["Commit", "Repository"]

_SIGNATURE = "t1 <t1@localhost> 1700000000 +0000"
# no reflog: writing one asks for the user's name, which a sandbox need not have
_CONFIG = "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tlogallrefupdates = false\n"
_FILE_MODE = 0o100644


@dataclass(frozen=True)
class Commit:
    """A commit: its subject line and the complete top-level files, name to text."""

    subject: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Repository:
    """A repository directory.

    Attributes:
        path: the directory, relative to the work directory.
        commits: the history of main, oldest first; at least one.
        changed: files whose text in the work tree differs from the last commit.
    """

    path: str
    commits: tuple[Commit, ...]
    changed: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def head(self) -> str:
        """The id of the last commit, 40 hex digits."""
        return self._written[1]

    def nodes(self) -> Iterator[Node]:
        """Yields every file of the repository, the `.git` directory included."""
        objects, head = self._written
        for name, data in objects.items():
            yield self._git(f"objects/{name[:2]}/{name[2:]}", data, 0o444)
        yield self._git("HEAD", b"ref: refs/heads/main\n")
        yield self._git("refs/heads/main", f"{head}\n".encode())
        yield self._git("config", _CONFIG.encode())
        yield self._git("index", _index(self.commits[-1].files))
        for name, text in {**self.commits[-1].files, **self.changed}.items():
            yield Node(f"{self.path}/{name}", text.encode())

    @cached_property
    def _written(self) -> tuple[dict[str, bytes], str]:
        objects: dict[str, bytes] = {}
        head = ""
        for commit in self.commits:
            head = _write_commit(objects, commit, head)
        return objects, head

    def _git(self, name: str, data: bytes, mode: int = 0o644) -> Node:
        return Node(f"{self.path}/.git/{name}", data, mode)


def _object(kind: str, body: bytes) -> tuple[str, bytes]:
    whole = f"{kind} {len(body)}\0".encode() + body
    # git names objects by SHA-1; nothing here relies on it being collision free
    return hashlib.sha1(whole, usedforsecurity=False).hexdigest(), zlib.compress(whole, 0)


def _write_commit(objects: dict[str, bytes], commit: Commit, parent: str) -> str:
    entries = bytearray()
    for name, text in sorted(commit.files.items()):
        blob, data = _object("blob", text.encode())
        objects[blob] = data
        entries += f"{_FILE_MODE:o} {name}\0".encode() + bytes.fromhex(blob)
    tree, data = _object("tree", bytes(entries))
    objects[tree] = data
    lines = [f"tree {tree}", f"author {_SIGNATURE}", f"committer {_SIGNATURE}", "", commit.subject]
    if parent:
        lines.insert(1, f"parent {parent}")
    name, data = _object("commit", ("\n".join(lines) + "\n").encode())
    objects[name] = data
    return name


def _index(files: Mapping[str, str]) -> bytes:
    out = bytearray(struct.pack(">4sLL", b"DIRC", 2, len(files)))
    for name, text in sorted(files.items()):
        blob = bytes.fromhex(_object("blob", text.encode())[0])
        stat = struct.pack(">10L", 0, 0, 0, 0, 0, 0, _FILE_MODE, 0, 0, 0)
        entry = stat + blob + struct.pack(">H", len(name)) + name.encode()
        out += entry + bytes(8 - len(entry) % 8)
    return bytes(out) + hashlib.sha1(out, usedforsecurity=False).digest()
