"""Train terminal agents with PPO on executed outcomes: composes the T1 packages into one trainer.

The `t1` command is the main way in. What is exported here imports without torch.
"""

from t1_trainer.config import Config
from t1_trainer.config_files import load_config
from t1_trainer.errors import (
    CaptureError,
    ConfigError,
    PolicyFormatError,
    RolloutFailed,
    RunDirectoryError,
    StorageError,
    TrainerError,
    TrainingDiverged,
)

__all__ = [
    "CaptureError",
    "Config",
    "ConfigError",
    "PolicyFormatError",
    "RolloutFailed",
    "RunDirectoryError",
    "StorageError",
    "TrainerError",
    "TrainingDiverged",
    "load_config",
]
