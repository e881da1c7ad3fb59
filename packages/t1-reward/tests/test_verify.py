import asyncio
import dataclasses
import time

import pytest

from t1_reward import (
    MAX_REPORT_BYTES,
    Cause,
    Task,
    TaskManifest,
    generate_task,
    score,
    verify,
)

LISTED = TaskManifest.model_validate({"metadata": {"assertions": ["a", "b", "c"]}})


def run(task, sandbox, timeout_s=20.0):
    return asyncio.run(verify(task, sandbox, timeout_s))


def task_with(test, manifest=LISTED):
    return Task.create("sample", instruction="do it", state=b"", test=test, manifest=manifest)


def reward_of(verdict):
    return score(verdict, scale=10).reward


def test_a_generated_task_is_verified_from_nothing_to_everything(new_sandbox):
    made = generate_task(11, "train")
    for steps, expected in (((), 0), (made.reference, len(made.conditions))):
        sandbox = new_sandbox()
        sandbox.shell.unpack(made.task.environment_archive())
        for step in steps:
            sandbox.shell.run(step.command)
        verdict = run(made.task, sandbox)
        assert verdict.cause is Cause.OK
        assert (verdict.passed, verdict.total) == (expected, len(made.conditions))
        assert verdict.binary == int(expected > 0)
        assert reward_of(verdict) == expected / 10


def test_planted_and_missing_assertions_do_not_help(new_sandbox):
    test = "printf '1..3\\nok 1 - a\\nok 2 - planted\\nok 3 - more\\n' >&$T1_REPORT_FD"
    verdict = run(task_with(test), new_sandbox())
    assert (verdict.passed, verdict.total, verdict.binary) == (1, 3, 0)


def test_a_task_that_only_counts_its_assertions_is_held_to_the_count(new_sandbox):
    counted = TaskManifest.model_validate({"metadata": {"assertion_count": 4}})
    test = "printf '1..2\\nok 1 - a\\nok 2 - b\\n' >&$T1_REPORT_FD"
    verdict = run(task_with(test, counted), new_sandbox())
    assert (verdict.passed, verdict.total, verdict.binary) == (2, 4, 0)
    sandbox = new_sandbox()
    sandbox.intact = False
    assert run(task_with(test, counted), sandbox).total == 4


def test_what_the_verifier_prints_is_kept_and_bounded(new_sandbox):
    verdict = run(task_with("echo said; echo complained >&2; exit 1"), new_sandbox())
    assert verdict.output == "said\ncomplained\n"
    verdict = run(task_with(f"head -c {3 * MAX_REPORT_BYTES} /dev/zero"), new_sandbox())
    assert len(verdict.output) == MAX_REPORT_BYTES


def test_a_report_that_is_too_long_is_invalid(new_sandbox):
    test = f"(printf '1..3\\nok 1 - '; head -c {MAX_REPORT_BYTES} /dev/zero) >&$T1_REPORT_FD"
    verdict = run(task_with(test), new_sandbox())
    assert verdict.cause is Cause.REPORT_OVERSIZE
    assert reward_of(verdict) is None


def test_a_report_that_stops_short_is_invalid_and_not_zero(new_sandbox):
    verdict = run(task_with("printf '1..3\\nok 1 - a\\n' >&$T1_REPORT_FD"), new_sandbox())
    assert verdict.cause is Cause.REPORT_TRUNCATED
    assert reward_of(verdict) is None


def test_a_verifier_that_says_nothing_is_invalid(new_sandbox):
    verdict = run(task_with("exit 1"), new_sandbox())
    assert verdict.cause is Cause.REPORT_MISSING
    assert reward_of(verdict) is None


@pytest.mark.parametrize(
    ("stated", "reward"),
    [
        ("1", 0.3),
        ("0", 0.0),
        ("1.0\n", 0.3),
        ("0.5", None),
        ("nan", None),
        ("yes", None),
        ("", None),
    ],
)
def test_an_outcome_stated_the_plain_way_is_the_fallback(new_sandbox, stated, reward):
    sandbox = new_sandbox()
    test = f"printf '%s' '{stated}' > {sandbox.logs}/verifier/reward.txt"
    verdict = run(task_with(test), sandbox)
    assert verdict.cause is Cause.REPORT_MISSING
    assert reward_of(verdict) == reward


