"""Trees that arrive as tar archives: safe extraction and a digest of what lies on disk.

    digest(tree) = sha256 over the sorted entries (path, kind, mode, link target or content)

An archive can write only below its destination: absolute names, "..", links that lead out, devices
and set-uid bits are refused or stripped. Modes, times and inner links are kept; owners
are not.
"""

import hashlib
import io
import os
import stat
import tarfile
from pathlib import Path


def extract(archive: bytes, destination: Path) -> None:
    """Unpacks an uncompressed tar archive below `destination`, which is created when absent.

    Raises:
        tarfile.TarError: The archive is malformed or reaches outside.
        OSError: The file system refuses (no space, no permission).
    """
    destination.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        tar.extractall(destination, filter=_safe_member)  # noqa: S202, that is what the filter is for


def _safe_member(member: tarfile.TarInfo, destination: str) -> tarfile.TarInfo:
    checked = tarfile.data_filter(member, destination)
    return checked.replace(mode=member.mode & 0o777, deep=False)


def unpacked_size(archive: bytes) -> tuple[int, int]:
    """Returns bytes, rounded up to pages, and inodes that the archive's tree needs at most.

    Raises:
        tarfile.TarError: The archive is malformed.
    """
    total, inodes = 0, 1
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for member in tar:
            total += (member.size + 8191) // 4096 * 4096
            inodes += 1 + member.name.count("/")
    return total, inodes


def digest(root: Path) -> str:
    """Returns the hexadecimal digest of a tree as it lies on disk."""
    total = hashlib.sha256()
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        content = b""
        if stat.S_ISLNK(status.st_mode):
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(status.st_mode):
            content = path.read_bytes()
        name = os.fsencode(path.relative_to(root))
        for part in (name, b"%o" % status.st_mode, content):
            total.update(b"%d:" % len(part) + part)
    return total.hexdigest()
