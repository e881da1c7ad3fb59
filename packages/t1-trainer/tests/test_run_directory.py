"""The run directory: whole lines only, one writer, and a full disk that says so."""

import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboardX.proto import event_pb2

from t1_trainer.config import Config
from t1_trainer.errors import RunDirectoryError, StorageError
from t1_trainer.files import json_text, write_atomically
from t1_trainer.run_directory import RunDirectory

TASKS = {"admitted": ["a"], "cancelled": [], "invalid": {}}


@pytest.fixture
def run(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", Config(seed=7))
    yield directory
    directory.close()


def record(run: RunDirectory, step: int, **metrics: float) -> None:
    run.record_step({"step": step, **metrics}, TASKS)


def steps(run: RunDirectory, name: str = "metrics.jsonl") -> list[int]:
    return [line["step"] for line in run.lines(name)]


def strictly(text: str) -> object:
    """Parse JSON as other languages do, without NaN and Infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_a_new_run_keeps_its_configuration(run):
    assert RunDirectory.open(run.path, lock=False).config == Config(seed=7)


def test_a_directory_in_use_is_not_taken(run):
    with pytest.raises(RunDirectoryError, match="already exists: continue it with `t1 resume"):
        RunDirectory.create(run.path, Config())
    assert run.config == Config(seed=7)


def test_an_empty_directory_may_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    RunDirectory.create(tmp_path / "run", Config()).close()


def test_a_directory_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunDirectoryError, match=r"is not a run directory: it has no config\.toml"):
        RunDirectory.open(tmp_path)


def test_every_step_is_one_line_and_one_event(run):
    record(run, 1, loss=0.5)
    record(run, 2, loss=0.25)
    assert [(line["step"], line["loss"]) for line in run.lines("metrics.jsonl")] == [
        (1, 0.5),
        (2, 0.25),
    ]
    assert run.lines("tasks.jsonl")[1] == {"schema_version": 1, "step": 2, **TASKS}
    assert len(list((run.path / "events").glob("events.out.tfevents*"))) == 1


def scalars(run: RunDirectory) -> list[tuple[int, str, float]]:
    """What a reader finds in the event files now, purged as TensorBoard does."""
    found: list[tuple[int, str, float]] = []
    for file in sorted((run.path / "events").iterdir()):
        data = file.read_bytes()
        while data:
            # length, its checksum, the record, its checksum
            size = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + size])
            data = data[12 + size + 4 :]
            if event.session_log.status == event_pb2.SessionLog.START:
                found = [entry for entry in found if entry[0] < event.step]
            found += [(event.step, v.tag, v.simple_value) for v in event.summary.value]
    return found


def test_all_numbers_of_a_step_are_on_disk_when_it_is_recorded(run):
    for step in (1, 2, 3):
        record(run, step, **{f"m{i}": float(i) for i in range(60)})
        assert len(scalars(run)) == 61 * step


def test_a_reader_of_a_resumed_run_sees_each_step_once(run):
    for step in (1, 2, 3):
        record(run, step, loss=float(step))
    run.close()
    again = RunDirectory.open(run.path)
    again.rewind(1, 1)
    record(again, 2, loss=20.0)
    again.close()
    seen = [(step, value) for step, name, value in scalars(run) if name == "loss"]
    assert seen == [(1, 1.0), (2, 20.0)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_become_null(run, value):
    record(run, 1, loss=value, kept=1.5)
    assert strictly((run.path / "metrics.jsonl").read_text()) == {
        "schema_version": 1,
        "step": 1,
        "loss": None,
        "kept": 1.5,
    }


def test_numbers_that_json_lacks_become_null_at_any_depth():
    value = {"a": [1.5, (math.nan,)], "b": {"c": -math.inf, "d": True}}
    assert strictly(json_text(value)) == {"a": [1.5, [None]], "b": {"c": None, "d": True}}


def test_a_nan_written_as_is_would_be_refused():
    with pytest.raises(AssertionError, match="NaN is not JSON"):
        strictly(json.dumps({"loss": math.nan}))


@settings(max_examples=10)
@given(whole=st.integers(0, 3), cut=st.integers(1, 40))
def test_a_torn_last_line_is_left_out_and_written_over(tmp_path_factory, whole, cut):
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run", Config())
    for step in range(1, whole + 2):
        record(run, step, loss=step / 3)
    path = run.path / "metrics.jsonl"
    last = len(path.read_bytes().splitlines(keepends=True)[-1])
    # the process was killed in the middle of the last line
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - min(cut, last))
    assert steps(run) == list(range(1, whole + 1))
    run.rewind(whole, whole)
    record(run, whole + 1, loss=0.0)
    assert steps(run) == list(range(1, whole + 2))
    run.close()


def test_appending_to_a_torn_line_without_rewinding_would_lose_a_step(run):
    record(run, 1)
    path = run.path / "metrics.jsonl"
    path.write_text(path.read_text()[:-3])
    record(run, 2)
    with pytest.raises(json.JSONDecodeError):
        run.lines("metrics.jsonl")


@settings(max_examples=10)
@given(st.integers(0, 5), st.integers(0, 6))
def test_rewinding_drops_exactly_the_later_steps(tmp_path_factory, done, kept):
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run", Config())
    for step in range(1, done + 1):
        record(run, step)
    run.rewind(kept, kept)
    for name in ("metrics.jsonl", "tasks.jsonl"):
        assert steps(run, name) == list(range(1, min(done, kept) + 1))
    run.close()


@given(st.integers(0, 4), st.booleans())
def test_rewinding_drops_the_trials_and_samples_of_later_batches(tmp_path_factory, kept, in_hand):
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "run", Config())
    for step in range(1, 6):
        (run.path / "trials" / f"step-{step:05d}" / "a").mkdir(parents=True)
        (run.path / "samples" / f"step-{step:05d}.safetensors").touch()
    (run.path / "trials" / "eval-before-greedy").mkdir()
    run.rewind(kept, kept + in_hand)
    run.close()
    left = range(1, kept + in_hand + 1)
    assert {p.name for p in (run.path / "trials").iterdir()} == {
        "eval-before-greedy",
        *(f"step-{step:05d}" for step in left),
    }
    assert {p.name for p in (run.path / "samples").iterdir()} == {
        f"step-{step:05d}.safetensors" for step in left
    }


# what a writer holds, without the seconds that importing one takes
HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "r+")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_run_that_another_process_writes_is_refused_until_that_process_is_gone(run):
    run.close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunDirectoryError, match="is being written by another process"):
            RunDirectory.open(run.path)
        # reading needs no lock
        assert RunDirectory.open(run.path, lock=False).config.seed == 7
        # even a killed writer leaves no lock behind
        holder.kill()
        holder.wait()
    RunDirectory.open(run.path).close()


def test_closing_gives_the_lock_back(run):
    with pytest.raises(RunDirectoryError, match="another process"):
        RunDirectory.open(run.path)
    run.close()
    RunDirectory.open(run.path).close()


def test_a_full_disk_is_a_storage_error_that_names_the_file(run):
    record(run, 1)
    (run.path / "metrics.jsonl").unlink()
    (run.path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"No space left on device: .*metrics\.jsonl"):
        record(run, 2)


def test_a_full_disk_for_events_is_a_storage_error(run, capfd):
    record(run, 1)
    large = {f"m{i}": float(i) for i in range(400)}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # enough for the line of the metrics, not for the events of the same numbers
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(StorageError, match=r"File too large: .*events"):
            record(run, 2, **large)
        run.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert capfd.readouterr() == ("", "")


def test_an_atomic_write_replaces_or_leaves_the_old(tmp_path):
    path = tmp_path / "deep" / "file.json"
    write_atomically(path, "old")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    path.with_name("file.json.tmp").symlink_to("/dev/full")
    with pytest.raises(StorageError, match=r"file\.json"):
        write_atomically(path, "newest")
    assert path.read_text() == "new"


def test_the_folders_are_those_of_the_documentation(run):
    text = (Path(__file__).parents[1] / "README.md").read_text()
    for path in run.path.iterdir():
        name = f"{path.name}/" if path.is_dir() else path.name
        assert name in text, f"README does not explain {name}"