def test_nothing_is_stated_where_there_is_a_report(new_sandbox):
    sandbox = new_sandbox()
    test = (
        "printf '1..1\\nnot ok 1 - a\\n' >&$T1_REPORT_FD\n"
        f"echo 1 > {sandbox.logs}/verifier/reward.txt"
    )
    verdict = run(task_with(test), sandbox)
    assert (verdict.cause, verdict.stated, verdict.binary) == (Cause.OK, None, 0)
    assert len(sandbox.commands) == 1


def test_an_endless_statement_is_read_at_once(new_sandbox):
    sandbox = new_sandbox()
    start = time.perf_counter()
    verdict = run(task_with(f"ln -s /dev/zero {sandbox.logs}/verifier/reward.txt"), sandbox)
    assert verdict.stated is None
    # reading on would take its whole time, five seconds
    assert time.perf_counter() - start < 4


@pytest.mark.parametrize(("exit_code", "outcome"), [(1, "exited"), (None, "timeout")])
def test_a_statement_that_could_not_be_read_is_none(new_sandbox, exit_code, outcome):
    class Unreadable(type(new_sandbox())):
        async def exec(self, command, **options):
            result = await super().exec(command, **options)
            if options["report"]:
                return result
            return dataclasses.replace(result, exit_code=exit_code, outcome=outcome)

    sandbox = new_sandbox()
    test = f"echo 1 > {sandbox.logs}/verifier/reward.txt"
    assert run(task_with(test), sandbox).stated == 1
    other = new_sandbox()
    test = f"echo 1 > {other.logs}/verifier/reward.txt"
    verdict = run(task_with(test), Unreadable(other.shell, other.tests, other.logs))
    assert (verdict.stated, reward_of(verdict)) == (None, None)


def test_a_verifier_that_hangs_is_invalid(new_sandbox):
    verdict = run(task_with("read -r < <(tail -f /dev/null)"), new_sandbox(), timeout_s=0.2)
    assert verdict.cause is Cause.VERIFIER_TIMEOUT
    assert reward_of(verdict) is None


def test_changed_tests_make_the_verdict_invalid(new_sandbox):
    sandbox = new_sandbox()
    sandbox.intact = False
    made = generate_task(1, "train")
    verdict = run(made.task, sandbox)
    assert verdict.cause is Cause.TESTS_CHANGED
    assert (verdict.total, reward_of(verdict)) == (len(made.conditions), None)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ConnectionError("gone"), Cause.SANDBOX_LOST),
        (BrokenPipeError("gone"), Cause.SANDBOX_LOST),
        (TimeoutError("gone"), Cause.VERIFIER_TIMEOUT),
    ],
)
@pytest.mark.parametrize("method", ["seal", "exec", "mounts_intact"])
def test_a_lost_connection_is_a_cause_with_its_message(
    new_sandbox, monkeypatch, method, error, cause
):
    async def fail(*args, **kwargs):
        raise error

    sandbox = new_sandbox()
    monkeypatch.setattr(sandbox, method, fail)
    verdict = run(generate_task(1, "train").task, sandbox)
    assert (verdict.cause, verdict.detail) == (cause, "gone")
    assert reward_of(verdict) is None


def test_a_sandbox_that_died_under_the_verifier_is_lost(new_sandbox):
    verdict = run(task_with("kill -9 $$"), Dying(new_sandbox()))
    assert verdict.cause is Cause.SANDBOX_LOST
    assert reward_of(verdict) is None


class Dying:
    """Reports every command as lost."""

    def __init__(self, sandbox):
        self._sandbox = sandbox

    async def seal(self, mounts):
        await self._sandbox.seal(mounts)
        return self

    async def exec(self, command, **options):
        result = await self._sandbox.exec(command, **options)
        return type(result)(b"", None, "lost", None)


def test_other_errors_are_not_swallowed(new_sandbox, monkeypatch):
    async def fail(mounts):
        raise RuntimeError("a defect")

    sandbox = new_sandbox()
    monkeypatch.setattr(sandbox, "seal", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        run(generate_task(1, "train").task, sandbox)
