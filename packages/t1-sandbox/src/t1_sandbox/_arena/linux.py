"""The Linux calls the arena needs and the standard library (3.11) lacks.

Each function is one system call, or one short sequence with one meaning; a failure raises OSError
with the name of the call. Nothing here knows about sandboxes.
"""

import ctypes
import errno
import os
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY = 0x1
MS_NOSUID = 0x2
MS_NODEV = 0x4
MS_REMOUNT = 0x20
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

_CAPABILITY_VERSION_3 = 0x2008_0522
_KEYCTL = {"x86_64": 250, "aarch64": 219}  # number of the system call, which libc does not wrap
_JOIN_SESSION_KEYRING = 1
_SETPERM = 5
_ARGUMENTS_START_FIELD = 47  # /proc/self/stat, counted from 0; the end is the next field

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, call: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), call)


def unshare(flags: int) -> None:
    """Moves the calling process (for CLONE_NEWPID: its next children) into new namespaces."""
    _check(_libc.unshare(flags), "unshare")


def setns(descriptor: int, flags: int) -> None:
    """Joins the namespaces `flags` of the process behind a pidfd, or of one namespace file."""
    _check(_libc.setns(descriptor, flags), "setns")


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """Mounts `kind` at `target`, or changes an existing mount (MS_REMOUNT, MS_PRIVATE)."""
    arguments = (os.fsencode(text) or None for text in (source, target, kind))
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def unmount(target: str) -> None:
    """Takes the topmost mount off `target`, also while it is still in use."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def prctl(option: int, argument: int | bytes) -> None:
    """Sets one process attribute."""
    value = argument if isinstance(argument, bytes) else ctypes.c_ulong(argument)
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def drop_capabilities() -> None:
    """Empties the bounding set, then every other capability set of the calling process."""
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        prctl(PR_CAPBSET_DROP, capability)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing), "capset")


def become_root_of_new_user_namespace(flags: int) -> None:
    """Unshares a user namespace (and `flags`) in which the caller's ids are mapped to 0."""
    uid, gid = os.geteuid(), os.getegid()
    # a process that changed its uid is not dumpable, and /proc/self then belongs to root
    prctl(PR_SET_DUMPABLE, 1)
    unshare(CLONE_NEWUSER | flags)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")


def leave_session_keyring() -> None:
    """Exchanges the inherited session keyring for an empty one that nobody can read or add to.

    Does nothing where the kernel has no keyrings or a filter refuses them to everyone.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is None:
        raise OSError(errno.ENOSYS, f"keyctl is not known on {os.uname().machine}", "keyctl")
    keyring = _libc.syscall(number, _JOIN_SESSION_KEYRING, None)
    if keyring >= 0:
        _check(_libc.syscall(number, _SETPERM, keyring, 0), "keyctl setperm")
    elif ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        _check(keyring, "keyctl join")


def hide_command_line(title: str) -> None:
    """Overwrites the process's command line, inherited by forks, so that it shows no host path."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    # the text up to the last ")" holds two fields
    start, end = (int(fields[_ARGUMENTS_START_FIELD - 2 + index]) for index in (0, 1))
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title.encode(), min(len(title), end - start - 1))
    prctl(PR_SET_NAME, title.encode()[:15])
