"""Local engine: serves many sessions from one cached decoder, batched across trials.

Waiting requests are admitted together once enough of the live sessions wait (`gather`), prefilled as
one ragged batch, then decoded in lock-step with everything already decoding. With `gather = 1` a
batch starts only when every live session waits, so its composition, and with it every rounded
bit, is a function of the seed: that is the deterministic mode.

A session keeps its cache row between turns: only what its prompt adds is fed. Each token's routed
experts are captured from the forward that consumed it: a request returns rows for absolute
positions [cached, len(prompt) + len(completion) - 1), the last sampled token not having been
consumed yet. Cache rows of decoding sessions are a prefix of the slots, so attention never gathers.
"""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from t1_eval import Completion, EngineError, GenerateRequest
from t1_tito import FinishReason
from t1_trainer.policy.decoder import CachedDecoder

__all__ = ["EngineStatistics", "LocalEngine", "RoutedExperts"]


@dataclass(frozen=True)
class RoutedExperts:
    """Payload of a completion: experts per consumed token.

    Attributes:
        rows: uint8 [R, moe_layers, top_k].
        start: absolute position of rows[0] in prompt + completion.
    """

    rows: NDArray[np.uint8]
    start: int


@dataclass
class EngineStatistics:
    """Counts since the engine started."""

    decode_steps: int = 0
    sampled_tokens: int = 0
    prefilled_tokens: int = 0
    rounds: int = 0


@dataclass(eq=False)
class _Session:
    """One trial's cache row and what was fed into it."""

    slot: int
    fed: list[int] = field(default_factory=list[int])


@dataclass(eq=False)
class _Request:
    """A request on its way through the engine."""

    request: GenerateRequest
    session: _Session
    answer: "asyncio.Future[Completion]"
    version: int
    uniforms: NDArray[np.float64]
    cached: int = 0
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    rows: list[Tensor] = field(default_factory=list[Tensor])


