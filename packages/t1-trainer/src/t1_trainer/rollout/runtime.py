"""Runs trials in the rollout process: batches for training, attempts for evaluation.

Owns the sandbox provider, the admission controller and the engine; the trainer's process holds none
of them. Everything is one asyncio loop on one thread: sampling steps and waiting terminals interleave.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from t1_eval import (
    Agent,
    AgentLimits,
    Scoring,
    ScriptedAgent,
    TokenAgent,
    TrialFailed,
    TrialResult,
    TrialRunner,
    write_trial,
)
from t1_r3 import RoutingSpec
from t1_reward import Pool, Task, TaskFormatError
from t1_sandbox import (
    AdmissionController,
    Deadlines,
    Journal,
    LocalProvider,
    MonotonicClock,
    TokenBucket,
    collect_first,
)
from t1_sandbox import (
    Collected as FirstCollected,
)
from t1_trainer.config import Config
from t1_trainer.policy import ChatFormat, MoEConfig, Tokenizer
from t1_trainer.policy.decoder import CachedDecoder
from t1_trainer.policy.rounding import exact, to_bfloat16
from t1_trainer.rollout.cpu import descendants_cpu_seconds
from t1_trainer.rollout.engine import LocalEngine
from t1_trainer.rollout.messages import (
    Attempt,
    Collect,
    Collected,
    Evaluate,
    InvalidTrial,
    Progress,
    Retention,
)
from t1_trainer.samples import Sample, samples_of_trial

__all__ = ["RolloutRuntime", "RolloutSetup"]

# evaluation keeps this many trials in flight; the decoder's capacity bounds both kinds of request
_EVALUATION_CONCURRENCY = 128
_PROGRESS_PERIOD_S = 0.25


@dataclass(frozen=True)
class RolloutSetup:
    """What the rollout process is started with."""

    config: Config
    model: MoEConfig
    tokenizer_pieces: tuple[str, ...]
    pool: Path
    run_directory: Path


class RolloutRuntime:
    """Serves `Collect` and `Evaluate`; runs inside `async with`.

    Args:
        setup: configuration, model shape, tokenizer, pool and run directory.
        report: receives progress.
    """

    def __init__(self, setup: RolloutSetup, report: Callable[[Progress], None]) -> None:
        self._setup = setup
        self._config = config = setup.config
        self._report = report
        self._pool = Pool.open(setup.pool)
        self._chat = ChatFormat(Tokenizer(setup.tokenizer_pieces))
        self._routing = RoutingSpec(
            num_experts=setup.model.num_experts,
            top_k=setup.model.num_experts_per_tok,
            moe_layers=tuple(range(setup.model.num_hidden_layers)),
        )
        capacity = max(config.launched_trials, _EVALUATION_CONCURRENCY)
        decoder = CachedDecoder(
            setup.model,
            capacity=capacity,
            max_length=setup.model.max_position_embeddings,
            rounded=exact if config.rollout.sampler_dtype == "float32" else to_bfloat16,
        )
        gather = 1.0 if config.deterministic else config.rollout.gather
        self.engine = LocalEngine(decoder, stop_ids=ChatFormat.stop_ids, gather=gather)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start provider, controller and engine.

        Raises:
            IsolationUnavailable: no usable sandbox isolation on this host.
        """
        rollout = self._config.rollout
        clock = MonotonicClock()
        async with AsyncExitStack() as stack:
            provider = await stack.enter_async_context(LocalProvider())
            self._controller = AdmissionController(
                provider,
                max_sandboxes=rollout.max_sandboxes,
                bucket=TokenBucket(rollout.create_rate_per_s, rollout.create_burst, clock),
                journal=Journal(self._setup.run_directory / "journal.jsonl"),
                clock=clock,
            )
            stack.push_async_callback(self._controller.drain)
            await stack.enter_async_context(self.engine)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Delete every sandbox and stop."""
        await self._stack.aclose()

    async def collect(self, request: Collect) -> Collected:
        """Run one oversampled batch.

        Raises:
            CaptureError: a sample lacks token ids or routing rows.
            TrialFailed: too many trials failed to fill the batch.
        """
        started, cpu, counts = time.monotonic(), time.process_time(), self._counts()
        progress: dict[str, tuple[int, int]] = {}
        keys = {
            f"s{request.step:05d}-{i:03d}-{task}": task for i, task in enumerate(request.task_ids)
        }
        positions = {key: i for i, key in enumerate(keys)}
        runner = self._runner(
            self._token_agent(
                self._config.rollout.temperature,
                lambda key, turns: progress.__setitem__(key, (turns, positions[key])),
            )
        )
        # the least completion key each running trial could still have: turns so far, at least one
        progress.update({key: (1, position) for key, position in positions.items()})

        async def trial(key: str) -> TrialResult:
            try:
                return await runner.run(self._pool.task(keys[key]), key)
            finally:
                self._finished += 1

        async with self._reporting(f"rollout {request.step}", request.target):
            collected = await collect_first(
                [(key, partial(trial, key)) for key in keys],
                request.target,
                order="logical" if self._config.deterministic else "arrival",
                completion_key=lambda result: (len(result.run.turns), positions[result.key]),
                frontier=lambda running: min(progress[key] for key in running),
            )
        batch = self._batch(request, keys, collected)
        return replace(
            batch,
            seconds=time.monotonic() - started,
            cpu_seconds=time.process_time() - cpu,
            statistics={name: now - counts[name] for name, now in self._counts().items()},
        )

    def _batch(
        self,
        request: Collect,
        keys: dict[str, str],
        collected: "FirstCollected[TrialResult]",
    ) -> Collected:
        for _, error in collected.failed:
            # a failed environment is an invalid trial; anything else is a defect and ends the run
            if not isinstance(error, TrialFailed):
                raise error
        if collected.short:
            cause = collected.failed[0][1] if collected.failed else "no trial completed"
            raise TrialFailed(
                f"step {request.step}",
                "batch",
                f"only {len(collected.admitted)} of {request.target} trials completed; "
                f"{len(collected.failed)} failed, first: {cause}",
            )
        results = [result for _, result in collected.admitted]
        invalid = [InvalidTrial(keys[key], str(error)) for key, error in collected.failed]
        samples: list[Sample] = []
        for result in results:
            if result.reward.reward is None:
                cause = f"no verdict: {result.reward.cause}"
                invalid.append(InvalidTrial(result.task_id, cause))
            elif not result.run.turns:
                cause = "nothing sampled: the prompt exceeds the context bound"
                invalid.append(InvalidTrial(result.task_id, cause))
            else:
                samples.extend(samples_of_trial(result, self._routing))
        folder = self._setup.run_directory / "trials" / f"step-{request.step:05d}"
        for result in results:
            write_trial(folder, result)
        return Collected(
            samples=tuple(samples),
            admitted=tuple(result.task_id for result in results),
            cancelled=tuple(keys[key] for key in collected.cancelled),
            invalid=tuple(invalid),
            retention=self._retention(request.task_ids, [r.task_id for r in results]),
            seconds=0.0,
            cpu_seconds=0.0,
        )

    async def evaluate(self, request: Evaluate) -> list[Attempt]:
        """Run every attempt at every task; failures are attempts without a reward."""
        runner = self._runner(self._evaluated_agent(request))
        limit = asyncio.Semaphore(_EVALUATION_CONCURRENCY)
        self._finished = 0
        folder = self._setup.run_directory / "trials" / request.name

        async def attempt(task_id: str, number: int) -> Attempt:
            task, skills = self._pool.task(task_id), self._pool.entry(task_id).skills
            async with limit:
                try:
                    result = await runner.run(task, f"{request.name}-{number}-{task_id}")
                except TrialFailed as error:
                    return _failed_attempt(task, str(error), skills)
                finally:
                    self._finished += 1
            write_trial(folder, result)
            return _attempt(result, skills)

        # the longest first: what runs alone at the end is short
        ordered = sorted(request.task_ids, key=lambda t: -self._pool.entry(t).length)
        wanted = [(t, n) for n in range(request.attempts) for t in ordered]
        answers: list[Attempt] = []
        async with self._reporting(request.name, len(wanted)):
            for wave in self._waves(wanted):
                answers += await asyncio.gather(*(attempt(t, n) for t, n in wave))
        return answers

    def _waves(self, wanted: list[tuple[str, int]]) -> Iterable[list[tuple[str, int]]]:
        """Fixed groups in deterministic mode, so that batch composition repeats; else one."""
        size = _EVALUATION_CONCURRENCY if self._config.deterministic else len(wanted)
        return [wanted[i : i + size] for i in range(0, len(wanted), size)]

    def _evaluated_agent(self, request: Evaluate) -> Agent:
        if request.agent == "oracle":
            return ScriptedAgent(_reference_commands)
        if request.agent == "noop":
            return ScriptedAgent(lambda task: ())
        return self._token_agent(request.temperature)

    def _token_agent(
        self, temperature: float, on_turn: Callable[[str, int], None] = lambda key, turns: None
    ) -> TokenAgent:
        rollout = self._config.rollout
        limits = AgentLimits(
            max_turns=rollout.max_turns,
            max_completion_tokens=rollout.max_completion_tokens,
            max_observation_tokens=rollout.max_observation_tokens,
            max_context_tokens=rollout.max_context_tokens,
        )
        return TokenAgent(self.engine, self._chat, limits, temperature, self._config.seed, on_turn)

    def _runner(self, agent: Agent) -> TrialRunner:
        config, rollout = self._config, self._config.rollout
        return TrialRunner(
            controller=self._controller,
            agent=agent,
            scoring=Scoring(config.reward.scale, config.reward.variant, config.reward.fallback),
            deadlines=Deadlines(
                agent_s=rollout.agent_timeout_s, verifier_s=rollout.verifier_timeout_s
            ),
            command_timeout_s=rollout.command_timeout_s,
            max_output_bytes=rollout.max_output_bytes,
        )

    def _retention(self, launched: Sequence[str], admitted: Sequence[str]) -> dict[str, Retention]:
        def groups(task_ids: Sequence[str]) -> Counter[str]:
            count: Counter[str] = Counter()
            for task_id in task_ids:
                entry = self._pool.entry(task_id)
                count.update(set(entry.families))
                count[f"length {entry.length}"] += 1
            return count

        all_launched, all_admitted = groups(launched), groups(admitted)
        return {
            name: Retention(count, all_admitted[name])
            for name, count in sorted(all_launched.items())
        }

    def _counts(self) -> dict[str, float]:
        """Counters since the process started; a batch reports their growth."""
        engine = self.engine.statistics
        admission = self._controller.statistics()
        return {
            "engine/decode_steps": engine.decode_steps,
            "engine/sampled_tokens": engine.sampled_tokens,
            "engine/prefilled_tokens": engine.prefilled_tokens,
            "sandbox/created": admission.created_total,
            "sandbox/failed": admission.failed_total,
            "time/sandbox_cpu_s": descendants_cpu_seconds(),
        }

    @contextlib.asynccontextmanager
    async def _reporting(self, phase: str, total: int) -> AsyncGenerator[None]:
        """Report progress periodically while the block runs."""
        self._finished = 0

        async def tick() -> None:
            while True:
                self._report(
                    Progress(
                        phase,
                        self._finished,
                        total,
                        self._controller.statistics().alive,
                        self.engine.statistics.sampled_tokens,
                    )
                )
                await asyncio.sleep(_PROGRESS_PERIOD_S)

        ticker = asyncio.create_task(tick())
        try:
            yield
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)


def _reference_commands(task: Task) -> tuple[str, ...]:
    if task.solution is None:
        raise TaskFormatError(f"{task.id}/solution/solve.sh: missing; the oracle agent runs it")
    return (task.solution,)


def _attempt(result: TrialResult, skills: tuple[str, ...]) -> Attempt:
    return Attempt(
        task_id=result.task_id,
        families=result.families,
        length=result.length,
        reward=result.reward.reward,
        resolved=result.resolved,
        turns=len(result.run.turns),
        cause=str(result.reward.cause or ""),
        skills=skills,
    )


def _failed_attempt(task: Task, cause: str, skills: tuple[str, ...]) -> Attempt:
    return Attempt(task.id, task.families, task.length, None, False, 0, cause, skills)
