import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_infra import ArgumentError, CheckpointError, CheckpointKind, CheckpointStore

WEIGHTS_ONLY, RESUMABLE = CheckpointKind.WEIGHTS_ONLY, CheckpointKind.RESUMABLE


def write(store, step, kind=RESUMABLE, **metadata):
    with store.writer(step, kind=kind, metadata=metadata) as directory:
        (directory / "weights.bin").write_bytes(b"weights of %d" % step)
        (directory / "optimizer").mkdir()
        (directory / "optimizer" / "shard-0").write_bytes(b"moments")


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path / "checkpoints")


def test_what_was_written_is_loaded_with_its_metadata(store):
    write(store, 7, loss=0.5)
    checkpoint = store.load(7)
    assert (checkpoint.step, checkpoint.kind, checkpoint.metadata) == (7, RESUMABLE, {"loss": 0.5})
    assert (checkpoint.path / "weights.bin").read_bytes() == b"weights of 7"


def test_both_kinds_of_one_step_stand_side_by_side(store):
    write(store, 7, WEIGHTS_ONLY)
    write(store, 7, RESUMABLE)
    assert store.load(7, kind=WEIGHTS_ONLY).path != store.load(7, kind=RESUMABLE).path


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from(CheckpointKind)), unique=True, max_size=8
    ),
    st.integers(1, 3),
)
def test_retention_keeps_the_newest_resumable_ones_and_every_milestone(
    tmp_path_factory, writes, keep
):
    root = tmp_path_factory.mktemp("store")
    store = CheckpointStore(root, keep=keep)
    kept = {WEIGHTS_ONLY: [], RESUMABLE: []}
    for step, kind in writes:
        write(store, step, kind)
        kept[kind] = sorted([*kept[kind], step])
        kept[RESUMABLE] = kept[RESUMABLE][-keep:]
        for one, steps in kept.items():
            assert store.steps(one) == steps
            assert store.latest(one) == (steps[-1] if steps else None)
        expected = {f"step-{step:08d}.{one}" for one, steps in kept.items() for step in steps}
        assert {path.name for path in root.iterdir()} == expected


def test_an_empty_store_has_no_latest_and_says_so_on_load(store):
    assert store.latest(RESUMABLE) is None
    with pytest.raises(CheckpointError, match="there are: none"):
        store.load(3)


def interrupted(store, step, interruption):
    """Write half a checkpoint, then do something that raises."""
    with store.writer(step) as directory:
        (directory / "weights.bin").write_bytes(b"half")
        interruption()


def test_a_block_that_raises_leaves_nothing_behind(store, tmp_path):
    write(store, 1)
    with pytest.raises(ZeroDivisionError):
        interrupted(store, 2, lambda: 1 / 0)
    assert store.steps(RESUMABLE) == [1]
    left = [path.name for path in (tmp_path / "checkpoints").iterdir()]
    assert left == ["step-00000001.resumable"]


def test_a_full_disk_is_named_as_the_cause_and_the_previous_checkpoint_stays(store):
    write(store, 1)
    with pytest.raises(CheckpointError, match="disk is full") as caught:
        interrupted(store, 2, lambda: Path("/dev/full").write_bytes(b"weights"))
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert store.latest(RESUMABLE) == 1
    store.load(1)


def test_a_disk_that_fills_while_the_manifest_is_written_changes_nothing(
    store, tmp_path, monkeypatch
):
    write(store, 1)
    real, written = os.fsync, []

    def full(descriptor):
        written[:] = (tmp_path / "checkpoints").glob(".writing-*/manifest.json")
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("t1_infra.manifest.os.fsync", full)
    with pytest.raises(CheckpointError, match="disk is full"):
        write(store, 2)
    assert written
    assert store.steps(RESUMABLE) == [1]
    store.load(1)


