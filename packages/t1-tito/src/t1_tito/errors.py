"""The errors of the package, each also the built-in exception it refines.

TitoError
├── TurnError         (ValueError)      a turn's own fields are malformed
├── VersionError      (ValueError)      a turn spans two weight versions
├── PayloadError      (LookupError)     a per-token payload has no row for a position
├── FidelityError     (AssertionError)  an assembled trial breaks an invariant
├── ByteTableError    (ValueError)      the bytes behind token ids are not known
├── SeamError         (ValueError)      new text cannot be appended with exact ids
├── TemplateError     (ValueError)      a chat template is not what was proven or pinned
├── AdapterError      (ValueError)      another framework's record contradicts itself
├── FileFormatError   (ValueError)      a file of trials or cases cannot be read
└── MissingExtraError (ImportError)     an optional dependency is not installed
"""


class TitoError(Exception):
    """Base of every error raised by this package."""


class TurnError(TitoError, ValueError):
    """A turn was built from malformed fields; raised by `Turn` and `Assembler.add`.

    Attributes:
        field: name of the offending field.
        position: index inside that field, or None where the whole field is wrong.
        problem: what is wrong, and what to do.
        turn: index of the turn in its trial, where that is known.
    """

    def __init__(
        self, field: str, position: int | None, problem: str, turn: int | None = None
    ) -> None:
        super().__init__(field, position, problem, turn)
        self.field = field
        self.position = position
        self.problem = problem
        self.turn = turn

    def __str__(self) -> str:
        """Name the turn, field and position before the problem."""
        where = self.field if self.position is None else f"{self.field}[{self.position}]"
        if self.turn is not None:
            where = f"turn {self.turn}, {where}"
        return f"{where}: {self.problem}"


class VersionError(TitoError, ValueError):
    """A turn was sent to one weight version and answered by another; raised by `Assembler.add`.

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
    """An assembled trial breaks an invariant; raised by the audit and by `t1_tito.testing`.

    Attributes:
        invariant: name of the invariant.
        chunk: index of the chunk, or None where the trial as a whole is wrong.
        position: first offending position of that chunk, or None where no single one is.
        problem: what is wrong there.
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


class ByteTableError(TitoError, ValueError):
    """The bytes behind token ids are not known; raised where a `TokenBytes` is built or asked."""


class SeamError(TitoError, ValueError):
    """New text cannot be appended to stored ids with a proof that the ids are exact."""


class TemplateError(TitoError, ValueError):
    """A chat template lacks a property it is used for, or differs from its pin."""


class AdapterError(TitoError, ValueError):
    """A record of another framework lacks a field or contradicts itself; raised by adapters.

    Attributes:
        where: which record, as the message names it; None where there is only one.
        field: name of the offending field, None where several disagree.
        position: index inside that field, None where the whole field is wrong.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        field: str | None = None,
        position: int | None = None,
    ) -> None:
        super().__init__(message)
        self.where = where
        self.field = field
        self.position = position


class FileFormatError(TitoError, ValueError):
    """A file of trials or of a saved case cannot be read; the message names line and field."""


class MissingExtraError(TitoError, ImportError):
    """An optional dependency is not installed; the message names the extra."""
