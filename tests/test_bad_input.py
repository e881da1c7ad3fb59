"""Bad input and bad luck: one clear message, the documented exit code, nothing lost."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from running import SMALL, Command

from t1_reward import Pool

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
Start = Callable[..., Command]


def fails(command: Command) -> tuple[int, str]:
    """Exit code and message of a command that must fail without a traceback."""
    code, out, err = command.finish()
    assert code != 0, out
    assert "Traceback" not in err
    return code, err


def test_a_broken_configuration_names_file_key_and_nearest_name(t1: Start, tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text("[rollout]\nbatch_sise = 3\n")
    code, err = fails(t1("train", "-c", str(file), "-o", str(tmp_path / "run")))
    assert code == 2
    assert f"{file}: unknown key 'rollout.batch_sise'; did you mean 'batch_size'?" in err
    assert not (tmp_path / "run").exists()


def test_a_wrong_value_names_key_and_what_was_given(t1: Start, tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text("steps = -1\n")
    code, err = fails(t1("train", "-c", str(file)))
    assert code == 2
    assert "steps = -1" in err


def test_without_bubblewrap_nothing_runs_unisolated(t1: Start, tmp_path: Path):
    missing = str(tmp_path / "no-bwrap")
    code, err = fails(t1("train", "-q", "-o", str(tmp_path / "run"), *SMALL, T1_BWRAP=missing))
    assert code == 3
    assert missing in err
    assert "bubblewrap" in err


def test_a_task_without_tests_is_named(t1: Start, tmp_path: Path):
    pool = tmp_path / "pool"
    Pool.build(pool, {"train": 12, "heldout": 4}, 0)
    broken = next((pool / "tasks").glob("heldout-*"))
    (broken / "tests" / "test.sh").unlink()
    run = tmp_path / "run"
    command = t1("train", "-q", "-o", str(run), *SMALL, f"--pool.path={pool}")
    code, err = fails(command)
    assert code == 3
    assert f"{broken}/tests/test.sh" in err
    assert command.leaves_nothing()


def test_a_full_disk_is_one_clear_error_and_the_checkpoint_stays(t1: Start, tmp_path: Path):
    if shutil.which("unshare") is None:
        pytest.fail("util-linux's unshare is needed to mount a small disk")
    small = tmp_path / "disk"
    small.mkdir()
    start = (
        f"mount -t tmpfs -o size=60m tmpfs {small} && "
        f"exec {sys.executable} -c 'from t1_trainer.cli import main; main()' train -q "
        f"-o {small}/run {' '.join(SMALL)} --steps=40 --checkpoint.every-steps=1; "
    )
    load = (
        "import sys; from t1_infra import CheckpointKind, CheckpointStore; "
        "store = CheckpointStore(sys.argv[1]); "
        "print('intact:', store.load(store.latest(CheckpointKind.RESUMABLE)).step)"
    )
    show = f'code=$?; {sys.executable} -c "{load}" {small}/run/checkpoints; exit $code'
    namespaces = ("--mount",)
    if os.geteuid() != 0:
        namespaces = ("--user", "--map-current-user", "--keep-caps", "--mount")
    command = t1(program=("unshare", *namespaces, "sh", "-c", f"({start}); {show}"))
    code, out, err = command.finish()
    assert code == 3, err
    assert "Traceback" not in err
    assert "disk is full" in err or os.strerror(28) in err
    assert "intact: " in out, "an earlier checkpoint loads, and its hashes hold"