def test_everything_is_on_the_disk_before_the_checkpoint_appears(store, tmp_path, monkeypatch):
    root, real, synced = tmp_path / "checkpoints", os.fsync, []

    def recorded(descriptor):
        real(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        parts = path.relative_to(root).parts
        synced.append(("/".join(parts[1:]) if parts else "root", bool(store.steps(RESUMABLE))))

    monkeypatch.setattr("t1_infra.manifest.os.fsync", recorded)
    with store.writer(1) as directory:
        (directory / "a" / "b").mkdir(parents=True)
        (directory / "a" / "b" / "c").write_bytes(b"deep")
    before = [name for name, renamed in synced if not renamed]
    assert sorted(before) == ["", "a", "a/b", "a/b/c", "manifest.json"]
    assert before.index("a/b/c") < before.index("manifest.json") < before.index("")
    assert synced[-1] == ("root", True)


def test_another_failure_of_the_disk_is_passed_on_as_it_is(store):
    with pytest.raises(PermissionError), store.writer(1):
        raise PermissionError(errno.EACCES, "denied")


def test_a_writer_killed_half_way_leaves_the_store_as_it_was(store, tmp_path):
    write(store, 1)
    code = (
        "import os, sys, pathlib, t1_infra\n"
        "store = t1_infra.CheckpointStore(sys.argv[1])\n"
        "with store.writer(2) as directory:\n"
        "    (directory / 'weights.bin').write_bytes(b'half')\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    root = tmp_path / "checkpoints"
    killed = subprocess.run([sys.executable, "-c", code, str(root)], check=False)
    assert killed.returncode == -9
    assert len(list(root.glob(".writing-*"))) == 1
    assert store.latest(RESUMABLE) == 1
    write(store, 2)
    assert not list(root.glob(".writing-*"))
    store.load(2)


def damage_manifest(path, **changes):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


DAMAGES = {
    "no manifest.json": lambda path: (path / "manifest.json").unlink(),
    "is not JSON": lambda path: (path / "manifest.json").write_text("{"),
    "not of the format": lambda path: (path / "manifest.json").write_text('{"steps": []}'),
    "malformed": lambda path: damage_manifest(path, files=[]),
    "speaks of step 8": lambda path: damage_manifest(path, step=8),
    "weights.bin is missing": lambda path: (path / "weights.bin").unlink(),
    "extra is not in the manifest": lambda path: (path / "extra").write_bytes(b""),
    "bytes instead of": lambda path: (path / "weights.bin").write_bytes(b"short"),
    "another SHA-256": lambda path: (path / "weights.bin").write_bytes(b"weightz of 7"),
    "neither a file nor a folder": lambda path: (path / "link").symlink_to("weights.bin"),
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_a_damaged_checkpoint_is_refused_with_the_reason(store, reason):
    write(store, 7)
    path = store.load(7).path
    DAMAGES[reason](path)
    with pytest.raises(CheckpointError, match=reason) as caught:
        store.load(7)
    assert caught.value.path == path


def test_nothing_written_is_no_checkpoint(store):
    with pytest.raises(CheckpointError, match="no file"), store.writer(1):
        pass
    assert store.latest(RESUMABLE) is None


def test_the_name_of_the_manifest_is_taken(store):
    with (
        pytest.raises(CheckpointError, match="choose another name"),
        store.writer(1) as directory,
    ):
        (directory / "manifest.json").write_text("{}")


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, b"bytes"], ids=["nan", "set", "bytes"])
def test_metadata_that_is_not_json_is_refused_before_anything_is_written(store, tmp_path, value):
    entered = False
    with (
        pytest.raises(ArgumentError, match="metadata: expected JSON") as caught,
        store.writer(1, metadata={"loss": value}),
    ):
        entered = True
    assert caught.value.argument == "metadata"
    assert not entered
    assert not list((tmp_path / "checkpoints").iterdir())


def test_metadata_is_taken_as_it_is_when_the_block_begins(store):
    metadata = {"losses": [0.5]}
    with store.writer(1, metadata=metadata) as directory:
        (directory / "weights.bin").write_bytes(b"weights")
        metadata["losses"].append(float("nan"))
    assert store.load(1).metadata == {"losses": [0.5]}


def test_a_second_writer_inside_an_open_one_is_refused_and_the_first_goes_on(store):
    with store.writer(1) as directory:
        (directory / "weights.bin").write_bytes(b"weights")
        with pytest.raises(CheckpointError, match="another writer"):
            write(store, 2)
        assert directory.is_dir()
    write(store, 2)
    assert store.steps(RESUMABLE) == [1, 2]


def test_reading_while_another_writes_deletes_nothing(store, tmp_path):
    root = tmp_path / "checkpoints"
    for step in (1, 2):
        write(store, step)
    (root / ".deleting-step-00000000.resumable").mkdir()
    with store.writer(3) as directory:
        (directory / "weights.bin").write_bytes(b"weights")
        (root / ".deleting-step-00000000.resumable").mkdir()
        before = sorted(root.rglob("*"))
        reader = CheckpointStore(root, keep=1)
        assert reader.steps(RESUMABLE) == [1, 2]
        assert reader.load(reader.latest(RESUMABLE)).step == 2
        with pytest.raises(CheckpointError, match="there are: none"):
            reader.load(3, kind=WEIGHTS_ONLY)
        assert sorted(root.rglob("*")) == before
    assert reader.load(3).step == 3


def test_a_step_is_written_once(store):
    write(store, 1)
    with pytest.raises(ArgumentError, match="step"):
        write(store, 1)
    with pytest.raises(ArgumentError, match="step"):
        write(store, -1)


def test_at_least_one_checkpoint_is_kept(tmp_path):
    with pytest.raises(ArgumentError, match="keep"):
        CheckpointStore(tmp_path, keep=0)
