"""CPU seconds of descendants."""

import os
import subprocess
import sys

from t1_trainer.rollout.cpu import descendants_cpu_seconds

BURN = "import time\nwhile time.process_time() < {}: pass"
NESTED = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]]); {}"


def test_it_counts_children_that_were_waited_for():
    before = descendants_cpu_seconds()
    subprocess.run([sys.executable, "-c", BURN.format(0.3)], check=True)
    assert descendants_cpu_seconds() - before > 0.25


def test_it_counts_what_a_living_child_has_reaped():
    before = descendants_cpu_seconds()
    script = NESTED.format("print('done', flush=True); sys.stdin.read()")
    command = [sys.executable, "-c", script, BURN.format(0.3)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"done\n"
        assert descendants_cpu_seconds() - before > 0.25
        child.stdin.close()


def test_its_own_time_is_not_counted():
    before = descendants_cpu_seconds()
    start = sum(os.times()[:2])
    while sum(os.times()[:2]) - start < 0.3:
        pass
    assert descendants_cpu_seconds() - before < 0.2
