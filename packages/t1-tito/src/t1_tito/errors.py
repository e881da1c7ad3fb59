"""The errors of the package, each also the built-in exception it refines.

TitoError
├── TurnError      (ValueError)      a turn's own fields are malformed
├── VersionError   (ValueError)      a turn spans two weight versions
├── PayloadError   (LookupError)     a per-token payload has no row for a position
└── FidelityError  (AssertionError)  an assembled trial breaks an invariant
"""


class TitoError(Exception):
    """Base of every error raised by this package."""


class TurnError(TitoError, ValueError):
    """A turn was built from malformed fields; raised by `Turn` and `assemble`.

    Attributes:
        field: name of the offending field.
        position: index inside that field, or None where the whole field is wrong.
    """

    def __init__(self, field: str, position: int | None, problem: str) -> None:
        super().__init__(field, position, problem)
        self.field = field
        self.position = position
        self.problem = problem

    def __str__(self) -> str:
        """Name the field and position before the problem."""
        where = self.field if self.position is None else f"{self.field}[{self.position}]"
        return f"{where}: {self.problem}"


class VersionError(TitoError, ValueError):
    """A turn was sent to one weight version and answered by another; raised by `assemble`.

    Attributes:
        turn: index of the turn.
        version_sent: weight version when the request was sent.
        version_received: weight version when the answer arrived.
    """

    def __init__(self, turn: int, version_sent: int, version_received: int) -> None:
        super().__init__(turn, version_sent, version_received)
        self.turn = turn
        self.version_sent = version_sent
        self.version_received = version_received

    def __str__(self) -> str:
        """Name the turn and both versions."""
        return (
            f"turn {self.turn}: sent at weight version {self.version_sent}, answered at "
            f"{self.version_received}; one request must see one version, sample it again"
        )


class PayloadError(TitoError, LookupError):
    """A per-token payload does not cover a position of a chunk; raised by `gather`.

    Attributes:
        turn: index of the turn whose payload is short or unlike the others.
        position: position in the chunk, or None where the payload as a whole is wrong.
    """

    def __init__(self, turn: int, position: int | None, problem: str) -> None:
        super().__init__(turn, position, problem)
        self.turn = turn
        self.position = position
        self.problem = problem

    def __str__(self) -> str:
        """Name the turn and position before the problem."""
        where = "" if self.position is None else f", chunk position {self.position}"
        return f"payload of turn {self.turn}{where}: {self.problem}"


class FidelityError(TitoError, AssertionError):
    """An assembled trial breaks an invariant; raised by `check_trial`.

    Attributes:
        invariant: name of the invariant, as listed in `t1_tito.fidelity`.
        chunk: index of the chunk, or None where the trial as a whole is wrong.
        position: first offending position of that chunk, or None where no single one is.
    """

    def __init__(
        self, invariant: str, chunk: int | None, position: int | None, problem: str
    ) -> None:
        super().__init__(invariant, chunk, position, problem)
        self.invariant = invariant
        self.chunk = chunk
        self.position = position
        self.problem = problem

    def __str__(self) -> str:
        """Name the invariant, chunk and position before the problem."""
        where = "" if self.chunk is None else f" in chunk {self.chunk}"
        if self.position is not None:
            where += f" at position {self.position}"
        return f"{self.invariant} broken{where}: {self.problem}"
