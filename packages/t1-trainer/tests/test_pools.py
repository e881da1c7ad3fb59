"""Where pools come from: other settings never reuse one, and two first runs do not disturb each other."""

import pytest

from t1_reward import Pool, PoolError
from t1_trainer.config import PoolConfig
from t1_trainer.pools import cache_directory, ensure_pool

SMALL = {"train_tasks": 2, "heldout_tasks": 2}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("T1_CACHE_DIR", str(tmp_path / "t1"))


def test_the_cache_is_the_first_of_three_places(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_directory() == tmp_path / "t1"
    monkeypatch.delenv("T1_CACHE_DIR")
    assert cache_directory() == tmp_path / "xdg" / "t1"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == tmp_path / "home" / ".cache" / "t1"


def test_a_pool_is_generated_once_and_only_for_its_settings():
    first = ensure_pool(PoolConfig(**SMALL))
    made = first.stat().st_mtime_ns
    assert ensure_pool(PoolConfig(**SMALL)) == first
    assert first.stat().st_mtime_ns == made
    assert ensure_pool(PoolConfig(**SMALL, seed=1)) != first


def test_another_generator_never_reuses_a_pool(monkeypatch):
    first = ensure_pool(PoolConfig(**SMALL))
    monkeypatch.setattr("t1_trainer.pools.GENERATOR_VERSION", 10**6)
    assert ensure_pool(PoolConfig(**SMALL)) != first


def test_a_pool_that_another_run_finished_first_is_used(monkeypatch):
    build = Pool.build

    def beaten(directory, sizes, seed):
        build(directory, sizes, seed)
        return build(directory, sizes, seed)

    monkeypatch.setattr(Pool, "build", beaten)
    assert len(Pool.open(ensure_pool(PoolConfig(**SMALL)))) == 4


def test_a_pool_that_cannot_be_built_is_an_error(monkeypatch):
    def fails(*_):
        raise PoolError("no room")

    monkeypatch.setattr(Pool, "build", fails)
    with pytest.raises(PoolError, match="no room"):
        ensure_pool(PoolConfig(**SMALL))


def test_a_configured_directory_must_be_a_pool(tmp_path):
    with pytest.raises(PoolError, match=r"index\.jsonl: missing"):
        ensure_pool(PoolConfig(path=tmp_path))
