import errno
import json
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
    store = CheckpointStore(tmp_path_factory.mktemp("store"), keep=keep)
    kept = {WEIGHTS_ONLY: [], RESUMABLE: []}
    for step, kind in writes:
        write(store, step, kind)
        kept[kind] = sorted([*kept[kind], step])
        kept[RESUMABLE] = kept[RESUMABLE][-keep:]
        for one, steps in kept.items():
            assert store.steps(one) == steps
            assert store.latest(one) == (steps[-1] if steps else None)


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


def test_a_disk_that_fills_while_the_manifest_is_written_changes_nothing(store, monkeypatch):
    write(store, 1)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("t1_infra.manifest.os.fsync", full)
    with pytest.raises(CheckpointError, match="disk is full"):
        write(store, 2)
    assert store.steps(RESUMABLE) == [1]
    store.load(1)


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


def test_metadata_that_is_not_json_is_refused_and_nothing_is_stored(store):
    with pytest.raises(ValueError, match="JSON"):
        write(store, 1, loss=float("nan"))
    assert store.latest(RESUMABLE) is None


def test_a_step_is_written_once(store):
    write(store, 1)
    with pytest.raises(ArgumentError, match="step"):
        write(store, 1)
    with pytest.raises(ArgumentError, match="step"):
        write(store, -1)


def test_at_least_one_checkpoint_is_kept(tmp_path):
    with pytest.raises(ArgumentError, match="keep"):
        CheckpointStore(tmp_path, keep=0)
