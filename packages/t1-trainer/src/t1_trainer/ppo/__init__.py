"""PPO as pure functions: advantages, clipped losses, explained variance."""

from t1_trainer.ppo.advantages import terminal_returns_and_advantages
from t1_trainer.ppo.losses import clipped_policy_loss, clipped_value_loss
from t1_trainer.ppo.moments import explained_variance

__all__ = [
    "clipped_policy_loss",
    "clipped_value_loss",
    "explained_variance",
    "terminal_returns_and_advantages",
]
