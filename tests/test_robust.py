"""Whatever ends a session, the run goes on from what is on disk: no task lost, none trained twice."""

import json
import os
import random
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from accounting import accounting_faults, unfinished_files
from running import SMALL, Command, WholeRun, descendants, proportional_bytes, records
from running import rollout_process as rollout_of

from t1_reward import Pool
from t1_sandbox import read_journal
from t1_trainer.config import Config
from t1_trainer.errors import RunDirectoryError
from t1_trainer.pools import ensure_pool
from t1_trainer.run_directory import RunDirectory
from t1_trainer.sample_files import load_samples, save_samples

Start = Callable[..., Command]
GIB = 1 << 30


def pool_of(run: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    monkeypatch.setenv("T1_CACHE_DIR", str(cache))
    return Pool.open(ensure_pool(RunDirectory.open(run, lock=False).config.pool))


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def final_weights(run: Path) -> dict[str, bytes]:
    newest = max((run / "checkpoints").glob("step-*.resumable"))
    return {
        str(p.relative_to(newest)): p.read_bytes() for p in sorted(newest.rglob("*.safetensors"))
    }


# what a session has to have reached before it is killed, and which process is
TRAINER, ROLLOUT = "trainer", "rollout process"
MOMENTS: tuple[tuple[str, str, Callable[[Path], bool]], ...] = (
    ("the configuration is written", TRAINER, lambda run: (run / "config.toml").exists()),
    ("the rollout process starts", TRAINER, lambda run: True),
    ("evaluating before", TRAINER, lambda run: (run / "trials/eval-before-sampled").exists()),
    ("evaluating before", ROLLOUT, lambda run: (run / "trials/eval-before-greedy").exists()),
    ("first rollout", TRAINER, lambda run: (run / "evaluations/before.json").exists()),
    ("writing the first checkpoint", TRAINER, lambda run: writing(run, 0)),
    ("training", TRAINER, lambda run: lines_in(run / "metrics.jsonl") >= 1),
    ("training", ROLLOUT, lambda run: lines_in(run / "metrics.jsonl") >= 2),
    ("writing a later checkpoint", TRAINER, lambda run: writing(run, 4)),
    ("evaluating after", TRAINER, lambda run: (run / "trials/eval-after-sampled").exists()),
)


def writing(run: Path, step: int) -> bool:
    return any((run / "checkpoints").glob(f".writing-{step:08d}.*"))


def sessions(run: Path) -> int:
    """Sessions so far; records are rewound before a session begins its log."""
    return len(list(run.glob("logs/rollout_*.log")))


def kill_at(command: Command, run: Path, moment: int, before: int, delay_s: float) -> None:
    """Kill one process of a session some time after a moment of its own doing."""
    name, victim, reached = MOMENTS[moment]
    command.poll_until(
        lambda: (moment == 0 or sessions(run) > before) and reached(run), pause_s=0.01
    )
    threading.Event().wait(0 if name.startswith("writing") else delay_s)
    command.seen |= descendants(command.process.pid)
    if victim == ROLLOUT:
        rollout = rollout_of(command.process.pid)
        assert rollout is not None
        os.kill(rollout, signal.SIGKILL)
    else:
        command.process.kill()
    code, _, err = command.finish()
    assert code == (3 if victim == ROLLOUT else -signal.SIGKILL), (name, err)
    assert "Traceback" not in err
    assert command.leaves_nothing(), f"killed while {name}"


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(1800)
def test_ten_kills_lose_no_task_and_train_none_twice(
    t1: Start, whole: WholeRun, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, source = tmp_path / "run", random.Random(int(os.environ.get("T1_KILL_SEED", "0")))
    half_written = 0
    for moment in range(len(MOMENTS)):
        before = sessions(run)
        if moment == 0:
            command = t1("train", "-q", "-o", str(run), *whole.settings)
        else:
            command = t1("resume", "-q", str(run))
        kill_at(command, run, moment, before, source.uniform(0, 0.4))
        half_written += bool(unfinished_files(run))
    code, _, err = t1("resume", "-q", str(run)).finish()
    assert code == 0, err
    assert half_written, "no kill hit a write: the moments are not what they say"

    pool = pool_of(run, cache, monkeypatch)
    assert accounting_faults(run, pool) == []
    assert unfinished_files(run) == []
    assert read_journal(run / "journal.jsonl").unfinished() == []
    assert records(run / "tasks.jsonl") == records(whole.path / "tasks.jsonl")
    assert final_weights(run) == final_weights(whole.path)


# --- the accounting is able to object ---


@pytest.fixture
def copied(whole: WholeRun, tmp_path: Path) -> Path:
    """A sound finished run to spoil."""
    return shutil.copytree(whole.path, tmp_path / "copied")


def rewrite(path: Path, lines: list[dict]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def lose_a_task(run: Path) -> str:
    lines = records(run / "tasks.jsonl")
    lost = lines[2]["admitted"].pop()
    rewrite(run / "tasks.jsonl", lines)
    return f"step 3: {lost} was lost"


def repeat_a_task(run: Path) -> str:
    lines = records(run / "tasks.jsonl")
    repeated = lines[3]["admitted"][0]
    lines[3]["cancelled"].append(repeated)
    rewrite(run / "tasks.jsonl", lines)
    return f"step 4: {repeated} has 2 fates"


def launch_a_task_of_an_earlier_step(run: Path) -> str:
    lines = records(run / "tasks.jsonl")
    again = lines[0]["cancelled"][0]
    lines[1]["cancelled"][0] = again
    rewrite(run / "tasks.jsonl", lines)
    return f"step 2: {again} was never launched"


def record_a_step_twice(run: Path) -> str:
    lines = records(run / "metrics.jsonl")
    rewrite(run / "metrics.jsonl", [*lines, lines[-1]])
    return "metrics.jsonl: steps [1, 2, 3, 4, 5, 5]"


def train_on_a_batch_of_another_step(run: Path) -> str:
    shutil.copy(run / "samples/step-00001.safetensors", run / "samples/step-00002.safetensors")
    return "step 2: trained on other trials than those admitted"


def train_on_a_trial_twice(run: Path) -> str:
    path = run / "samples/step-00004.safetensors"
    first, *others = load_samples(path)
    save_samples(path, [first, *others, first])
    return "step 4: trained on other trials than those admitted"


def train_on_a_trial_twice_in_a_row(run: Path) -> str:
    path = run / "samples/step-00004.safetensors"
    first, *others = load_samples(path)
    save_samples(path, [first, first, *others])
    return "step 4: trained on other trials than those admitted"


@pytest.mark.e2e
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "defect",
    [
        lose_a_task,
        repeat_a_task,
        launch_a_task_of_an_earlier_step,
        record_a_step_twice,
        train_on_a_batch_of_another_step,
        train_on_a_trial_twice,
        train_on_a_trial_twice_in_a_row,
    ],
    ids=lambda defect: defect.__name__,
)
def test_the_accounting_notices(
    copied: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, defect: Callable[[Path], str]
):
    pool = pool_of(copied, cache, monkeypatch)
    assert accounting_faults(copied, pool) == []
    fault = defect(copied)
    assert fault in accounting_faults(copied, pool)


@pytest.mark.e2e
def test_a_file_that_a_kill_left_half_written_is_noticed(copied: Path):
    (copied / "samples" / "step-00009.safetensors.tmp").touch()
    (copied / "checkpoints" / ".writing-00000009.resumable").mkdir()
    assert sorted(unfinished_files(copied)) == [
        "checkpoints/.writing-00000009.resumable",
        "samples/step-00009.safetensors.tmp",
    ]


# --- killed before the run is one ---


SYSTEM_CALLS = {"mkdir", "open", "flock", "write", "replace", "close"}


class Killed(BaseException):
    """Ends a process anywhere."""


def release_descriptors(folder: Path) -> None:
    """Close what is open below a directory, as the kernel does when a process dies."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and entry.readlink().is_relative_to(folder):
            os.close(int(entry.name))


def test_a_run_killed_at_any_moment_of_its_creation_is_begun_again_or_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    ends: set[str] = set()
    for calls in range(40):
        run, left = tmp_path / str(calls), [calls]

        def count(frame: object, event: str, argument: object, left: list[int] = left) -> None:
            if event == "c_call" and getattr(argument, "__name__", "") in SYSTEM_CALLS:
                left[0] -= 1
                if left[0] < 0:
                    raise Killed

        sys.setprofile(count)
        try:
            RunDirectory.create(run, Config()).close()
        except Killed:
            release_descriptors(run)
        else:
            break
        finally:
            sys.setprofile(None)
        if (run / "config.toml").exists():
            ends.add("resumed")
            RunDirectory.open(run).close()
        else:
            ends.add("begun again")
            with pytest.raises(RunDirectoryError, match="is not a run directory"):
                RunDirectory.open(run)
            RunDirectory.create(run, Config()).close()
        assert RunDirectory.open(run, lock=False).config == Config()
        assert {"samples", "checkpoints", "logs"} <= {entry.name for entry in run.iterdir()}
    assert ends == {"resumed", "begun again"}


# --- a disk that fills, and has space again ---

_DISK = r"""
mount -t tmpfs -o size=200m tmpfs "$1" || exit 9
run="$1/run"
fill() {  # leave this many KiB free as soon as there is a file that matches the pattern
    until ls -d $1 > /dev/null 2>&1; do sleep 0.02; done
    free=$(df --output=avail -k "$run" | tail -n 1)
    dd if=/dev/zero of="$run/../ballast" bs=1k count=$((free - $2)) 2> /dev/null
}
fill "$run/$2" "$3" &
t1() { "$T1_PYTHON" -c 'from t1_trainer.cli import main; main()' "$@"; echo "exit $?"; }
shift 3
t1 train -q -o "$run" "$@"
kill $! 2> /dev/null && echo "the disk was never filled"
echo "second" >&2
t1 resume -q "$run"
rm "$run/../ballast"
echo "third" >&2
t1 resume -q "$run"
cp -r "$run" "$T1_RESULT"
"""


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("pattern", "left_kib"),
    [
        pytest.param("trials/eval-before-sampled", 0, id="evaluating-before"),
        pytest.param("evaluations/before.json", 2000, id="writing-a-checkpoint"),
        pytest.param("checkpoints/step-00000000.resumable", 0, id="training"),
        pytest.param("trials/eval-after-sampled", 0, id="evaluating-after"),
    ],
)
def test_a_full_disk_says_so_and_the_run_goes_on_when_there_is_space(
    t1: Start,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pattern: str,
    left_kib: int,
):
    disk, run = tmp_path / "disk", tmp_path / "run"
    disk.mkdir()
    namespaces = ("--mount",)
    if os.geteuid() != 0:
        namespaces = ("--user", "--map-current-user", "--keep-caps", "--mount")
    command = t1(
        *("sh", "-c", _DISK, "sh", str(disk), pattern, str(left_kib), *SMALL, "--steps=2"),
        program=("unshare", *namespaces),
        T1_PYTHON=sys.executable,
        T1_RESULT=str(run),
    )
    command.poll_until(lambda: (run / "report.html").exists() or command.process.poll() is not None)
    code, out, err = command.finish(600)
    assert code == 0, err
    first, _, second = err.partition("second\n")
    second = second.partition("third\n")[0]
    assert [line for line in out.splitlines() if line.startswith("exit")] == [
        "exit 3",
        "exit 3",
        "exit 0",
    ], err
    for said in (first, second):
        assert "Traceback" not in said
        assert "disk is full" in said or os.strerror(28) in said
    assert accounting_faults(run, pool_of(run, cache, monkeypatch)) == []
    assert unfinished_files(run) == []
    evaluations = [records(run / "evaluations" / f"{name}.json")[0] for name in ("before", "after")]
    assert all(e["summary"][d]["invalid"] == 0 for e in evaluations for d in ("sampled", "greedy"))


# --- a small machine ---


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(900)
def test_the_default_sizes_fit_one_core_and_two_gibibytes(
    t1: Start, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    run, peak = tmp_path / "run", 0
    core = str(min(os.sched_getaffinity(0)))
    program = (
        "taskset",
        "-c",
        core,
        sys.executable,
        "-c",
        "from t1_trainer.cli import main; main()",
    )
    evaluation = ("--evaluation.tasks=64", "--evaluation.attempts=2", "--evaluation.no-greedy")
    command = t1("train", "-q", "-o", str(run), "--steps=3", *evaluation, program=program)

    def ended() -> bool:
        nonlocal peak
        pid = command.process.pid
        peak = max(peak, proportional_bytes({pid, *descendants(pid)}))
        return command.process.poll() is not None

    command.poll_until(ended, 800)
    code, _, err = command.finish()
    assert code == 0, err
    assert 0.5 * GIB < peak < 2 * GIB, f"{peak / GIB:.2f} GiB"
    assert accounting_faults(run, pool_of(run, cache, monkeypatch)) == []
    assert command.leaves_nothing()
