"""The arena: one process tree that owns every sandbox of one provider.

    client ── outer process ── process 1 of a private pid namespace ── one keeper per trial

Process 1 ends when the client's socket ends or the client's process does (pidfd: whichever thread
started it, whatever inherited the socket). The kernel then ends every process below, and the mount
namespaces go with them: nothing can be left behind. It forks keepers and reports their ends; it
never waits for one.
"""

import gc
import json
import os
import select
import signal
import socket
import sys

from t1_sandbox._arena import ground, linux, trial
from t1_sandbox._arena.processes import Reaper
from t1_sandbox.frames import receive_descriptors

_NOBODY = 65_534
_MESSAGE_BYTES = 4096


def main() -> None:
    """Runs the arena.

    Arguments: control socket, bwrap descriptor, client's process id, and `descriptor:name` of each
    library that bwrap needs.
    """
    control_number, bwrap, client_process = (int(argument) for argument in sys.argv[1:4])
    libraries = dict(argument.split(":", 1)[::-1] for argument in sys.argv[4:])
    control = socket.socket(fileno=control_number)
    client = os.pidfd_open(client_process)
    if os.getppid() != client_process:
        return  # the client was gone before its pidfd was open
    for descriptor in (control_number, bwrap):
        os.set_inheritable(descriptor, False)
    linux.hide_command_line("t1-sandbox arena")
    os.umask(0o022)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # an exception in a fork would only make noise
    try:
        _enter_namespaces()
    except OSError as error:
        _report(control, {"failed": str(error)})
        return
    first = os.fork()
    if first == 0:
        trial.run_child(lambda: _serve(control, client, bwrap, libraries))
    control.close()
    os.waitpid(first, 0)


def _enter_namespaces() -> None:
    # namespaces do not separate keyrings: the client's keys, and a way from sandbox to sandbox
    linux.leave_session_keyring()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    linux.become_root_of_new_user_namespace(linux.CLONE_NEWNS | linux.CLONE_NEWPID)


def _serve(control: socket.socket, client: int, bwrap: int, libraries: dict[str, str]) -> None:
    linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
    linux.prctl(linux.PR_SET_DUMPABLE, 0)
    reaper = Reaper()
    try:
        base = ground.prepare_arena()
        ground.fill_libraries(base / "libraries", libraries)
    except OSError as error:
        _report(control, {"failed": str(error)})
        return
    host = trial.Host(base, bwrap, ground.system_arguments())
    gc.collect()
    gc.freeze()
    _report(control, {"ready": True})
    _Arena(control, client, host, reaper).serve()


def _report(control: socket.socket, message: dict[str, object]) -> None:
    control.send(json.dumps(message).encode())


class _Arena:
    def __init__(
        self, control: socket.socket, client: int, host: trial.Host, reaper: Reaper
    ) -> None:
        self._control = control
        self._client = client
        self._host = host
        self._reaper = reaper
        self._keepers: dict[int, int] = {}

    def serve(self) -> None:
        poll = select.poll()
        for descriptor in (self._control.fileno(), self._client, self._reaper.wakeup):
            poll.register(descriptor, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._client in ready:
                return
            if self._reaper.wakeup in ready:
                self._report_ended()
            if self._control.fileno() in ready and not self._handle_request():
                return

    def _report_ended(self) -> None:
        for process in self._reaper.reap():
            # the others are orphans of ended trials
            if process in self._keepers:
                _report(self._control, {"gone": self._keepers.pop(process)})

    def _handle_request(self) -> bool:
        message, descriptors = receive_descriptors(self._control, _MESSAGE_BYTES)
        if not message:
            return False
        request = json.loads(message)
        if "list" in request:
            _report(self._control, {"list": request["list"], "trials": [*self._keepers.values()]})
            return True
        sockets = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        try:
            process = os.fork()
        except OSError:
            # out of processes or memory: the client sees its sockets end
            _report(self._control, {"gone": request["start"]})
        else:
            if process == 0:
                trial.run_child(lambda: self._become_keeper(sockets))
            self._keepers[process] = request["start"]
        for sock in sockets:
            sock.close()
        return True

    def _become_keeper(self, sockets: list[socket.socket]) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        os.close(self._client)
        os.close(self._reaper.wakeup)
        trial.run(sockets[0], sockets[1], self._host)
