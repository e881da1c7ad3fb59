"""Publishing an actor to the rollout process, through the barrier of t1-infra.

The process is asked one thing at a time, so between a joined batch and the next launch no request
is in flight: quiescing means checking just that.
"""

import asyncio

import numpy as np
from numpy.typing import NDArray

from t1_infra import PublishError, Weights, publish
from t1_trainer.errors import RolloutFailed
from t1_trainer.policy import MoEModel
from t1_trainer.rollout.client import RolloutClient
from t1_trainer.rollout.messages import Commit, Discard, LoadWeights

__all__ = ["RolloutReplica", "publish_actor"]


class RolloutReplica:
    """The rollout process as the barrier drives it (`t1_infra.Replica`)."""

    name = "rollout"

    def __init__(self, rollout: RolloutClient, version: int) -> None:
        self._rollout = rollout
        self._next = version
        self._digest = ""

    @property
    def version(self) -> int:
        """Version the process serves; -1 before the first publication."""
        return self._rollout.served_version

    async def quiesce(self) -> None:
        """No request may be outstanding."""
        if self._rollout.busy:
            raise RolloutFailed("a rollout is still running; join it before publishing")

    async def load(self, bundle: Weights) -> None:
        """Stage weights; the process answers with the digest of what it received."""
        assert isinstance(bundle, dict)
        request = LoadWeights(self._next, bundle)
        self._digest = await asyncio.to_thread(self._rollout.call, request)

    async def digest(self) -> str:
        """Digest the process computed."""
        return self._digest

    async def commit(self, version: int) -> None:
        """Serve the staged weights."""
        self._rollout.served_version = await asyncio.to_thread(self._rollout.call, Commit(version))

    async def abort(self) -> None:
        """Forget staged weights."""
        await asyncio.to_thread(self._rollout.call, Discard())

    async def resume(self) -> None:
        """Nothing was held back: the trainer itself launches the next rollout."""


def actor_weights(actor: MoEModel) -> dict[str, NDArray[np.float32]]:
    """The actor's parameters by name."""
    return {name: p.detach().numpy() for name, p in actor.named_parameters()}


def publish_actor(rollout: RolloutClient, actor: MoEModel, version: int) -> None:
    """Make the rollout process serve `actor` as `version`, unless it does already.

    Raises:
        RolloutFailed: it did not take the weights; the old version is served or the process is gone.
    """
    if rollout.served_version == version:
        return
    try:
        asyncio.run(publish([RolloutReplica(rollout, version)], actor_weights(actor), version))
    except PublishError as error:
        raise RolloutFailed(str(error)) from error
