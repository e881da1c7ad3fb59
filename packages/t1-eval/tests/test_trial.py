"""Whole trials in real sandboxes: phases, failures, cancellation, verdicts."""

import asyncio
import dataclasses
import pickle

import pytest

import t1_sandbox
from t1_eval import (
    EngineError,
    Scoring,
    ScriptedAgent,
    StopReason,
    TrialFailed,
    TrialRunner,
)
from t1_reward import (
    Cause,
    PoolError,
    RecordError,
    RewardRecord,
    Task,
    TaskFormatError,
    generate_task,
)
from t1_sandbox import (
    DeadlineExceeded,
    SandboxError,
    SandboxLost,
    SealError,
    SpecError,
    TransferError,
)
from t1_tito import TurnError

SOLVE = "echo hello > hello"
HELDOUT = [generate_task(seed, "heldout").task for seed in range(20)]
KEYS = [f"trial-{number}" for number in range(20)]


def solver(engines, token_agent, **options):
    return token_agent(engines.saying(SOLVE, "exit", **options))


def raising(phase, error):
    """Breaks what the bench watches, at one phase."""

    def tell(event):
        if event == phase:
            raise error

    return tell


async def forever(*_):
    await asyncio.Event().wait()


def test_a_solved_trial_earns_its_assertions(bench, engines, token_agent, task):
    result = bench.run(solver(engines, token_agent), task)

    assert result.resolved
    assert (result.reward.passed, result.reward.total, result.reward.reward) == (1, 1, 1 / 20)
    assert result.run.stop_reason is StopReason.EXIT
    assert (result.task_id, result.task_checksum) == ("hello", task.content_hash())
    assert result.verifier_output == "checking\n"


def test_scoring_follows_the_run(bench, engines, token_agent, task):
    runner = bench.runner(solver(engines, token_agent))
    binary = dataclasses.replace(runner, scoring=Scoring(20, "binary"))

    async def trial():
        result = await binary.run(task, "trial")
        await runner.controller.drain()
        return result

    assert bench.loop.run(trial()).reward.reward == 1.0


def test_the_fallback_is_the_runs(bench, engines, token_agent, make_task):
    stated = make_task("echo 1 > /logs/verifier/reward.txt")
    runner = bench.runner(solver(engines, token_agent))
    paper = dataclasses.replace(runner, scoring=Scoring(20, fallback="paper"))

    async def trials():
        results = [await runner.run(stated, "scaled"), await paper.run(stated, "paper")]
        await runner.controller.drain()
        return results

    scaled, paid = bench.loop.run(trials())
    assert (scaled.reward.cause, scaled.reward.reward) == (Cause.REPORT_MISSING, 1 / 20)
    assert (paid.reward.cause, paid.reward.reward) == (Cause.REPORT_MISSING, 1.0)


def test_a_task_is_worked_on_at_its_own_place(bench, engines, token_agent, make_task):
    agent = token_agent(engines.saying("pwd", SOLVE, "exit"))

    result = bench.run(agent, make_task(workdir="/work"))

    assert result.run.turns[0].output == "/work\n"
    assert result.resolved


def test_the_oracle_solves_every_task(bench):
    oracle = ScriptedAgent(lambda task: (task.solution,))

    for result in bench.run_all(oracle, HELDOUT, KEYS):
        assert result.resolved, (result.task_id, result.run, result.verifier_output)
        assert result.reward.reward == result.reward.total / 20 > 0


def test_doing_nothing_earns_nothing(bench):
    noop = ScriptedAgent(lambda task: ())

    for task, result in zip(HELDOUT, bench.run_all(noop, HELDOUT, KEYS), strict=True):
        assert (result.reward.reward, result.resolved) == (0.0, False)
        assert result.reward.cause is Cause.OK
        assert (result.families, result.length) == (task.families, task.length)
        assert result.length == len(result.families) > 0


def assert_session_ends_before_verification(events):
    opened, closed = events.index("session"), events.index("session closed")
    assert opened < events.index("create")
    assert closed < events.index("seal") < events.index("verify")


def test_the_session_spans_the_sandbox_and_not_the_verifier(bench, engines, token_agent, task):
    events = []
    agent = solver(engines, token_agent, tell=events.append)

    bench.run(agent, task, tell=events.append)

    assert_session_ends_before_verification(events)
    assert " ".join(events) == (
        "session create put_tree generate exec generate session closed seal verify check"
    )


def test_a_session_held_through_verification_is_found(bench, engines, token_agent, task):
    class LateRunner(TrialRunner):
        async def run(self, task, key):
            async with (
                self.agent.session(key),
                self.controller.lease(t1_sandbox.SandboxSpec(), key=key) as sandbox,
            ):
                run = await self._work(task, key, sandbox)
                return await self._verify(task, key, sandbox, run)

    events = []
    runner = bench.runner(solver(engines, token_agent, tell=events.append), tell=events.append)
    fields = {f.name: getattr(runner, f.name) for f in dataclasses.fields(runner)}

    async def trial():
        await LateRunner(**fields).run(task, "trial")
        await runner.controller.drain()

    bench.loop.run(trial())
    with pytest.raises(AssertionError):
        assert_session_ends_before_verification(events)


