"""A chat of bytes, an engine in memory, and one real sandbox provider that tests can watch."""

import asyncio
import inspect
import io
import tarfile
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from t1_eval import AgentLimits, Completion, EngineError, Scoring, Terminal, TokenAgent, TrialRunner
from t1_reward import Task, TaskManifest
from t1_sandbox import (
    AdmissionController,
    Deadlines,
    Journal,
    LocalProvider,
    MonotonicClock,
    SandboxSpec,
    TokenBucket,
)
from t1_tito import FinishReason

ALIAS = 1000
STOP, USER, TOOL, ASSISTANT = 256, 257, 258, 259


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: more than a few seconds")


class ByteChat:
    """Ids are bytes; id b + ALIAS says the same byte, so text does not determine ids."""

    stop, alias = STOP, ALIAS

    def render_instruction(self, instruction):
        return [USER, *instruction.encode(), ASSISTANT]

    def render_observation(self, output, exit_code, max_tokens):
        return [TOOL, *f"{output}[{exit_code}]".encode()[:max_tokens], ASSISTANT]

    def parse_command(self, completion_ids):
        said = [i % ALIAS for i in completion_ids]
        return bytes(i for i in said if i < 256).decode("utf-8", "replace")

    def encode(self, command):
        return [*command.encode(), STOP]


class MemoryEngine:
    """Answers by a function of the request; remembers requests and tells what happens."""

    def __init__(self, answer, tell=lambda event: None):
        self.answer, self.tell = answer, tell
        self.requests = []
        self.sessions = set()

    @asynccontextmanager
    async def session(self, key):
        await _done(self.tell("session"))
        self.sessions.add(key)
        try:
            yield
        finally:
            self.sessions.remove(key)
            await _done(self.tell("session closed"))

    async def generate(self, request):
        if request.session not in self.sessions:
            raise EngineError(f"session {request.session!r} is not open")
        self.requests.append(request)
        await _done(self.tell("generate"))
        return await _done(self.answer(request))


class WatchedProvider:
    """The real provider; `tell` hears of every operation before it begins."""

    def __init__(self, provider, tell):
        self.provider, self.tell = provider, tell

    async def create(self, spec, *, key):
        await _done(self.tell("create"))
        return WatchedSandbox(await self.provider.create(spec, key=key), self.tell)

    async def find(self):
        return await self.provider.find()


class WatchedSandbox:
    """A real sandbox, sealed or not; sealed ones verify instead of running commands."""

    def __init__(self, sandbox, tell, running="exec"):
        self.sandbox, self.tell, self.running = sandbox, tell, running
        self.id = sandbox.id

    async def exec(self, command, **options):
        await _done(self.tell(self.running))
        return await self.sandbox.exec(command, **options)

    async def put_tree(self, archive, path):
        await _done(self.tell("put_tree"))
        await self.sandbox.put_tree(archive, path)

    async def seal(self, mounts):
        await _done(self.tell("seal"))
        return WatchedSandbox(await self.sandbox.seal(mounts), self.tell, "verify")

    async def mounts_intact(self):
        await _done(self.tell("check"))
        return await self.sandbox.mounts_intact()

    async def delete(self):
        await self.sandbox.delete()


async def _done(value):
    return await value if inspect.isawaitable(value) else value


class Bench:
    """Runs trials on real sandboxes."""

    def __init__(self, loop, provider):
        self.loop, self.provider = loop, provider

    def runner(self, agent, *, tell=lambda event: None, max_sandboxes=4, **deadlines):
        clock = MonotonicClock()
        controller = AdmissionController(
            WatchedProvider(self.provider, tell),
            max_sandboxes=max_sandboxes,
            bucket=TokenBucket(1000, 1000, clock),
            journal=Journal(),
            clock=clock,
        )
        return TrialRunner(
            controller=controller,
            agent=agent,
            scoring=Scoring(20),
            deadlines=Deadlines(**deadlines),
            command_timeout_s=20.0,
            max_output_bytes=4096,
        )

    def run(self, agent, task, key="trial", **options):
        (result,) = self.run_all(agent, [task], [key], **options)
        if isinstance(result, BaseException):
            raise result
        return result

    def run_all(self, agent, tasks, keys, **options):
        runner = self.runner(agent, **options)

        async def all_trials():
            trials = [runner.run(task, key) for task, key in zip(tasks, keys, strict=True)]
            results = await asyncio.gather(*trials, return_exceptions=True)
            await runner.controller.drain()
            return results

        return self.loop.run(all_trials())


@pytest.fixture(scope="session")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="session")
def provider(loop):
    provider = LocalProvider()
    loop.run(provider.__aenter__())
    yield provider
    loop.run(provider.aclose())
    assert provider.statistics().left_open == ()


@pytest.fixture(scope="session")
def shared_sandbox(loop, provider):
    sandbox = loop.run(provider.create(SandboxSpec(), key="shared"))
    yield sandbox
    loop.run(sandbox.delete())


@pytest.fixture(scope="session")
def terminal(shared_sandbox):
    """A terminal in a sandbox that many tests use."""
    return Terminal(shared_sandbox, command_timeout_s=20.0, max_output_bytes=4096)


@pytest.fixture
def bench(loop, provider):
    """Runs trials; afterwards no sandbox of theirs is left."""
    before = provider.statistics().alive
    yield Bench(loop, provider)
    assert provider.statistics().alive == before


@pytest.fixture(scope="session")
def chat():
    return ByteChat()


@pytest.fixture(scope="session")
def say():
    """A completion of given ids."""

    def completion(ids, finish_reason=FinishReason.STOP, payload=None):
        return Completion(
            ids=np.asarray(ids, np.int32),
            logprobs=-np.linspace(0.1, 2.0, len(ids), dtype=np.float32),
            finish_reason=finish_reason,
            version_sent=3,
            version_received=3,
            payload=payload,
        )

    return completion


@pytest.fixture(scope="session")
def engines(chat, say):
    """Makes engines: `answering` by a function, `saying` commands in order in every session."""

    def saying(*commands, **options):
        def answer(request):
            asked = sum(r.session == request.session for r in engine.requests)
            return say(chat.encode(commands[asked - 1]))

        engine = MemoryEngine(answer, **options)
        return engine

    return SimpleNamespace(answering=MemoryEngine, saying=saying)


@pytest.fixture(scope="session")
def limits():
    return AgentLimits(
        max_turns=8,
        max_completion_tokens=64,
        max_observation_tokens=32,
        max_context_tokens=4096,
    )


@pytest.fixture(scope="session")
def token_agent(chat, limits):
    """Makes greedy token agents with seed 0 and roomy limits."""

    def make(engine, kind=TokenAgent, **changes):
        fields = {"chat": chat, "limits": limits, "temperature": 0.0, "seed": 0}
        return kind(engine, **fields | changes)

    return make


@pytest.fixture(scope="session")
def make_task():
    """A task that is solved by a file `hello` with the word hello."""
    empty = io.BytesIO()
    tarfile.open(fileobj=empty, mode="w").close()
    test = (
        'echo checking; r="not ok"; [ "$(cat hello 2>/dev/null)" = hello ] && r=ok\n'
        'printf "1..1\\n%s 1 - hello\\n" "$r" >&"$T1_REPORT_FD"\n'
    )

    def make(test=test, workdir="/app"):
        return Task.create(
            "hello",
            instruction="write hello",
            state=empty.getvalue(),
            test=test,
            manifest=TaskManifest.model_validate({"environment": {"workdir": workdir}}),
        )

    return make


@pytest.fixture(scope="session")
def task(make_task):
    return make_task()
