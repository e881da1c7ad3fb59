"""What an agent needs of a model server: token ids in; ids, log-probs and an opaque payload out.

An engine is asked with complete prompts and keeps no state that an answer depends on; sessions only
tell it which trials may still ask, and what it may cache. `Completion.payload` carries whatever the
engine records per token (routed experts, say). This package hands it through untouched and does
not know what it holds.
"""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from t1_tito import FinishReason

__all__ = ["ChatFormat", "Completion", "Engine", "GenerateRequest"]


@dataclass(frozen=True, eq=False)
class GenerateRequest:
    """One sampling request.

    Attributes:
        session: the trial's key; an engine may keep the prefix of a session cached.
        prompt_ids: int32 [P], the complete prompt.
        max_new_tokens: bound on sampled ids, the stop id included.
        temperature: softmax temperature; 0 is greedy.
        seed: fixes the random stream of this request.
    """

    session: str
    prompt_ids: NDArray[np.int32]
    max_new_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True, eq=False)
class Completion:
    """What was sampled.

    Attributes:
        ids: int32 [A], the stop id included when it was sampled.
        logprobs: float32 [A], log-probability of each id under the sampling distribution.
        finish_reason: why sampling ended; ABORT when the engine gave up, which ends the trial.
        version_sent: weight version served when the request arrived.
        version_received: weight version served when it was answered.
        payload: the engine's per-token record, or None.
    """

    ids: NDArray[np.int32]
    logprobs: NDArray[np.float32]
    finish_reason: FinishReason
    version_sent: int
    version_received: int
    payload: Any = None


class Engine(Protocol):
    """A model server, local or remote."""

    def session(self, key: str) -> AbstractAsyncContextManager[None]:
        """Announce a trial: its requests carry `key`; leaving frees what was cached for it.

        Raises:
            EngineError: the key is in use, or the engine takes no more trials.
        """
        ...

    async def generate(self, request: GenerateRequest) -> Completion:
        """Sample one completion.

        Raises:
            EngineError: the request is refused or the engine cannot serve.
        """
        ...


class ChatFormat(Protocol):
    """Turns text into ids and back at the edges of a conversation; never re-encodes sampled ids."""

    def render_instruction(self, instruction: str) -> list[int]:
        """Ids of the first prompt."""
        ...

    def render_observation(self, output: str, exit_code: int, max_tokens: int) -> list[int]:
        """Ids appended after a completion, ending where the next one starts."""
        ...

    def parse_command(self, completion_ids: list[int]) -> str:
        """The command text of a completion."""
        ...
