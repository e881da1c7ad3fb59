"""What a sandbox cannot see, reach, exceed or become."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from t1_sandbox import LocalProvider, SandboxSpec, doctor
from t1_sandbox.doctor import _SPEC


@pytest.fixture
def port():
    """A port of the host at which something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("name", doctor._CHECKS)
def test_the_sandbox_holds(runner, provider, port, name):
    row = runner.run(doctor._check(provider, name, port))

    assert row == doctor.Row(name, holds=True)


@pytest.mark.parametrize(
    "name",
    [
        *("host directories absent", "disk bounded", "inodes bounded", "file size bounded"),
        *("host loopback unreachable", "system read-only"),
    ],
)
def test_the_same_check_fires_outside_a_sandbox(port, name, tmp_path):
    done = subprocess.run(
        ["/bin/bash", "-c", doctor._CHECKS[name]],
        cwd=tmp_path,
        env={**os.environ, "PORT": str(port)},
        capture_output=True,
        check=False,
    )

    assert done.returncode != 0
    assert not Path("/t1-probe").exists(), "it does no harm outside either"


def test_commands_run_as_an_ordinary_user_with_empty_capability_sets(sh):
    result = sh("id -u; grep -cE 'Cap.*:.0000000000000000' /proc/self/status; unshare --user true")

    assert result.stdout == b"1000\n5\n"
    assert result.exit_code != 0


def test_secrets_in_the_clients_environment_are_nowhere_inside(runner, monkeypatch):
    monkeypatch.setenv("T1_TEST_SECRET", "hunter2-secret")

    async def look():
        # whatever a provider inherits, it inherits when it is entered
        async with LocalProvider() as provider:
            sandbox = await provider.create(SandboxSpec(), key="secret")
            look = "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'"
            return await sandbox.exec(look)

    result = runner.run(look())

    assert b"hunter2" not in result.stdout
    assert b"arena" in result.stdout, "the command lines were readable"
    assert b"python" not in result.stdout, "no path of the host's interpreter either"


_KEYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
def add(name):
    return libc.syscall(ADD_KEY, b"user", name, b"hunter2", 7, -3)
def read(name):
    key = libc.syscall(KEYCTL, 10, -3, b"user", name, 0)
    text = ctypes.create_string_buffer(64)
    return libc.syscall(KEYCTL, 11, key, text, 64) if key >= 0 else -1
"""
_KEYS_CLIENT = """
import asyncio
from t1_sandbox import LocalProvider, SandboxSpec, doctor
libc.syscall(KEYCTL, 1, None)
add(b"client")
print(read(b"client"))

async def main():
    async with LocalProvider() as provider:
        boxes = [await provider.create(SandboxSpec(), key=key) for key in "ab"]
        print((await doctor._check(provider, "no session keyring", 0)).holds)
        for box in boxes:
            code = sys.argv[1] + "add(b'sandbox'); print(read(b'client'), read(b'sandbox'))"
            print((await box.exec(["/usr/bin/python3", "-c", code])).stdout.decode(), end="")

asyncio.run(main())
os.execv("/bin/bash", ["/bin/bash", "-c", doctor._CHECKS["no session keyring"]])
"""


def test_no_key_of_the_client_or_of_another_sandbox_can_be_read():
    done = subprocess.run(
        [sys.executable, "-c", _KEYS + _KEYS_CLIENT, _KEYS], capture_output=True, check=False
    )

    assert done.stdout == b"7\nTrue\n-1 -1\n-1 -1\n", done.stderr
    assert done.returncode == 1, "the doctor's check fires outside"


def test_shadow_and_the_hosts_files_are_absent(sh):
    result = sh("cat /etc/shadow; ls /root /home /run /var /mnt /opt /work; ls /etc")

    assert b"shadow" not in result.stdout
    assert set(result.stdout.decode().split()) <= {
        *("alternatives", "group", "hosts", "ld.so.cache", "localtime", "nsswitch.conf", "passwd")
    }


def test_dev_and_its_shm_are_bounded(sh):
    result = sh(
        "head -c 1 /dev/zero > /dev/fill; head -c 5M /dev/zero > /dev/shm/fill; stat -c %s /dev/shm/fill"
    )

    assert b"/dev/fill: Read-only file system" in result.stderr
    assert int(result.stdout) <= 4 << 20


def test_null_urandom_and_terminals_still_work(sh):
    result = sh(
        "echo x > /dev/null && head -c 4 /dev/urandom | wc -c && script -qc 'tty' /dev/null"
    )

    assert b"4\n/dev/pts/0" in result.stdout


def test_host_loopback_is_unreachable_even_when_something_listens(sh):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        knock = f"exec 3<> /dev/tcp/127.0.0.1/{port} && echo reached"
        outside = subprocess.run(["/bin/bash", "-c", knock], capture_output=True, check=False)
        inside = sh(knock)

    assert outside.stdout == b"reached\n"
    assert inside.stdout == b""


def test_unix_sockets_of_the_host_are_unreachable(sh, tmp_path):
    names = [f"\0t1-{os.getpid()}", str(tmp_path / "socket")]
    program = (
        "import socket, sys\n"
        "s = socket.socket(socket.AF_UNIX)\n"
        "s.connect(bytes.fromhex(sys.argv[1]).decode())\n"
        "print('reached')\n"
    )
    for name in names:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(name)
            server.listen()
            accepting = threading.Thread(target=lambda s=server: s.accept()[0].close())
            accepting.start()
            command = ["/usr/bin/python3", "-c", program, name.encode().hex()]
            inside = sh(command)
            outside = subprocess.run(command, capture_output=True, check=False)
            accepting.join()

        assert outside.stdout == b"reached\n"
        assert inside.stdout == b""


def test_one_sandbox_sees_nothing_of_another(runner, provider, sandbox, sh):
    other = runner.run(provider.create(_SPEC, key="other"))
    runner.run(other.exec("echo secret > /app/s; echo secret > /tmp/s; sleep 1234.5 & true"))
    result = sh("ls -A /app /tmp /logs /dev/shm; cat /proc/*/cmdline")
    runner.run(other.delete())

    assert b"s\n" not in result.stdout.replace(b"logs:\n", b"")
    assert b"1234.5" not in result.stdout


def test_commands_inherit_no_descriptor_of_the_machinery(sh):
    result = sh("ls /proc/self/fd; ls -l /proc/1/fd | grep -c socket")

    assert result.stdout.split() == [b"0", b"1", b"2", b"3", b"0"], "3 is ls's own"


def test_the_helper_cannot_be_inspected_or_traced(sh):
    readable = sh(
        "cat /proc/1/environ > /dev/null && echo yes; cat /proc/1/maps | head -c 1 | wc -c"
    )
    result = sh(
        "cat /proc/2/environ; cat /proc/2/maps; ls /proc/2/fd; cat /proc/2/mem; ls /proc/2/cwd/"
    )

    assert readable.stdout == b"yes\n1\n", "it is not /proc that forbids"
    assert result.stdout == b""
    assert result.stderr.count(b"Permission denied") == 5


def test_names_of_users_resolve(sh):
    assert sh("whoami; ls -ld /app").stdout.startswith(b"agent\ndrwxr-xr-x 2 agent agent")