INFRASTRUCTURE = [
    *(
        kind("broken")
        for kind in vars(t1_sandbox).values()
        if isinstance(kind, type)
        and issubclass(kind, SandboxError)
        and kind not in (DeadlineExceeded, TransferError)
    ),
    DeadlineExceeded("create", 1.0),
    TransferError(5, "broken"),
    EngineError("broken"),
]
DEFECTS = [TypeError, PoolError, TaskFormatError, RecordError, ZeroDivisionError, MemoryError]


@pytest.mark.parametrize("error", INFRASTRUCTURE, ids=lambda error: type(error).__name__)
def test_every_infrastructure_error_fails_the_trial(bench, engines, token_agent, task, error):
    with pytest.raises(TrialFailed) as failure:
        bench.run(solver(engines, token_agent), task, key="k", tell=raising("create", error))

    assert (failure.value.trial_key, failure.value.phase) == ("k", "sandbox")
    assert failure.value.__cause__ is error
    assert str(failure.value) == f"trial k: sandbox failed: {error}"


@pytest.mark.parametrize(
    ("event", "phase"),
    [
        ("session", "session"),
        ("session closed", "session"),
        ("put_tree", "sandbox"),
        ("generate", "agent"),
        ("exec", "agent"),
        ("seal", "verifier"),
        ("verify", "verifier"),
        ("check", "verifier"),
    ],
)
def test_a_failure_names_its_phase(bench, engines, token_agent, task, event, phase):
    tell = raising(event, SealError("broken"))

    with pytest.raises(TrialFailed, match=f"trial trial: {phase} failed: broken"):
        bench.run(solver(engines, token_agent, tell=tell), task, tell=tell)


@pytest.mark.parametrize("event", ["session", "create", "put_tree", "generate", "exec", "verify"])
def test_defects_pass_through_as_they_are(bench, engines, token_agent, task, event):
    # all kinds where it costs nothing, two where each takes a sandbox
    for kind in DEFECTS if event in ("session", "create") else DEFECTS[:2]:
        defect = kind("defect")
        tell = raising(event, defect)

        with pytest.raises(kind) as raised:
            bench.run(solver(engines, token_agent, tell=tell), task, tell=tell)

        assert raised.value is defect


def test_a_malformed_completion_passes_through(bench, engines, say, token_agent, task):
    short = dataclasses.replace(say([1, 256]), logprobs=say([1]).logprobs)

    with pytest.raises(TurnError):
        bench.run(token_agent(engines.answering(lambda request: short)), task)


def test_a_task_without_an_archive_is_refused_before_anything_is_leased(
    bench, engines, token_agent
):
    events = []
    docker = Task("docker", {"instruction.md": b"x", "task.toml": b"", "tests/test.sh": b""})

    with pytest.raises(TaskFormatError, match=r"docker/environment/app\.tar"):
        bench.run(solver(engines, token_agent, tell=events.append), docker, tell=events.append)

    assert events == []


@pytest.mark.parametrize("workdir", ["/tmp/x", "/", "/a/../b"])
def test_a_task_at_an_impossible_place_is_refused_before_anything_is_leased(
    bench, engines, token_agent, make_task, workdir
):
    events = []
    misplaced = make_task(workdir=workdir)

    with pytest.raises(SpecError, match=f"workdir='{workdir}', expected"):
        bench.run(solver(engines, token_agent, tell=events.append), misplaced, tell=events.append)

    assert events == []


def test_a_task_whose_tests_fit_in_no_archive_is_refused_before_anything_is_leased(
    bench, engines, token_agent, task
):
    events = []
    long = Task("long", {**task.files, f"tests/{'x' * 101}": b""})

    with pytest.raises(TaskFormatError, match=r"long/tests/: path 'x+'"):
        bench.run(solver(engines, token_agent, tell=events.append), long, tell=events.append)

    assert events == []


def test_the_agent_has_a_deadline(bench, engines, token_agent, task):
    agent = token_agent(engines.answering(forever))

    with pytest.raises(TrialFailed, match="agent failed: layer 'agent' exceeded its deadline"):
        bench.run(agent, task, agent_s=0.05)


def test_unpacking_the_task_has_a_deadline(bench, engines, token_agent, task):
    def tell(event):
        return forever() if event == "put_tree" else None

    with pytest.raises(TrialFailed, match="sandbox failed: layer 'control' exceeded its deadline"):
        bench.run(solver(engines, token_agent), task, tell=tell, control_s=0.05)


def test_sealing_has_a_deadline(bench, engines, token_agent, task):
    def tell(event):
        return forever() if event == "seal" else None

    with pytest.raises(TrialFailed, match="verifier failed: layer 'verifier' exceeded"):
        bench.run(solver(engines, token_agent), task, tell=tell, verifier_s=0.01, control_s=2.0)


