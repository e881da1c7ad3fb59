"""Everything this package raises on purpose.

    SandboxError
    ├── IsolationUnavailable   (RuntimeError)      the host cannot isolate; nothing was run
    ├── SpecError              (ValueError)        an argument is out of bounds or malformed
    ├── CreateError            (RuntimeError)      one sandbox could not be created
    ├── SandboxLost            (ConnectionError)   the sandbox or its owner process has ended
    ├── SandboxSealed          (RuntimeError)      the agent's sandbox was used after its seal
    ├── SealError              (RuntimeError)      a seal could not be completed
    ├── TransferError          (OSError)           a file or tree could not be copied in or out
    ├── ReclaimError           (RuntimeError)      sandboxes that could not be deleted
    ├── DeadlineExceeded       (TimeoutError)      a named layer ran out of time
    └── JournalError           (ValueError)        a journal record other than a torn last one is bad

A failed command is not an error: it is an `ExecResult`.
"""


class SandboxError(Exception):
    """Base of all errors of this package."""


class IsolationUnavailable(SandboxError, RuntimeError):
    """Raised when entering `LocalProvider` on a host that cannot isolate commands."""


class SpecError(SandboxError, ValueError):
    """Raised before anything is created when an argument is out of bounds or malformed."""


class CreateError(SandboxError, RuntimeError):
    """Raised by `create` when the host refused this sandbox; nothing of it is left."""


class SandboxLost(SandboxError, ConnectionError):
    """Raised by file operations, `seal` and `create` when the other side has ended."""


class SandboxSealed(SandboxError, RuntimeError):
    """Raised when the agent's sandbox is used after `seal`."""


class SealError(SandboxError, RuntimeError):
    """Raised by `seal` when a tree could not be mounted; the trial must be deleted."""


class TransferError(SandboxError, OSError):
    """Raised by `put_tree`, `put_file` and `get_file`; `errno` is that of the refused call."""


class ReclaimError(SandboxError, RuntimeError):
    """Raised by `AdmissionController.drain` when deletions were given up; names the keys."""


class DeadlineExceeded(SandboxError, TimeoutError):
    """Raised when a layer of `Deadlines` runs out of time.

    Attributes:
        layer: Which one: agent, verifier or control.
        limit_s: Its limit in seconds.
    """

    def __init__(self, layer: str, limit_s: float) -> None:
        super().__init__(layer, limit_s)
        self.layer = layer
        self.limit_s = limit_s

    def __str__(self) -> str:
        """Returns the message."""
        return f"layer {self.layer!r} exceeded its deadline of {self.limit_s:g} s"


class JournalError(SandboxError, ValueError):
    """Raised on reading a journal in which a complete line is not a record."""
