"""The mounts sandboxes are made of, as the arena sees them.

    base/etc      one generated /etc, shared read-only by all sandboxes
    base/work, base/tmp, base/logs, base/trees      mount points, empty in the arena

Each trial mounts its own tmpfs on these points in its own mount namespace: no trial sees another's,
and all of them vanish with the trial's process. Sizes and inode counts are bounded by the kernel.
"""

import errno
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from t1_sandbox._arena import linux

POINTS = ("work", "tmp", "logs", "trees")
_BASES = ("/mnt", "/srv", "/media", "/opt", "/var/tmp", "/tmp")
_PASSWD = "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000:agent:/tmp:/bin/bash\n"  # noqa: S105, has none
_ETC_FILES = {
    "passwd": _PASSWD + "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost sandbox\n",
}
_FREEZE_LIMIT_S = 10.0
_FREEZE_PAUSE_S = 0.002
_MERGED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def prepare_arena() -> Path:
    """Makes every mount private, mounts a fresh /proc and the base, and fills base/etc.

    Returns:
        The base directory.
    """
    linux.mount("none", "/", "", linux.MS_REC | linux.MS_PRIVATE, "")
    linux.mount("proc", "/proc", "proc", 0, "")
    base = next(path for path in map(Path, _BASES) if path.is_dir() and not path.is_symlink())
    mount_tmpfs(base, size=16 << 20, inodes=20_000, mode=0o755)
    for name in POINTS:
        (base / name).mkdir()
    _fill_etc(base / "etc")
    return base


def fill_libraries(folder: Path, libraries: dict[str, str]) -> None:
    """Copies open files, by name and descriptor, to where bwrap finds them, and closes them."""
    folder.mkdir()
    for name, descriptor in libraries.items():
        with os.fdopen(int(descriptor), "rb") as library:
            (folder / name).write_bytes(library.read())


def mount_tmpfs(target: Path, *, size: int, inodes: int, mode: int) -> None:
    """Mounts an empty tmpfs bounded in bytes and inodes."""
    options = f"size={size},nr_inodes={inodes},mode={mode:o}"
    linux.mount("tmpfs", str(target), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)


def freeze(target: Path) -> None:
    """Makes the whole file system mounted at `target` read-only, for every mount of it.

    Nobody may hold a file of it open for writing; the caller has ended whoever could.

    Raises:
        OSError: A file is still open for writing after 10 s.
    """
    flags = linux.MS_REMOUNT | linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
    deadline = time.monotonic() + _FREEZE_LIMIT_S
    while True:
        try:
            linux.mount("tmpfs", str(target), "tmpfs", flags, "")
        except OSError as error:
            # The kernel closes some files of ended processes late: those registered with io_uring,
            # those in flight in a cycle of sockets. The agent chooses whether it has such files.
            if error.errno != errno.EBUSY or time.monotonic() > deadline:
                raise
            time.sleep(_FREEZE_PAUSE_S)
        else:
            return


def system_arguments() -> list[str]:
    """Returns bwrap's arguments for the host's /usr and for what the root has beside it."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for path in (Path("/", name) for name in _MERGED):
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            arguments += ["--ro-bind", str(path), str(path)]
    return arguments


def _fill_etc(etc: Path) -> None:
    etc.mkdir()
    for name, text in _ETC_FILES.items():
        (etc / name).write_text(text)
    for name in ("ld.so.cache", "localtime"):
        # neither is needed to run programs: musl has no cache, UTC is the default zone
        with suppress(FileNotFoundError):
            shutil.copyfile(f"/etc/{name}", etc / name)
    alternatives = Path("/etc/alternatives")
    if alternatives.is_dir():
        (etc / "alternatives").mkdir()
        for entry in alternatives.iterdir():
            if entry.is_symlink():
                (etc / "alternatives" / entry.name).symlink_to(entry.readlink())
