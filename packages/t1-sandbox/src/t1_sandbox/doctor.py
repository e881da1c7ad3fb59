"""What this host really enforces: each row is tried in a real sandbox, none is inferred.

A row holds when the command that should have been stopped was stopped. Rows that only describe
(which bubblewrap, which kernel) are not part of the verdict.
"""

import platform
import socket
from dataclasses import dataclass

from t1_sandbox.local import LocalProvider
from t1_sandbox.local_sandbox import LocalSandbox
from t1_sandbox.spec import Outcome, SandboxSpec

_SPEC = SandboxSpec(
    work_bytes=4 << 20,
    work_inodes=200,
    tmp_bytes=2 << 20,
    pids=32,
    memory_bytes=96 << 20,
    file_bytes=3 << 20,
)
_READ_ONLY = "grep -qE '^([^ ]+ ){4}%s ro,' /proc/self/mountinfo"
_ADD_KEY = (
    "import ctypes, os; number = {'x86_64': 248, 'aarch64': 217}[os.uname().machine]; "
    "key = ctypes.CDLL(None).syscall(number, b'user', b't1-probe', b'x', 1, -3); exit(key >= 0)"
)
# each command exits with 0 when the sandbox held; PORT is one of the host that listens
_CHECKS = {
    "commands run": "true",
    "no capabilities": "! grep -E '^Cap' /proc/self/status | grep -qv 0000000000000000",
    "no new privileges": "grep -qE '^NoNewPrivs:\\s+1$' /proc/self/status",
    "no nested user namespaces": "command -v unshare && ! unshare --user true",
    "no environment of the host": "test \"$(tr '\\0' , < /proc/1/environ)\" = PWD=/,",
    "host directories absent": 'for d in root home run var mnt; do test ! -e "/$d" || exit 1; done',
    "no session keyring": f'python3 -c "{_ADD_KEY}"',
    "system read-only": f"{' && '.join(_READ_ONLY % place for place in ('/', '/usr', '/etc'))} && ! touch /usr/t1-probe && ! touch /t1-probe && ! touch /etc/t1-probe",
    "devices read-only": "! touch /dev/t1-probe && echo gone > /dev/null",
    "no network but loopback": "test \"$(tail -n +3 /proc/net/dev | cut -d: -f1 | xargs)\" = lo",
    "host loopback unreachable": "! (exec 3<> /dev/tcp/127.0.0.1/$PORT)",
    "disk bounded": "for i in 1 2 3; do head -c 2M /dev/zero > $i; done; test $(cat 1 2 3 | wc -c) -le 4194304",
    "temporary files bounded": "head -c 2900K /dev/zero > /tmp/a; test $(stat -c %s /tmp/a) -le 2097152",
    "shared memory bounded": "head -c 2900K /dev/zero > /dev/shm/a; test $(stat -c %s /dev/shm/a) -le 2097152",
    "inodes bounded": "for i in {1..300}; do : > f$i; done; test $(ls | wc -l) -lt 200",
    "file size bounded": "head -c 4M /dev/zero > a; test $(stat -c %s a) -le 3145728",
    "memory per process bounded": "! (x=$(head -c 150M /dev/zero | tr '\\0' x))",
}  # fmt: skip
_FORKS = "for i in {1..60}; do sleep 30 & echo started; done; wait"
_ESCAPE = "setsid sh -c 'trap \"\" TERM HUP; sleep 30' & sleep 30"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: What was tried.
        holds: Whether the sandbox held; None for a row that only describes.
        detail: What was seen.
    """

    name: str
    holds: bool | None
    detail: str = ""


async def examine() -> list[Row]:
    """Tries everything.

    Raises:
        IsolationUnavailable: There is nothing to try.
        SandboxError: A sandbox could not be created or went away.
    """
    async with LocalProvider() as provider:
        found = provider.capabilities
        rows = [
            Row("bubblewrap", None, f"{found.bubblewrap} ({found.bubblewrap_origin})"),
            Row("kernel", None, platform.release()),
        ]
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            rows += [await _check(provider, name, port) for name in _CHECKS]
        sandbox = await provider.create(_SPEC, key="processes")
        rows.append(await _pids_bounded(sandbox))
        rows.append(await _escapes_killed(sandbox))
        await sandbox.delete()
        left = await provider.find()
        rows.append(Row("nothing left after deletion", not left, ", ".join(left)))
    return rows


async def _check(provider: LocalProvider, name: str, port: int) -> Row:
    sandbox = await provider.create(_SPEC, key=name)
    result = await sandbox.exec(_CHECKS[name], env={"PORT": str(port)}, timeout_s=20)
    await sandbox.delete()
    holds = result.exit_code == 0
    return Row(name, holds, "" if holds else result.stderr.decode(errors="replace").strip())


async def _pids_bounded(sandbox: LocalSandbox) -> Row:
    result = await sandbox.exec(_FORKS, timeout_s=1)
    started = result.stdout.count(b"started")
    holds = b"fork" in result.stderr and started <= _SPEC.pids and result.reaped
    return Row("processes bounded", holds, f"{started} of 60 started, {_SPEC.pids} allowed")


async def _escapes_killed(sandbox: LocalSandbox) -> Row:
    result = await sandbox.exec(_ESCAPE, timeout_s=0.5)
    killed = result.outcome is Outcome.TIMEOUT and result.reaped
    left = "nothing alive" if result.reaped else "something alive"
    return Row("timeout ends every process", killed, f"{result.outcome.value}, {left} afterwards")