class LocalEngine:
    """An `t1_eval.Engine` over one `CachedDecoder`; runs inside `async with engine:`.

    Args:
        decoder: model and cache; its capacity bounds the sessions alive at once.
        stop_ids: ids that end a completion.
        gather: share of the idle live sessions that must wait before they are admitted, in (0, 1].
    """

    def __init__(self, decoder: CachedDecoder, *, stop_ids: tuple[int, ...], gather: float) -> None:
        self.statistics = EngineStatistics()
        self.version = 0
        self._decoder = decoder
        self._stop_ids = frozenset(stop_ids)
        self._gather = gather
        self._sessions: dict[str, _Session] = {}
        self._waiting: list[_Request] = []
        self._active: list[_Request] = []
        self._changed = asyncio.Event()
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Start serving."""
        self._task = asyncio.create_task(self._serve())
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Stop serving."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def load(self, state: dict[str, Tensor], version: int) -> None:
        """Serve other weights from now on.

        Raises:
            EngineError: requests are in flight; none may span two versions.
        """
        if self._waiting or self._active:
            raise EngineError(
                f"{len(self._waiting) + len(self._active)} requests are in flight: "
                "drain them before loading weights"
            )
        self._decoder.load(state)
        for session in self._sessions.values():
            session.fed.clear()
        self.version = version

    @asynccontextmanager
    async def session(self, key: str) -> AsyncGenerator[None]:
        """Reserve a cache row for a trial.

        Raises:
            EngineError: the key is in use or all rows are taken.
        """
        if key in self._sessions:
            raise EngineError(f"session {key!r} is already open")
        if len(self._sessions) >= self._decoder.capacity:
            raise EngineError(
                f"all {self._decoder.capacity} cache rows are in use; raise the decoder's capacity"
            )
        session = _Session(len(self._sessions))
        self._decoder.truncate(session.slot, 0, 0)
        self._sessions[key] = session
        try:
            yield
        finally:
            self._close(key)

    async def generate(self, request: GenerateRequest) -> Completion:
        """Sample one completion; see `GenerateRequest`.

        Raises:
            EngineError: unknown session, a prompt too long for the cache, or a failed engine.
        """
        if self._failure is not None:
            raise EngineError(f"the engine stopped: {self._failure}") from self._failure
        session = self._sessions.get(request.session)
        if session is None:
            raise EngineError(f"session {request.session!r} is not open")
        self._check(request)
        uniforms = np.random.Generator(np.random.Philox(key=request.seed)).random(
            request.max_new_tokens
        )
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        entry = _Request(request, session, answer, self.version, uniforms)
        self._waiting.append(entry)
        self._changed.set()
        try:
            return await answer
        finally:
            self._forget(entry)

    def _check(self, request: GenerateRequest) -> None:
        """Refuse what would fail in the batch and take other sessions' requests with it."""
        prompt, new = request.prompt_ids, request.max_new_tokens
        vocabulary = self._decoder.config.vocab_size
        if new < 1:
            raise EngineError(f"max_new_tokens is {new}, expected at least 1")
        if not len(prompt) or prompt.min() < 0 or prompt.max() >= vocabulary:
            raise EngineError(f"prompt_ids: expected at least one id, all in [0, {vocabulary})")
        if len(prompt) + new > self._decoder.max_length:
            raise EngineError(
                f"prompt_ids ({len(prompt)}) + max_new_tokens ({new}) exceed the cache length "
                f"{self._decoder.max_length}"
            )
        if any(e.request.session == request.session for e in [*self._waiting, *self._active]):
            raise EngineError(f"session {request.session!r} has a request in flight already")

    def _close(self, key: str) -> None:
        """Free a row: the highest slot moves into the gap, so that slots stay 0 .. n-1."""
        session = self._sessions.pop(key)
        for other in self._sessions.values():
            if other.slot == len(self._sessions):
                self._exchange(session, other)
                break
        self._changed.set()

    def _forget(self, entry: _Request) -> None:
        """Drop a request whose caller went away; answered ones are gone already."""
        if entry in self._waiting:
            self._waiting.remove(entry)
        if entry in self._active:
            self._retire(entry)
        self._changed.set()

    def _exchange(self, a: _Session, b: _Session) -> None:
        self._decoder.swap(a.slot, b.slot)
        a.slot, b.slot = b.slot, a.slot

    def _at(self, slot: int) -> _Session:
        return next(s for s in self._sessions.values() if s.slot == slot)

    async def _serve(self) -> None:
        """Admit, decode, repeat; a failure is handed to every caller."""
        try:
            while True:
                if self._may_admit():
                    self._admit()
                elif self._active:
                    self._decode()
                else:
                    self._changed.clear()
                    await self._changed.wait()
                # let terminals and verifiers of other trials make progress between steps
                await asyncio.sleep(0)
        except Exception as error:
            self._failure = error
            for entry in [*self._waiting, *self._active]:
                if not entry.answer.done():
                    entry.answer.set_exception(EngineError(f"the engine stopped: {error}"))
            raise

    def _may_admit(self) -> bool:
        idle = len(self._sessions) - len(self._active)
        if self._gather >= 1.0 and self._active:
            return False
        return bool(self._waiting) and len(self._waiting) >= math.ceil(self._gather * idle)

    def _admit(self) -> None:
        """Prefill all waiting requests as one ragged batch and sample their first ids."""
        self.statistics.rounds += 1
        new = sorted(self._waiting, key=lambda entry: entry.request.session)
        self._waiting.clear()
        first = len(self._active)
        for offset, entry in enumerate(new):
            if entry.session.slot != first + offset:
                self._exchange(entry.session, self._at(first + offset))
            self._rewind(entry)
        self._active.extend(new)
        fresh = [entry.request.prompt_ids[entry.cached :] for entry in new]
        counts = torch.tensor([len(ids) for ids in fresh])
        tokens = torch.zeros(len(new), int(counts.max()), dtype=torch.long)
        for row, ids in enumerate(fresh):
            tokens[row, : len(ids)] = torch.from_numpy(ids.astype(np.int64))
            new[row].session.fed.extend(ids.tolist())
        logits, routed = self._decoder.feed(tokens, counts, first)
        self.statistics.prefilled_tokens += int(counts.sum())
        for row, entry in enumerate(new):
            entry.rows.append(routed[row, : counts[row]])
        self._sample(new, logits)

    def _rewind(self, entry: _Request) -> None:
        """Keep the cached prefix that the prompt shares with what its row was fed."""
        prompt = entry.request.prompt_ids.tolist()
        fed = entry.session.fed
        # at least one token must be fed to get logits
        limit = min(len(fed), len(prompt) - 1)
        common = 0
        if fed[:limit] == prompt[:limit]:
            common = limit
        else:
            while fed[common] == prompt[common]:
                common += 1
        del fed[common:]
        entry.cached = common
        self._decoder.truncate(entry.session.slot, common, fed[-1] if fed else 0)

    def _decode(self) -> None:
        """Feed every active request's last id and sample the next."""
        self.statistics.decode_steps += 1
        active = list(self._active)
        last = [entry.ids[-1] for entry in active]
        for entry, token in zip(active, last, strict=True):
            entry.session.fed.append(token)
        tokens = torch.tensor(last)[:, None]
        logits, routed = self._decoder.feed(tokens, torch.ones(len(active), dtype=torch.long), 0)
        for row, entry in enumerate(active):
            entry.rows.append(routed[row])
        self._sample(active, logits)

    def _sample(self, entries: list[_Request], logits: Tensor) -> None:
        ids, logprobs = sample(
            logits,
            torch.tensor([entry.request.temperature for entry in entries]),
            torch.tensor([entry.uniforms[len(entry.ids)] for entry in entries]),
        )
        self.statistics.sampled_tokens += len(entries)
        for entry, token, logprob in zip(entries, ids, logprobs, strict=True):
            entry.ids.append(token)
            entry.logprobs.append(logprob)
            if token in self._stop_ids:
                self._finish(entry, FinishReason.STOP)
            elif len(entry.ids) >= entry.request.max_new_tokens:
                self._finish(entry, FinishReason.LENGTH)

    def _finish(self, entry: _Request, reason: FinishReason) -> None:
        self._retire(entry)
        if entry.answer.done():
            return
        rows = torch.cat(entry.rows).numpy()
        entry.answer.set_result(
            Completion(
                ids=np.asarray(entry.ids, np.int32),
                logprobs=np.asarray(entry.logprobs, np.float32),
                finish_reason=reason,
                version_sent=entry.version,
                version_received=self.version,
                payload=RoutedExperts(rows, entry.cached),
            )
        )

    def _retire(self, entry: _Request) -> None:
        """Leave the decoding prefix: the last active row takes the place."""
        last = self._active[-1]
        index = self._active.index(entry)
        if last is not entry:
            self._exchange(entry.session, last.session)
        self._active[index] = last
        self._active.pop()


def sample(
    logits_RV: Tensor, temperature_R: Tensor, uniform_R: Tensor
) -> tuple[list[int], list[float]]:
    """Draw one id per row by inverting the cumulative distribution at a given uniform.

    Args:
        logits_RV: float32 logits.
        temperature_R: softmax temperature per row; 0 takes the most likely id and reports its
            log-probability at temperature 1.
        uniform_R: numbers in [0, 1).

    Returns:
        ids and their log-probabilities under the distribution they were drawn from.
    """
    greedy_R = temperature_R == 0
    scaled = logits_RV / torch.where(greedy_R, 1.0, temperature_R).float()[:, None]
    logprobs_RV = scaled.log_softmax(-1)
    cumulative = logprobs_RV.double().exp().cumsum(-1)
    target = (uniform_R * cumulative[:, -1])[:, None]
    drawn = torch.searchsorted(cumulative, target, right=True)[:, 0]
    drawn = drawn.clamp(max=logits_RV.shape[1] - 1)
    ids_R = torch.where(greedy_R, logits_RV.argmax(-1), drawn)
    chosen = logprobs_RV.gather(1, ids_R[:, None])[:, 0]
    return cast("list[int]", ids_R.tolist()), cast("list[float]", chosen.tolist())
