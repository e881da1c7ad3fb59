"""The terminal in a real sandbox: what commands show, and what is an infrastructure failure."""

import pytest

from t1_eval import Observation, Terminal
from t1_sandbox import SandboxLost, SandboxSpec


def observe(loop, terminal, command):
    return loop.run(terminal.run(command))


def test_both_streams_are_shown_in_order(loop, terminal):
    seen = observe(loop, terminal, "echo one; echo two >&2; echo three; exit 4")

    assert seen == Observation("one\ntwo\nthree\n", 4)


def test_commands_start_at_the_work_directory(loop, terminal):
    assert observe(loop, terminal, "cd /; pwd") == Observation("/\n", 0)
    assert observe(loop, terminal, "pwd") == Observation("/app\n", 0)


def test_a_command_that_takes_its_shell_down_has_failed(loop, terminal):
    assert observe(loop, terminal, "kill -9 -1").exit_code == 137
    assert observe(loop, terminal, "echo alive") == Observation("alive\n", 0)


def test_a_command_out_of_time_has_failed(loop, shared_sandbox):
    hasty = Terminal(shared_sandbox, command_timeout_s=0.2, max_output_bytes=64)

    assert observe(loop, hasty, "sleep 60").exit_code == 124


def test_output_is_cut_at_the_bound(loop, shared_sandbox):
    narrow = Terminal(shared_sandbox, command_timeout_s=20.0, max_output_bytes=5)

    assert observe(loop, narrow, "printf 123456789") == Observation("12345", 0)
    # in the middle of a character, too
    assert observe(loop, narrow, "printf 1234é") == Observation("1234\N{REPLACEMENT CHARACTER}", 0)


@pytest.mark.parametrize("command", ["a\0b", "\ud800"])
def test_text_that_is_no_command_says_why(loop, terminal, command):
    seen = observe(loop, terminal, command)

    assert seen.exit_code == 126
    assert "cannot start the command" in seen.output


def test_a_sandbox_that_is_gone_raises(loop, provider):
    async def lose():
        sandbox = await provider.create(SandboxSpec(), key="gone")
        await sandbox.delete()
        await Terminal(sandbox, command_timeout_s=20.0, max_output_bytes=64).run("true")

    with pytest.raises(SandboxLost, match="gone: the sandbox ended"):
        loop.run(lose())
