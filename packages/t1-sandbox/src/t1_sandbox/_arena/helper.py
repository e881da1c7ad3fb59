"""The process that acts inside one sandbox on the client's behalf, with no rights of its own.

It is forked, not started, so joining costs no interpreter start. Before it reads a request it has
given up every capability, cannot be traced or read by the sandbox's processes (same uid, but not
dumpable), and holds one descriptor that matters: its socket. A request gets exactly one reply.
The sandbox can kill or stop it; it can not make it do anything. It never joins a sandbox in which an
earlier helper was lost: the keeper starts the namespaces again instead (see `trial`).
"""

import errno
import os
import resource
import select
import socket
import stat
import tarfile
from pathlib import Path

from t1_sandbox._arena import linux, trees
from t1_sandbox._arena.command import Command, Discards
from t1_sandbox._arena.namespaces import Namespaces
from t1_sandbox._arena.processes import Reaper
from t1_sandbox.frames import Header, receive, send

_OWN_PROCESSES = 2  # process 1 and the helper count against RLIMIT_NPROC
_OPEN_FILES = 1024
_READ_BYTES = 1 << 20


def run(client: socket.socket, namespaces: Namespaces, spec: Header) -> None:
    """Joins the sandbox and serves requests until the client closes the socket.

    The caller has forked this process into the sandbox's pid namespace.

    Args:
        client: Stream socket of frames.
        namespaces: The sandbox to join, in which nothing can run yet.
        spec: Limits and working directory, see `t1_sandbox.SandboxSpec`.
    """
    client = _keep_only(client, namespaces)
    try:
        namespaces.join()
    except ProcessLookupError:
        return  # the sandbox has ended meanwhile, which the client learns from its socket
    os.close(namespaces.init)
    # what the sandbox can provoke here must not appear on the client's terminal
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 2)
    _give_up_rights(spec)
    _Service(client, Reaper(), spec["workdir"]).serve()


def _keep_only(client: socket.socket, namespaces: Namespaces) -> socket.socket:
    start = 3
    for kept in sorted((client.fileno(), namespaces.init)):
        os.closerange(start, kept)
        start = kept + 1
    os.closerange(start, 65_536)
    return client


def _give_up_rights(spec: Header) -> None:
    os.setsid()
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.drop_capabilities()
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    limits = {
        resource.RLIMIT_NPROC: spec["pids"] + _OWN_PROCESSES,
        resource.RLIMIT_AS: spec["memory_bytes"],
        resource.RLIMIT_FSIZE: spec["file_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
    }
    for kind, limit in limits.items():
        hard = resource.getrlimit(kind)[1]
        # the host may allow less, and nobody here could raise it
        allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (allowed, allowed))


class _Service:
    def __init__(self, client: socket.socket, reaper: Reaper, workdir: str) -> None:
        self._client = client
        self._reaper = reaper
        self._workdir = workdir
        self._discards = Discards()

    def serve(self) -> None:
        while self._wait_for_request():
            frame = receive(self._client)
            if frame is None:
                return
            if frame.header["op"] == "exec":
                command = Command(frame.header, self._workdir, self._reaper, self._discards)
                reply = command.run(self._client)
            else:
                reply = self._transfer(frame.header, frame.payload)
            send(self._client, *reply)

    def _wait_for_request(self) -> bool:
        while True:
            poll = select.poll()
            poll.register(self._client.fileno(), select.POLLIN)
            poll.register(self._reaper.wakeup, select.POLLIN)
            self._discards.register(poll)
            for descriptor, _ in poll.poll():
                if descriptor == self._client.fileno():
                    return True
                if descriptor in self._discards:
                    self._discards.read(descriptor)
                else:
                    self._reaper.reap()

    def _transfer(self, header: Header, payload: bytes) -> tuple[Header, bytes]:
        path = Path(self._workdir, header["path"])
        try:
            match header["op"]:
                case "put_tree":
                    trees.extract(payload, path)
                    return {}, b""
                case "put_file":
                    _write(path, payload, header["mode"])
                    return {}, b""
                case _:
                    return {}, _read(path, header["max_bytes"])
        except (OSError, ValueError, tarfile.TarError) as error:
            number = getattr(error, "errno", None) or errno.EINVAL
            return {"error": f"{type(error).__name__}: {error}", "errno": number}, b""


def _open_regular(path: Path, flags: int) -> int:
    # O_NONBLOCK: the sandbox may have put a fifo there, which would block the open
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def _write(path: Path, data: bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(_open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), mode & 0o777)


def _read(path: Path, max_bytes: int) -> bytes:
    data = bytearray()
    with open(_open_regular(path, os.O_RDONLY), "rb") as file:
        # piece by piece: memory for max_bytes may be more than the helper is allowed, and the size
        # is not known beforehand (files below /proc claim none)
        while part := file.read(min(_READ_BYTES, max_bytes + 1 - len(data))):
            data += part
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"more than max_bytes={max_bytes}", str(path))
    return bytes(data)
