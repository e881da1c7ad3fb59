"""The process that keeps one trial: its mounts, its namespaces, its helper, its seal.

It works through one request at a time from its own socket and ends with it:

    create -> (restart)* -> seal? -> (restart | intact)* -> end of the socket

A restart is what follows the loss of a helper, however the sandbox brought it about: by killing or
stopping it, or by ending process 1. All namespaces end and start again over the same mounts, so no
process is left that could do the same to the next helper, and no file is lost.

Everything belongs to this process or to its mount namespace, so its end, however it comes, is the
end of the trial: mounts vanish with the mount namespace, bwrap dies with its parent.
"""

import os
import signal
import socket
import sys
import tarfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from t1_sandbox._arena import ground, helper, linux, trees
from t1_sandbox._arena import namespaces as ns
from t1_sandbox.frames import Frame, Header, receive, send, split

_TMP_INODES = 4096
_PAGE = 4096


@dataclass(frozen=True)
class Host:
    """What all trials of an arena share.

    Attributes:
        base: The arena's base directory.
        bwrap: Descriptor of the bwrap executable.
        system: bwrap's arguments for /usr and its relatives.
    """

    base: Path
    bwrap: int
    system: list[str]


class Trial:
    """One trial, from its mounts to its end."""

    def __init__(self, host: Host, spec: Header) -> None:
        self._host = host
        self._spec = spec
        self._trees: dict[str, Path] | None = None
        self._digests: dict[str, str] = {}
        self._helper: int | None = None
        self._namespaces: ns.Namespaces | None = None
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        linux.unshare(linux.CLONE_NEWNS)
        base = host.base
        ground.mount_tmpfs(
            base / "work", size=spec["work_bytes"], inodes=spec["work_inodes"], mode=0o755
        )
        self._mount_scratch()
        self._namespaces = self._start()

    def _mount_scratch(self) -> None:
        base, size = self._host.base, self._spec["tmp_bytes"]
        for name in ("tmp", "logs"):
            ground.mount_tmpfs(base / name, size=size, inodes=_TMP_INODES, mode=0o755)
        for name in ("tmp", "shm"):
            path = base / "tmp" / name
            path.mkdir()
            path.chmod(0o1777)

    def _start(self) -> ns.Namespaces:
        host = self._host
        view = ns.view_arguments(host.base, host.system, self._spec["workdir"], self._trees)
        return ns.start(host.bwrap, host.base / "libraries", view)

    def restart(self) -> None:
        """Ends every process and opens fresh namespaces over the same mounts."""
        self.end()
        self._namespaces = self._start()

    def start_helper(self, client: socket.socket) -> None:
        """Forks the process that acts inside just started namespaces."""
        namespaces = self._namespaces
        assert namespaces is not None
        # only children enter a pid namespace: go there, fork, come back
        linux.setns(namespaces.init, linux.CLONE_NEWPID)
        try:
            self._helper = os.fork()
            if self._helper == 0:
                run_child(lambda: helper.run(client, namespaces, self._spec))
        finally:
            linux.setns(self._own_pids, linux.CLONE_NEWPID)
        client.close()

    def _end_helper(self) -> None:
        if self._helper is not None:
            os.kill(self._helper, signal.SIGKILL)
            os.waitpid(self._helper, 0)
            self._helper = None

    def seal(self, places: list[str], archives: list[bytes]) -> None:
        """Ends all of the agent's processes and opens a fresh sandbox over its read-only work.

        Args:
            places: Absolute paths the trees will be seen at.
            archives: Tar archive of each tree.

        Raises:
            tarfile.TarError: An archive is malformed or reaches outside.
        """
        needs = [trees.unpacked_size(archive) for archive in archives]
        size, inodes = (sum(need[index] for need in needs) for index in (0, 1))
        self.end()
        base = self._host.base
        # the agent may have locked itself out, which must cost it the reward and not the verdict
        (base / "work").chmod(0o755)
        ground.freeze(base / "work")
        for name in ("tmp", "logs"):
            linux.unmount(str(base / name))
        self._mount_scratch()
        tree_base = base / "trees"
        ground.mount_tmpfs(
            tree_base, size=size + _PAGE, inodes=inodes + len(places) + 1, mode=0o755
        )
        self._trees = {place: tree_base / str(index) for index, place in enumerate(places)}
        for tree, archive in zip(self._trees.values(), archives, strict=True):
            trees.extract(archive, tree)
        ground.freeze(tree_base)
        self._digests = {place: trees.digest(tree) for place, tree in self._trees.items()}
        self._namespaces = self._start()

    def intact(self) -> bool:
        """Tells whether every mounted tree still has the digest it was sealed with."""
        mounted = self._trees or {}
        return self._digests == {place: trees.digest(tree) for place, tree in mounted.items()}

    def end(self) -> None:
        """Ends every process of the trial and returns when they are gone; may be repeated.

        Raises:
            TimeoutError: Something did not end.
        """
        namespaces, self._namespaces = self._namespaces, None
        if namespaces is not None:
            namespaces.kill()
            # process 1 is not gone before this child of ours inside is reaped
            self._end_helper()
            namespaces.wait_until_gone()


def run_child(body: Callable[[], None]) -> None:
    """Runs `body` in a just forked process and ends the process, whatever happens.

    An unexpected error goes to the arena's standard error, which is the client's.
    """
    code = 1
    try:
        body()
        code = 0
    except (BrokenPipeError, ConnectionResetError):
        code = 0  # the client has left, which is how service ends
    except BaseException:
        traceback.print_exc(file=sys.stderr)
    finally:
        os._exit(code)  # the fork must not run the arena's own cleanup


def run(client: socket.socket, commands: socket.socket, host: Host) -> None:
    """Creates a trial as the first frame on `client` asks, and keeps it until the socket ends.

    Args:
        client: Stream socket of the requests to this process.
        commands: Stream socket that the trial's helper will serve.
        host: What trials share.
    """
    request = receive(client)
    if request is None:
        return
    try:
        trial = Trial(host, request.header)
    except (OSError, RuntimeError) as error:
        send(client, {"error": str(error)})
        return
    try:
        send(client, _start_first_helper(trial, commands))
        while (request := receive(client)) is not None:
            send(client, _serve(trial, request))
    finally:
        trial.end()


def _start_first_helper(trial: Trial, commands: socket.socket) -> Header:
    try:
        trial.start_helper(commands)
    except (OSError, RuntimeError) as error:
        return {"error": str(error)}
    return {}


def _serve(trial: Trial, request: Frame) -> Header:
    header = request.header
    if header["op"] == "intact":
        return {"intact": trial.intact()}
    commands = socket.socket(fileno=request.descriptors[0])
    try:
        if header["op"] == "seal":
            trial.seal(header["places"], split(request.payload, header["sizes"]))
        else:
            trial.restart()
        trial.start_helper(commands)
    except (OSError, RuntimeError, tarfile.TarError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {}
