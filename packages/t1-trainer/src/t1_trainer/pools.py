"""Where a run's task pool comes from: an existing directory, or one generated into the cache.

The cache is `$T1_CACHE_DIR`, else `$XDG_CACHE_HOME/t1`, else `~/.cache/t1`. A generated pool's
directory name holds the generator's version and the settings, so that no other ones reuse it.
"""

import os
from pathlib import Path

from t1_reward import Pool, PoolError
from t1_reward.synthesis import GENERATOR_VERSION
from t1_trainer.config import PoolConfig

__all__ = ["cache_directory", "ensure_pool"]


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
        OSError: the cache cannot be written.
    """
    if config.path is not None:
        Pool.open(config.path)
        return config.path
    sizes = {"train": config.train_tasks, "heldout": config.heldout_tasks}
    counts = "-".join(map(str, sizes.values()))
    name = f"terminal-{GENERATOR_VERSION}-{counts}-seed{config.seed}"
    directory = cache_directory() / "pools" / name
    if not directory.exists():
        try:
            Pool.build(directory, sizes, config.seed)
        except (OSError, PoolError):
            # two first runs at once build the same pool, and the slower one finds it in place
            if not directory.exists():
                raise
    return directory
