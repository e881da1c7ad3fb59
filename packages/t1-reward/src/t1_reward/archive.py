"""File trees as tar archives whose bytes depend on the tree alone.

A tree is a set of `Node`s: regular files and symbolic links by relative path; parent directories
are implied. `pack` writes ustar with sorted paths, one fixed time, owner 1000:1000 and modes as
given, so equal trees give equal bytes and equal hashes. Archives hold no devices, no hard links
and no absolute or climbing paths.

This module knows nothing of tasks.
"""

import tarfile
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Node", "pack"]

# any constant does; this one is late enough for every tool and lies in the past
_TIME = 1_700_000_000
_OWNER = 1000
_DIRECTORY_MODE = 0o755

_BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True)
class Node:
    """A regular file, or a symbolic link when `link` is given.

    Attributes:
        path: relative POSIX path without `..`.
        data: the file's bytes; empty for a link.
        mode: permission bits.
        link: the link's target, or None for a regular file.
    """

    path: str
    data: bytes = b""
    mode: int = 0o644
    link: str | None = None


def _header(path: str, kind: bytes, mode: int, size: int = 0, link: str = "") -> bytes:
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.size, member.linkname = kind, mode, size, link
    member.uid = member.gid = _OWNER
    member.mtime = _TIME
    try:
        return member.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError as error:
        raise ValueError(f"path {path!r}: does not fit in a tar archive: {error}") from error


def _parents(paths: Iterable[str]) -> set[str]:
    parents: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in parents:
            parents.add(path)
    return parents


def _check_path(path: str) -> None:
    if any(part in {"", ".", ".."} for part in path.split("/")):
        raise ValueError(f"path {path!r}: expected a relative path that stays inside the tree")


def pack(nodes: Iterable[Node]) -> bytes:
    """Returns the tree as an uncompressed tar archive.

    Raises:
        ValueError: a path is absolute, climbs out of the tree, appears twice or is too long.
    """
    by_path: dict[str, Node] = {}
    for node in nodes:
        _check_path(node.path)
        if node.path in by_path:
            raise ValueError(f"path {node.path!r}: appears twice in one tree")
        by_path[node.path] = node
    out = bytearray()
    directories = _parents(by_path)
    for path in sorted(directories | by_path.keys()):
        if path in directories:
            out += _header(path, tarfile.DIRTYPE, _DIRECTORY_MODE)
            continue
        node = by_path[path]
        if node.link is not None:
            out += _header(path, tarfile.SYMTYPE, 0o777, link=node.link)
            continue
        out += _header(path, tarfile.REGTYPE, node.mode, len(node.data))
        out += node.data + bytes(-len(node.data) % _BLOCK)
    return bytes(out) + bytes(2 * _BLOCK)
