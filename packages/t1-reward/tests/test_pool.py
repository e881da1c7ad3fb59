import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import t1_reward.pool
from t1_reward import Pool, PoolEntry, PoolError, Task, generate_task


def make_entry(number, split="train", assertions=1):
    return PoolEntry(
        id=f"{split}-{number:06d}",
        path=f"tasks/{number}",
        split=split,
        families=(),
        skills=(),
        length=1,
        assertions=assertions,
        seed=number,
        content_hash="",
    )


@pytest.fixture
def pool(tmp_path):
    return Pool.build(tmp_path / "pool", {"train": 6, "heldout": 3}, seed=2)


def test_a_built_pool_is_what_opening_it_gives(pool):
    again = Pool.open(pool.directory)
    assert list(again) == list(pool)
    assert len(again) == 9
    assert len(again.ids("train")) == 6
    assert len(again.ids("heldout")) == 3


def test_tasks_are_those_of_the_generator_and_the_index(pool):
    for entry in pool:
        made = generate_task(entry.seed, entry.split)
        task = pool.task(entry.id)
        assert task == made.task
        assert (entry.skills, entry.families) == (made.skills, made.families)
        assert entry.length == task.length
        assert entry.assertions == task.assertion_count
        assert Task.load(pool.directory / entry.path) == task


def test_the_same_seed_builds_the_same_pool_and_another_one_shares_no_task(pool, tmp_path):
    sizes = {"train": 6, "heldout": 3}
    again = Pool.build(tmp_path / "again", sizes, seed=2)
    assert list(again) == list(pool)
    other = Pool.build(tmp_path / "other", sizes, seed=3)
    assert not {e.content_hash for e in other} & {e.content_hash for e in pool}


@given(st.integers(0, 50), st.integers(0, 5), st.integers(), st.integers(1, 40))
def test_an_order_goes_through_every_training_task_once(epoch, seed, cursor, size):
    entries = [make_entry(number) for number in range(size)] + [make_entry(0, "heldout")]
    pool = Pool("unused", entries)
    order = pool.order(epoch, seed)
    assert Counter(order) == Counter(pool.ids("train"))
    # a run that stopped at a cursor sees the rest of the very same order
    cursor %= size + 1
    assert order[:cursor] + pool.order(epoch, seed)[cursor:] == order


def test_orders_differ_by_epoch_and_seed_and_not_by_the_order_of_the_index():
    entries = [make_entry(number) for number in range(30)]
    pool = Pool("unused", entries)
    assert len({pool.order(epoch, seed) for epoch in range(3) for seed in range(3)}) == 9
    assert Pool("unused", entries[::-1]).order(1, 1) == pool.order(1, 1)


def test_the_order_is_fixed_for_good():
    pool = Pool("unused", [make_entry(number) for number in range(8)])
    assert [int(id[-1]) for id in pool.order(0, 0)] == [3, 0, 1, 5, 7, 2, 4, 6]


def test_the_percentile_is_the_nearest_rank_of_the_training_tasks():
    counts = [2, 2, 3, 4, 5, 6, 7, 8, 9, 20]
    entries = [make_entry(i, assertions=count) for i, count in enumerate(counts)]
    pool = Pool("unused", [*entries, make_entry(0, "heldout", 99)])
    assert [pool.percentile_assertions(p) for p in (10, 50, 90, 91, 100)] == [2, 5, 9, 20, 20]
    # 55 / 100 * 100 is more than 55 in floating point
    hundred = Pool("unused", [make_entry(i, assertions=i + 1) for i in range(100)])
    assert [hundred.percentile_assertions(p) for p in range(1, 101)] == list(range(1, 101))
    with pytest.raises(PoolError, match=r"percent: expected a number in \(0, 100\], got 0"):
        pool.percentile_assertions(0)
    with pytest.raises(PoolError, match="no training task"):
        Pool("unused", [make_entry(0, "heldout")]).percentile_assertions(90)


def test_an_unknown_task_is_refused(pool):
    with pytest.raises(PoolError, match="no task 'train-9'"):
        pool.task("train-9")


def test_a_task_changed_or_lost_after_building_is_refused(pool):
    first, second, *_ = pool.ids("train")
    with (pool.directory / pool.entry(first).path / "instruction.md").open("a") as file:
        file.write("more")
    with pytest.raises(PoolError, match=r"changed since the pool was built"):
        pool.task(first)
    (pool.directory / pool.entry(second).path / "tests" / "test.sh").unlink()
    with pytest.raises(PoolError, match=rf"task '{second}': .*test\.sh: missing"):
        pool.task(second)


def test_a_missing_or_empty_index_is_refused(pool, tmp_path):
    with pytest.raises(PoolError, match=r"nowhere/index\.jsonl: missing"):
        Pool.open(tmp_path / "nowhere")
    (pool.directory / "index.jsonl").write_bytes(b"")
    with pytest.raises(PoolError, match=r"index\.jsonl: empty"):
        Pool.open(pool.directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entry: entry.pop("seed"), r"line 3: seed: Field required"),
        (lambda entry: entry.update(split="test"), r"line 3: split: "),
        (lambda entry: entry.update(length=-1), r"line 3: length: "),
        (lambda entry: entry.update(schema_version=2), r"line 3: schema_version: .* got 2"),
        (lambda entry: entry.update(extra=1), r"line 3: extra: "),
        (lambda entry: entry.update(id="train-2000000"), r"line 3: id .* appears twice"),
    ],
)
def test_a_broken_line_of_the_index_is_named(pool, change, message):
    index = pool.directory / "index.jsonl"
    lines = index.read_text().splitlines()
    entry = json.loads(lines[2])
    change(entry)
    lines[2] = json.dumps(entry)
    index.write_text("\n".join(lines))
    with pytest.raises(PoolError, match=message):
        Pool.open(pool.directory)


def test_a_torn_index_is_named(pool):
    index = pool.directory / "index.jsonl"
    index.write_bytes(index.read_bytes()[:-40])
    with pytest.raises(PoolError, match="line 9: the line: "):
        Pool.open(pool.directory)


def test_a_build_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def fail_late(seed, split):
        if seed == 2:
            raise OSError("no space left")
        return generate_task(seed, split)

    monkeypatch.setattr(t1_reward.pool, "generate_task", fail_late)
    with pytest.raises(OSError, match="no space left"):
        Pool.build(tmp_path / "pool", {"train": 4})
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_taken_and_sizes_out_of_range_are_refused(pool, tmp_path):
    with pytest.raises(PoolError, match="exists already"):
        Pool.build(pool.directory, {"train": 1})
    with pytest.raises(PoolError, match=r"sizes\['train'\]: expected 0 \.\. 1000000, got -1"):
        Pool.build(tmp_path / "new", {"train": -1})
    with pytest.raises(PoolError, match="at least one task"):
        Pool.build(tmp_path / "new", {"train": 0})
