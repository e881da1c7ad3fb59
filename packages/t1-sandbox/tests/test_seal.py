"""What the seal guarantees: the agent is gone, its work is frozen, the tests are whole."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from t1_sandbox import SandboxSealed, SandboxSpec, SealError, SpecError

_TAMPER = """
import os, re, sys
from pathlib import Path
from t1_sandbox._arena import linux
trees = re.search(r"(/\\S+)/trees ", Path(f"/proc/{sys.argv[1]}/mountinfo").read_text())[1] + "/trees"
linux.setns(os.open(f"/proc/{sys.argv[1]}/ns/mnt", os.O_RDONLY), linux.CLONE_NEWNS)
linux.mount("tmpfs", trees, "tmpfs", linux.MS_REMOUNT | linux.MS_NOSUID | linux.MS_NODEV, "")
with Path(trees, "0/t.sh").open("a") as file:
    file.write("x")
"""


def test_the_agents_processes_are_gone_and_its_work_is_there(runner, sandbox, sh, processes):
    sh("echo work > result; setsid -f sleep 4101.5; (sleep 4101.5 &) ; true")
    assert len(processes("4101.5")) == 2

    sealed = runner.run(sandbox.seal({}))

    assert processes("4101.5") == []
    assert runner.run(sealed.exec("cat result")).stdout == b"work\n"


def test_the_work_is_read_only_and_scratch_is_fresh(runner, sandbox, sh):
    sh("touch /tmp/old /logs/old /dev/shm/old")
    sealed = runner.run(sandbox.seal({}))
    result = runner.run(
        sealed.exec(
            "touch /app/x; mkdir /app/y; ls /tmp /logs /dev/shm; touch /tmp/n /logs/n && echo ok"
        )
    )

    assert result.stderr.count(b"Read-only file system") == 2
    assert b"old" not in result.stdout
    assert result.stdout.endswith(b"ok\n")


def test_work_and_trees_are_frozen_for_every_mount_of_them(runner, sandbox, sh, tar):
    # the last field is the file system's own state, what precedes it that of this mount
    state = "grep -oP '^([^ ]+ ){4}\\K/(app|tests) .*' /proc/self/mountinfo | sort"
    assert sh(state).stdout.split()[-1].startswith(b"rw,")

    sealed = runner.run(sandbox.seal({"/tests": tar({"t.sh": b"echo tested"})}))
    mounts = runner.run(sealed.exec(state)).stdout.splitlines()

    assert [(line.split()[0], line.split()[-1][:3]) for line in mounts] == [
        (b"/app", b"ro,"),
        (b"/tests", b"ro,"),
    ]


def test_tests_are_absent_before_the_seal_and_read_only_after(runner, sandbox, sh, tar):
    assert sh("ls /tests").exit_code != 0

    sealed = runner.run(sandbox.seal({"/tests": tar({"t.sh": b"echo tested"})}))
    result = runner.run(
        sealed.exec(
            "bash /tests/t.sh; echo x >> /tests/t.sh; rm -f /tests/t.sh; chmod 777 /tests/t.sh"
        )
    )

    assert result.stdout == b"tested\n"
    assert result.stderr.count(b"Read-only file system") == 3
    assert runner.run(sealed.mounts_intact())


def test_tampering_with_a_mounted_tree_from_outside_is_noticed(
    runner, provider, sandbox, descendants, processes, tar
):
    sealed = runner.run(sandbox.seal({"/tests": tar({"t.sh": b"echo tested"})}))
    below = descendants(provider._arena._process.pid)
    monitor = next(iter(below & set(processes("bwrap\0--unshare-all"))))
    keeper = Path(f"/proc/{monitor}/stat").read_text().rpartition(")")[2].split()[1]
    done = subprocess.run([sys.executable, "-c", _TAMPER, keeper], capture_output=True, check=False)

    # an unprivileged user cannot even enter, which leaves the tree whole
    assert (done.returncode == 0) == (os.geteuid() == 0), done.stderr
    assert runner.run(sealed.mounts_intact()) == (os.geteuid() != 0)


def test_several_trees_can_be_mounted(runner, sandbox, tar):
    trees = {"/tests": tar({"a": b"1"}), "/oracle/deep": tar({"d/b": b"2"})}
    sealed = runner.run(sandbox.seal(trees))

    assert runner.run(sealed.exec("cat /tests/a /oracle/deep/d/b")).stdout == b"12"
    assert runner.run(sealed.mounts_intact())


def test_the_report_comes_only_from_the_command_that_was_given_it(runner, sandbox, sh):
    assert sh("echo ${T1_REPORT_FD-none}").stdout == b"none\n"
    sealed = runner.run(sandbox.seal({}))
    watcher = "(while :; do for p in /proc/[0-9]*/fd/3; do echo forged > $p; done; done) 2> /tmp/tried & true"
    runner.run(sealed.exec(watcher))

    without = runner.run(sealed.exec("echo ${T1_REPORT_FD-none}"))
    assert runner.run(
        sealed.exec(
            "exec 3> /tmp/open; for i in {1..400}; do grep forged /tmp/open && break; sleep 0.02; done",
            timeout_s=20,
        )
    ).stdout.count(b"forged"), "the forger would have found an open descriptor"
    with_report = runner.run(
        sealed.exec("echo seen; echo '{\"ok\": 1}' >&$T1_REPORT_FD", report=True)
    )

    assert (without.stdout, without.report) == (b"none\n", None)
    assert (with_report.stdout, with_report.report) == (b"seen\n", b'{"ok": 1}\n')


def test_a_report_beyond_its_bound_is_cut(runner, sandbox):
    sealed = runner.run(sandbox.seal({}))
    result = runner.run(sealed.exec("head -c 1500000 /dev/zero >&$T1_REPORT_FD", report=True))

    assert len(result.report) == 1 << 20


def test_the_agents_sandbox_cannot_be_used_after_the_seal(runner, sandbox, sh):
    runner.run(sandbox.seal({}))

    for use in (
        sandbox.exec("true"),
        sandbox.get_file("f"),
        sandbox.put_file(b"", "f"),
        sandbox.seal({}),
    ):
        with pytest.raises(SandboxSealed):
            runner.run(use)


@pytest.mark.parametrize("place", ["tests", "/app/tests", "/etc/x", "/logs", "/"])
def test_a_mount_point_over_something_else_is_refused(runner, sandbox, sh, tar, place):
    with pytest.raises(SpecError):
        runner.run(sandbox.seal({place: tar({})}))
    assert sh("true").exit_code == 0, "nothing was sealed"


@pytest.mark.parametrize(
    ("name", "error"), [(None, "ReadError"), ("../escape", "OutsideDestinationError")]
)
def test_a_malformed_tree_is_an_error_and_the_trial_can_be_deleted(
    runner, provider, tar, name, error
):
    archive = tar({name: b"x"}) if name else b"not a tar archive" * 100
    sandbox = runner.run(provider.create(SandboxSpec(), key="malformed"))
    with pytest.raises(SealError, match=error):
        runner.run(sandbox.seal({"/tests": archive}))
    with pytest.raises(SandboxSealed):
        runner.run(sandbox.exec("true"))
    runner.run(sandbox.delete())
    assert "malformed" not in runner.run(provider.find())


def test_a_sandbox_whose_processes_were_all_killed_can_be_sealed(runner, sandbox, sh):
    sh("echo kept > f; kill -9 -1")
    sealed = runner.run(sandbox.seal({}))

    assert runner.run(sealed.exec("cat f")).stdout == b"kept\n"


def test_a_full_work_directory_does_not_stop_the_seal(runner, sandbox, sh, tar):
    sh(
        "for i in 1 2 3; do head -c 8M /dev/zero > $i; done; for i in {1..5000}; do : > f$i; done 2> /dev/null"
    )
    sealed = runner.run(sandbox.seal({"/tests": tar({"t": b"1" * 100_000})}))

    assert runner.run(sealed.exec("wc -c < /tests/t; touch /logs/l")).stdout == b"100000\n"


def test_a_helper_lost_in_a_sealed_sandbox_is_replaced(runner, sandbox):
    sealed = runner.run(sandbox.seal({}))
    runner.run(sealed.exec("kill -9 -1"))

    assert runner.run(sealed.exec("echo alive; touch /app/x")).stdout == b"alive\n"
