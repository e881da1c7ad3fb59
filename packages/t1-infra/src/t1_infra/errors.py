"""The errors of the package, each also the built-in exception it refines.

InfraError
├── ArgumentError    (ValueError)    a call's own arguments contradict each other
├── CheckpointError  (RuntimeError)  a checkpoint could not be written, or may not be read
└── PublishError     (RuntimeError)  a publication did not reach every replica
"""

from pathlib import Path


class InfraError(Exception):
    """Base of every error raised by this package."""


class ArgumentError(InfraError, ValueError):
    """Arguments are out of range or contradict each other; nothing was started.

    Attributes:
        argument: name of the offending argument.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(argument, problem)
        self.argument = argument
        self.problem = problem

    def __str__(self) -> str:
        """Name the argument before the problem."""
        return f"{self.argument}: {self.problem}"


class CheckpointError(InfraError, RuntimeError):
    """A checkpoint could not be written, or what is there is not a whole checkpoint.

    Attributes:
        path: the checkpoint's directory.
    """

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(path, problem)
        self.path = path
        self.problem = problem

    def __str__(self) -> str:
        """Name the directory before the problem."""
        return f"{self.path}: {self.problem}"


class PublishError(InfraError, RuntimeError):
    """A publication failed on a replica; every replica is in exactly one of the two lists.

    Attributes:
        replica: name of the first replica that failed.
        phase: the phase it failed in.
        problem: what happened there.
        version: the version asked for.
        committed: whether the replicas in `serving` are at `version`, or at their old one.
        serving: replicas that admit requests again.
        fenced: replicas in an unknown state; send them nothing until they are rebuilt.
    """

    def __init__(
        self,
        replica: str,
        phase: str,
        problem: str,
        version: int,
        committed: bool,
        serving: tuple[str, ...],
        fenced: tuple[str, ...],
    ) -> None:
        super().__init__(replica, phase, problem, version, committed, serving, fenced)
        self.replica = replica
        self.phase = phase
        self.problem = problem
        self.version = version
        self.committed = committed
        self.serving = serving
        self.fenced = fenced

    def __str__(self) -> str:
        """Name replica and phase, then what the other replicas do now."""
        at = f"at version {self.version}" if self.committed else "at their old version"
        return (
            f"publishing version {self.version}: {self.replica} failed in {self.phase}: "
            f"{self.problem}; serving {at}: {', '.join(self.serving) or 'none'}; "
            f"fenced: {', '.join(self.fenced) or 'none'}"
        )