def assert_invalid(result, cause):
    assert result.reward.reward is None
    assert result.reward.cause is cause
    assert not result.resolved
    assert RewardRecord.from_json(result.reward.model_dump_json()) == result.reward


def test_a_verifier_out_of_time_is_invalid_and_no_zero(bench, engines, token_agent, make_task):
    slow = make_task("echo began; sleep 60")

    result = bench.run(solver(engines, token_agent), slow, verifier_s=0.3)

    assert_invalid(result, Cause.VERIFIER_TIMEOUT)
    assert len(result.run.turns) == 2


def test_a_sandbox_lost_during_verification_is_invalid_and_no_zero(
    bench, engines, token_agent, task
):
    tell = raising("seal", SandboxLost("gone"))

    result = bench.run(solver(engines, token_agent), task, tell=tell)

    assert_invalid(result, Cause.SANDBOX_LOST)
    assert result.verifier_output == "gone"


def test_a_zero_written_where_there_is_no_verdict_is_found(bench, engines, token_agent, task):
    result = bench.run(
        solver(engines, token_agent), task, tell=raising("seal", SandboxLost("gone"))
    )
    zero = dataclasses.replace(result, reward=result.reward.model_copy(update={"reward": 0.0}))

    with pytest.raises(AssertionError):
        assert_invalid(zero, Cause.SANDBOX_LOST)
    with pytest.raises(RecordError, match=r"expected None from the other fields, got 0\.0"):
        RewardRecord.from_json(zero.reward.model_dump_json())


PHASES = [
    "session",
    "create",
    "put_tree",
    "generate",
    "exec",
    "session closed",
    "seal",
    "verify",
    "check",
]


def cancel_at(bench, engines, token_agent, task, phase):
    """Cancels a trial at the beginning of a phase; returns the admission statistics."""
    trials = []

    def tell(event):
        if event == phase:
            trials[0].cancel()

    runner = bench.runner(solver(engines, token_agent, tell=tell), tell=tell)

    async def cancelled():
        trials.append(asyncio.create_task(runner.run(task, "trial")))
        with pytest.raises(asyncio.CancelledError):
            await trials[0]
        await runner.controller.drain()
        return runner.controller.statistics()

    return bench.loop.run(cancelled())


@pytest.mark.parametrize("phase", PHASES)
def test_a_trial_cancelled_at_any_phase_leaves_no_sandbox(bench, engines, token_agent, task, phase):
    before = bench.provider.statistics().alive

    counts = cancel_at(bench, engines, token_agent, task, phase)

    assert (counts.creating, counts.alive, counts.deleting, counts.waiting) == (0, 0, 0, 0)
    assert counts.created_total == counts.deleted_total == 1
    assert bench.provider.statistics().alive == before


def test_a_sandbox_that_is_not_given_back_is_found(bench, engines, token_agent, task):
    class Hoarder(TrialRunner):
        async def run(self, task, key):
            self.agent.kept.append(self.controller.lease(t1_sandbox.SandboxSpec(), key=key))
            await self.agent.kept[0].__aenter__()
            entered.set()
            await forever()

    class Keeping(ScriptedAgent):
        kept = []  # noqa: RUF012, what keeps the lease from being collected

    before = bench.provider.statistics().alive
    entered = asyncio.Event()
    runner = bench.runner(Keeping(lambda task: ()))
    fields = {f.name: getattr(runner, f.name) for f in dataclasses.fields(runner)}

    async def hoard():
        trial = asyncio.create_task(Hoarder(**fields).run(task, "trial"))
        # not until `alive` is 1: the lease is entered a moment later, and a cancel between is cleaned up
        await entered.wait()
        trial.cancel()
        await asyncio.wait([trial])
        await runner.controller.drain()
        alive = bench.provider.statistics().alive
        await Keeping.kept[0].__aexit__(None, None, None)
        await runner.controller.drain()
        return alive

    assert bench.loop.run(hoard()) == before + 1


def test_a_trial_cancelled_while_it_waits_for_a_slot_takes_none(bench, engines, token_agent, task):
    runner = bench.runner(token_agent(engines.answering(forever)), max_sandboxes=1)
    counts = runner.controller.statistics

    async def queue():
        first = asyncio.create_task(runner.run(task, "first"))
        second = asyncio.create_task(runner.run(task, "second"))
        while not (counts().alive and counts().waiting):  # noqa: ASYNC110, admission sets no event
            await asyncio.sleep(0.005)
        second.cancel()
        await asyncio.wait([second])
        waiting = counts().waiting
        first.cancel()
        await asyncio.wait([first])
        await runner.controller.drain()
        return waiting

    assert bench.loop.run(queue()) == 0
    assert counts().created_total == counts().deleted_total == 1


def test_a_failed_trial_survives_pickling():
    failure = pickle.loads(pickle.dumps(TrialFailed("k", "agent", "no answer")))

    assert (failure.trial_key, failure.phase, failure.cause) == ("k", "agent", "no answer")
    assert str(failure) == "trial k: agent failed: no answer"
