"""Where a run's task pool comes from: an existing directory, or one generated into the cache.

The cache is `$T1_CACHE_DIR`, else `$XDG_CACHE_HOME/t1`, else `~/.cache/t1`. A generated pool's
directory name holds the settings that made it, so that other settings never reuse it.
"""

import os
from pathlib import Path

from t1_reward import Pool
from t1_trainer.config import PoolConfig

__all__ = ["cache_directory", "ensure_pool"]

_GENERATOR = "terminal-1"


def cache_directory() -> Path:
    """Directory for what can be made again."""
    if "T1_CACHE_DIR" in os.environ:
        return Path(os.environ["T1_CACHE_DIR"])
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "t1"


def ensure_pool(config: PoolConfig) -> Path:
    """Path of the pool, generated if need be.

    Raises:
        PoolError: the configured directory is not a pool.
    """
    if config.path is not None:
        Pool.open(config.path)
        return config.path
    name = f"{_GENERATOR}-{config.train_tasks}-{config.heldout_tasks}-seed{config.seed}"
    directory = cache_directory() / "pools" / name
    if not directory.exists():
        sizes = {"train": config.train_tasks, "heldout": config.heldout_tasks}
        Pool.build(directory, sizes, config.seed)
    return directory
