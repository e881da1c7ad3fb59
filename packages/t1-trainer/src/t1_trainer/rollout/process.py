"""Entry of the rollout process: `python -m t1_trainer.rollout.process FD PARENT_PID`.

Before anything that takes time is imported, the kernel is told to end this process with its parent;
its sandboxes end with it. Interrupts are the parent's business.
"""

import ctypes
import os
import signal
import sys

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then serve on the given descriptor."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    if os.getppid() != parent:
        # it died before the kernel could be told
        return
    from t1_trainer.rollout.worker import serve  # noqa: PLC0415 (imports torch)

    serve(descriptor)


if __name__ == "__main__":
    main()
