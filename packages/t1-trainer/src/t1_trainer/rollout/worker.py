"""What the rollout process does: answer requests over a socket, each exactly once."""

import asyncio
import contextlib
import logging
import sys
from multiprocessing.connection import Connection
from typing import Any

import torch

from t1_eval import EvalError
from t1_infra import weights_digest
from t1_reward import RewardError
from t1_sandbox import SandboxError
from t1_trainer.errors import TrainerError
from t1_trainer.rollout.messages import (
    Close,
    Collect,
    Commit,
    Discard,
    Done,
    Evaluate,
    Failed,
    LoadWeights,
    Progress,
)
from t1_trainer.rollout.runtime import RolloutRuntime, RolloutSetup

__all__ = ["serve"]

_EXPECTED = (EvalError, SandboxError, RewardError, TrainerError, OSError)


class _Server:
    """Answers requests from one connection until `Close`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._staged: LoadWeights | None = None

    def _report(self, progress: Progress) -> None:
        self._connection.send(progress)

    async def serve(self) -> None:
        setup = self._connection.recv()
        assert isinstance(setup, RolloutSetup), "the first message is the setup"
        try:
            async with RolloutRuntime(setup, self._report) as runtime:
                self._connection.send(Done(None))
                await self._loop(runtime)
        except _EXPECTED as error:
            # at the end nobody reads the answer: the log keeps what could not be deleted
            logging.getLogger(__name__).exception("the rollout process could not start or end")
            self._connection.send(Failed(str(error)))
        else:
            self._connection.send(Done(None))

    async def _loop(self, runtime: RolloutRuntime) -> None:
        while True:
            # a thread waits, so that engine and sandboxes keep their event loop
            request = await asyncio.to_thread(self._connection.recv)
            if isinstance(request, Close):
                return
            try:
                answer = await self._answer(runtime, request)
            except _EXPECTED as error:
                logging.getLogger(__name__).exception("request failed")
                self._connection.send(Failed(str(error)))
            else:
                self._connection.send(Done(answer))

    async def _answer(self, runtime: RolloutRuntime, request: Any) -> Any:
        match request:
            case LoadWeights():
                self._staged = request
                return weights_digest(request.weights)
            case Commit(version):
                staged = self._staged
                assert staged is not None, "commit follows a load"
                assert staged.version == version, "commit follows its load"
                state = {name: torch.from_numpy(w) for name, w in staged.weights.items()}
                runtime.engine.load(state, version)
                self._staged = None
                return version
            case Discard():
                self._staged = None
                return None
            case Collect():
                return await runtime.collect(request)
            case Evaluate():
                return await runtime.evaluate(request)
            case _:
                raise TypeError(f"unknown request {type(request).__name__}")


def serve(descriptor: int) -> None:
    """Serve on an inherited socket until told to close or the parent is gone."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    torch.set_num_threads(1)
    connection = Connection(descriptor)
    # a parent that is gone ends this process; its sandboxes end with it
    with contextlib.suppress(EOFError, BrokenPipeError):
        asyncio.run(_Server(connection).serve())
