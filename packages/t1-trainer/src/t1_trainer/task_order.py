"""Which tasks come next: a seeded permutation per epoch, resumable by (epoch, position)."""

from dataclasses import dataclass

from t1_reward import Pool

__all__ = ["TaskCursor"]


@dataclass(frozen=True)
class TaskCursor:
    """A place in the endless sequence of epochs.

    Attributes:
        epoch: passes over the training split finished so far.
        position: tasks of the current pass already taken.
    """

    epoch: int = 0
    position: int = 0

    def take(self, pool: Pool, seed: int, count: int) -> tuple[tuple[str, ...], "TaskCursor"]:
        """The next `count` task ids, and the cursor behind them."""
        taken: list[str] = []
        epoch, position = self.epoch, self.position
        while len(taken) < count:
            order = pool.order(epoch, seed)
            part = order[position : position + count - len(taken)]
            taken += part
            position += len(part)
            if position == len(order):
                epoch, position = epoch + 1, 0
        return tuple(taken), TaskCursor(epoch, position)
