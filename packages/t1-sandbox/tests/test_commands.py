"""How commands behave, well and badly."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_sandbox import Outcome, SandboxSpec, SpecError, TransferError


def test_both_streams_exit_code_and_time_are_reported(sh):
    result = sh("echo out; echo err >&2; exit 3")

    assert (result.stdout, result.stderr, result.exit_code) == (b"out\n", b"err\n", 3)
    assert result.outcome is Outcome.EXITED
    assert result.reaped
    assert 0 < result.wall_s < 5


def test_merged_streams_keep_their_order(sh):
    result = sh("echo 1; echo 2 >&2; echo 3", merge_stderr=True)

    assert (result.stdout, result.stderr) == (b"1\n2\n3\n", b"")


def test_a_program_can_be_given_as_arguments_and_environment(sh):
    result = sh(["printenv", "NAME"], env={"NAME": "a b"})

    assert result.stdout == b"a b\n"


def test_files_persist_and_directories_do_not(sh):
    sh("mkdir d; cd d; echo kept > f")

    assert sh("pwd; cat d/f").stdout == b"/app\nkept\n"
    assert sh("cat f", cwd="d").stdout == b"kept\n"


def test_standard_input_is_empty(sh):
    assert sh("cat; echo end").stdout == b"end\n"


def test_death_by_a_signal_is_128_plus_its_number(sh):
    assert sh("kill -SEGV $$").exit_code == 128 + 11


@given(data=st.binary(max_size=3000))
@settings(max_examples=15)
def test_any_bytes_come_back_unchanged(runner, provider, data):
    async def round_trip():
        sandbox = await provider.create(SandboxSpec(), key="bytes")
        await sandbox.put_file(data, "in/file")
        seen = await sandbox.exec(["cat", "in/file"])
        copied = await sandbox.get_file("in/file")
        await sandbox.delete()
        return seen.stdout, copied

    assert runner.run(round_trip()) == (data, data)


def test_a_flood_is_cut_counted_and_ended(sh):
    result = sh("yes", timeout_s=0.3, max_output_bytes=1000)

    assert result.outcome is Outcome.TIMEOUT
    assert result.stdout == b"y\n" * 500
    assert result.stdout_truncated > 100_000
    assert result.reaped


def test_output_beyond_the_bound_is_counted_exactly(sh):
    result = sh("head -c 300000 /dev/zero; head -c 70000 /dev/zero >&2", max_output_bytes=10)

    assert (len(result.stdout), result.stdout_truncated) == (10, 299_990)
    assert (len(result.stderr), result.stderr_truncated) == (10, 69_990)


def test_output_before_a_timeout_is_kept(sh):
    assert sh("printf partial; sleep 60", timeout_s=0.2).stdout == b"partial"


def test_a_background_process_does_not_delay_the_reply_and_lives_on(sh):
    result = sh("(while :; do echo tick; sleep 0.01; done) & echo started")

    assert result.stdout.startswith(b"started") or b"\nstarted" in result.stdout
    assert not result.reaped
    assert result.wall_s < 2
    assert sh("pgrep -fc 'while'").stdout != b"0\n"


def test_a_timeout_ends_what_the_command_began_and_nothing_older(sh):
    sh("sleep 4001 & true")
    result = sh(
        "setsid sh -c 'trap \"\" TERM HUP INT; sleep 4002' & setsid -f sleep 4003; sleep 4004",
        timeout_s=0.3,
    )

    assert result.outcome is Outcome.TIMEOUT
    assert result.exit_code is None
    assert result.reaped
    assert sh("pgrep -a sleep | cut -d' ' -f3").stdout == b"4001\n"


def test_a_fork_bomb_is_bounded_and_ended(runner, provider, sh):
    result = sh("bomb() { bomb | bomb & }; bomb; sleep 20", timeout_s=0.5)

    assert result.outcome is Outcome.TIMEOUT
    assert result.reaped
    assert sh("echo alive").stdout == b"alive\n"


def test_many_orphans_do_not_use_up_the_process_limit(sh):
    assert sh("for i in {1..200}; do (true &); done; echo done").stdout == b"done\n"


@pytest.mark.parametrize(
    "command",
    [
        *("echo a\0b", "echo " + "x" * 200_000, [], ["no-such-program"], ["/etc/passwd"]),
        *(["x" * 3_000_000], "\U0001f600" * 4_100_000, ["\ud800"]),
    ],
    ids=range(8),
)
def test_what_cannot_be_started_is_an_ordinary_failure(sh, command):
    result = sh(command)

    assert (result.outcome, result.exit_code) == (Outcome.EXITED, 126)
    assert result.stderr.startswith(b"t1-sandbox: cannot start the command")
    assert len(result.stderr) < 5000
    assert sh("echo alive").stdout == b"alive\n"


def test_a_vanished_directory_is_an_ordinary_failure(sh):
    sh("mkdir gone")

    assert sh("cd /app/gone; rmdir /app/gone; ls; pwd").exit_code == 0
    assert sh("true", cwd="gone").exit_code == 126


def test_locking_oneself_out_is_an_ordinary_failure(sh):
    sh("chmod 000 /app")

    assert sh("true").exit_code == 126
    assert sh("chmod 755 /app; echo back", cwd="/").stdout == b"back\n"
    assert sh("true").exit_code == 0


@pytest.mark.parametrize("command", ["kill -9 -1", "kill -9 2; sleep 30"])
def test_killing_everything_loses_the_command_and_not_the_sandbox(sh, command):
    sh("echo kept > f; sleep 4005 & true")
    result = sh(command)

    assert (result.outcome, result.exit_code, result.reaped) == (Outcome.LOST, None, True)
    assert sh("cat f; pgrep -c sleep").stdout == b"kept\n0\n"


def test_stopping_everything_loses_the_command_and_not_the_sandbox(runner, sandbox, monkeypatch):
    monkeypatch.setattr("t1_sandbox.session._GRACE_S", 0.3)
    result = runner.run(sandbox.exec("kill -STOP -1", timeout_s=0.3))

    assert result.outcome is Outcome.LOST
    assert runner.run(sandbox.exec("echo alive")).stdout == b"alive\n"


def test_orphans_of_a_killed_helper_do_not_pile_up(sh):
    for _ in range(3):
        sh("for i in {1..40}; do (sleep 0.02 &); done; kill -9 -1")

    assert sh("ps -o stat= | grep -c Z; ls -d /proc/[0-9]* | wc -l").stdout.split()[0] == b"0"


def test_process_1_survives_every_signal_from_inside(sh):
    result = sh("for s in {1..31}; do kill -$s 1; done; kill -0 1 && echo there")

    assert result.stdout == b"there\n"


def test_cancelling_a_command_ends_it_and_keeps_the_sandbox(runner, sandbox, processes, wait_until):
    async def cancel():
        task = asyncio.create_task(sandbox.exec("sleep 4006.25"))
        await wait_until(lambda: processes("sleep\x004006.25"))
        task.cancel()
        await asyncio.wait([task])
        await wait_until(lambda: not processes("sleep\x004006.25"))
        return await sandbox.exec("echo alive")

    assert runner.run(cancel()).stdout == b"alive\n"


def test_commands_of_one_sandbox_take_turns_and_sandboxes_do_not(runner, provider, sandbox):
    async def both():
        other = await provider.create(SandboxSpec(), key="parallel")
        slow = asyncio.create_task(other.exec("sleep 30"))
        quick = await asyncio.gather(*(sandbox.exec(f"echo {n}") for n in range(5)))
        slow.cancel()
        await asyncio.wait([slow])
        await other.delete()
        return [result.stdout for result in quick]

    assert runner.run(both()) == [b"%d\n" % n for n in range(5)]


def test_arguments_out_of_bounds_are_refused_before_anything_runs(sh):
    sh("sleep 4007 & echo $! > background")
    for options in (
        *({"timeout_s": 0}, {"timeout_s": float("nan")}, {"max_output_bytes": -1}),
        *({"env": {"A": 1}}, {"env": {1: "A"}}, {"env": {"A": "x" * (4 << 20)}}),
    ):
        with pytest.raises(SpecError):
            sh("true", **options)
    assert sh("kill -0 $(cat background)").exit_code == 0, "and nothing is lost"


def test_a_command_that_is_too_long_to_send_is_refused(sh):
    with pytest.raises(SpecError, match="characters"):
        sh(["true", *[""] * (4 << 20)])


def test_an_environment_of_something_else_than_strings_is_refused():
    with pytest.raises(SpecError, match="env"):
        SandboxSpec(env={"A": 1})


def test_the_agents_sandbox_gives_no_report(sandbox):
    with pytest.raises(TypeError, match="report"):
        sandbox.exec("true", report=True)


@pytest.mark.parametrize(
    "field", ["work_bytes", "work_inodes", "tmp_bytes", "pids", "memory_bytes"]
)
def test_a_spec_with_a_limit_of_nothing_is_refused(field):
    with pytest.raises(SpecError, match=field):
        SandboxSpec(**{field: 0})


@pytest.mark.parametrize("workdir", ["app", "/", "/usr/x", "/tmp", "/app/../etc", "/a//b", "/a\0"])
def test_a_workdir_over_the_system_is_refused(workdir):
    with pytest.raises(SpecError, match="workdir"):
        SandboxSpec(workdir=workdir)


def test_another_workdir_works(runner, provider):
    sandbox = runner.run(provider.create(SandboxSpec(workdir="/home/me/x"), key="workdir"))
    result = runner.run(sandbox.exec("pwd; touch f && ls"))
    runner.run(sandbox.delete())

    assert result.stdout == b"/home/me/x\nf\n"


def test_trees_keep_modes_and_inner_links(runner, sandbox, sh, tar):
    runner.run(sandbox.put_tree(tar({"bin/run": b"#!/bin/sh\necho ran\n"}, mode=0o755), "/app/t"))

    assert sh("./t/bin/run; stat -c %a t/bin/run").stdout == b"ran\n755\n"


@pytest.mark.parametrize("name", ["../escape", "/../../escape"])
def test_a_tree_that_reaches_outside_is_refused(runner, sandbox, tar, name):
    with pytest.raises(TransferError, match="outside"):
        runner.run(sandbox.put_tree(tar({name: b"x"}), "/app/t"))


def test_links_planted_by_the_agent_lead_nowhere_but_into_its_own_sandbox(runner, sandbox, sh):
    sh("ln -s /etc etc; ln -s /usr usr")

    with pytest.raises(TransferError) as caught:
        runner.run(sandbox.put_file(b"x", "etc/passwd"))
    assert "Read-only" in str(caught.value)


@pytest.mark.parametrize(
    ("make", "error"),
    [("true", "No such file"), ("mkfifo f", "regular"), ("ln -s /dev/zero f", "regular"),
     ("head -c 2000 /dev/zero > f", "max_bytes")],
)  # fmt: skip
def test_a_file_that_cannot_be_fetched_says_why(runner, sandbox, sh, make, error):
    sh(make)

    with pytest.raises(TransferError, match=error):
        runner.run(sandbox.get_file("f", max_bytes=1000))


@pytest.mark.parametrize("max_bytes", [-1, (1 << 30) + 1])
def test_a_bound_on_a_file_that_no_reply_can_have_is_refused(runner, sandbox, max_bytes):
    with pytest.raises(SpecError, match="max_bytes"):
        runner.run(sandbox.get_file("f", max_bytes=max_bytes))


def test_a_generous_bound_takes_no_memory(runner, sandbox, sh):
    sh("sleep 4008 & echo $! > background; head -c 3000000 /dev/zero > f")

    for max_bytes in (1 << 30, 3_000_000):
        assert len(runner.run(sandbox.get_file("f", max_bytes=max_bytes))) == 3_000_000
    assert sh("kill -0 $(cat background)").exit_code == 0, "the helper lives on"
    with pytest.raises(TransferError, match="max_bytes"):
        runner.run(sandbox.get_file("f", max_bytes=2_999_999))


def test_a_file_that_claims_no_size_is_fetched_whole(runner, sandbox):
    assert b"VmRSS" in runner.run(sandbox.get_file("/proc/1/status", max_bytes=1 << 30))


def test_a_full_disk_is_a_transfer_error_and_not_a_lost_sandbox(runner, sandbox, sh):
    for number in range(2):
        sh(f"head -c 8M /dev/zero > {number}")

    with pytest.raises(TransferError, match="No space left"):
        runner.run(sandbox.put_file(bytes(100_000), "more"))
