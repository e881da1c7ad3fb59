"""Task order: every epoch a permutation, cut into batches of any size, resumable anywhere."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from t1_reward import Pool, PoolEntry
from t1_trainer.task_order import TaskCursor

batches = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def pool_of(size: int) -> Pool:
    entries = [
        PoolEntry(
            id=f"task-{number:02d}",
            path="",
            split="train" if number < size else "heldout",
            families=(),
            skills=(),
            length=1,
            assertions=1,
            seed=number,
            content_hash="",
        )
        for number in range(size + 2)
    ]
    return Pool(Path("nowhere"), entries)


def taken(pool: Pool, seed: int, sizes: list[int], cursor: TaskCursor) -> list[str]:
    ids: list[str] = []
    for size in sizes:
        part, cursor = cursor.take(pool, seed, size)
        assert len(part) == size
        ids += part
    return ids


@given(st.integers(1, 8), batches, st.integers(0, 5))
def test_no_task_is_lost_or_repeated_within_an_epoch(size, sizes, seed):
    pool = pool_of(size)
    ids = taken(pool, seed, sizes, TaskCursor())
    for start in range(0, len(ids), size):
        epoch = ids[start : start + size]
        assert len(set(epoch)) == len(epoch)
        assert set(epoch) <= set(pool.ids("train"))
        if len(epoch) == size:
            assert set(epoch) == set(pool.ids("train"))


@given(st.integers(1, 8), batches, batches, st.integers(0, 5))
def test_the_batch_sizes_do_not_change_the_order(size, sizes, others, seed):
    pool = pool_of(size)
    one, other = (taken(pool, seed, s, TaskCursor()) for s in (sizes, others))
    shared = min(len(one), len(other))
    assert one[:shared] == other[:shared]


@given(st.integers(1, 8), batches, st.data())
def test_a_stored_cursor_continues_where_it_was(size, sizes, data):
    pool = pool_of(size)
    split = data.draw(st.integers(0, len(sizes)))
    cursor = TaskCursor()
    for count in sizes[:split]:
        _, cursor = cursor.take(pool, 0, count)
    resumed = TaskCursor(epoch=cursor.epoch, position=cursor.position)
    rest = taken(pool, 0, sizes[split:], resumed)
    assert taken(pool, 0, sizes, TaskCursor())[sum(sizes[:split]) :] == rest
    assert cursor.epoch * size + cursor.position == sum(sizes[:split])


def test_a_cursor_that_is_off_by_one_repeats_a_task():
    pool = pool_of(8)
    first, cursor = TaskCursor().take(pool, 0, 3)
    wrong = TaskCursor(cursor.epoch, cursor.position - 1)
    assert set(first) & set(wrong.take(pool, 0, 3)[0])
    assert not set(first) & set(cursor.take(pool, 0, 3)[0])


def test_epochs_and_seeds_have_orders_of_their_own():
    pool = pool_of(8)
    ids = taken(pool, 0, [16], TaskCursor())
    assert ids[:8] != ids[8:]
    assert ids != taken(pool, 1, [16], TaskCursor())
