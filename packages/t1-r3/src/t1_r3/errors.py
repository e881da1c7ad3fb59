"""The errors of the package, each also the built-in exception it refines.

R3Error
├── RoutingError       (ValueError)      a record or its offsets are malformed
├── MissingRouting     (LookupError)     a position has no row and may not borrow one
├── ReplayMismatch     (AssertionError)  a forward pass used other experts than recorded
└── MissingExtraError  (ImportError)     an optional dependency is not installed
"""


class R3Error(Exception):
    """Base of every error raised by this package."""


class RoutingError(R3Error, ValueError):
    """A routing record, or the arrays that place it, are malformed.

    Attributes:
        turn: index of the turn whose record it is, or None where that is not known.
        row: row inside the record, or None where no single one is wrong.
        layer: global number of the layer, or None where no single one is wrong.
    """

    def __init__(
        self,
        problem: str,
        *,
        turn: int | None = None,
        row: int | None = None,
        layer: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.turn = turn
        self.row = row
        self.layer = layer

    def __str__(self) -> str:
        """Name turn, row and layer before the problem."""
        place = {"turn": self.turn, "row": self.row, "layer": self.layer}
        known = ", ".join(f"{name} {value}" for name, value in place.items() if value is not None)
        return f"{known}: {self.problem}" if known else self.problem


class MissingRouting(R3Error, LookupError):
    """A position of the stitched stream has no routing row and may not borrow one.

    Attributes:
        position: position in the stream, 0-based.
        turn: index of the turn that should have captured the row.
    """

    def __init__(self, position: int, turn: int, cause: str) -> None:
        super().__init__(position, turn, cause)
        self.position = position
        self.turn = turn
        self.cause = cause

    def __str__(self) -> str:
        """Name position and turn before the cause."""
        return f"no routing row for position {self.position} (turn {self.turn}): {self.cause}"


class ReplayMismatch(R3Error, AssertionError):
    """A forward pass did not use the recorded experts.

    Attributes:
        position: first row that differs.
        layer_index: first differing layer of that row, as an index into `moe_layers`.
    """

    def __init__(self, position: int, layer_index: int, problem: str) -> None:
        super().__init__(position, layer_index, problem)
        self.position = position
        self.layer_index = layer_index
        self.problem = problem

    def __str__(self) -> str:
        """Name position and layer before the problem."""
        return f"position {self.position}, layer index {self.layer_index}: {self.problem}"


class MissingExtraError(R3Error, ImportError):
    """An optional dependency is needed and not installed.

    Attributes:
        extra: name of the extra that brings it.
    """

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(extra, module)
        self.extra = extra
        self.module = module

    def __str__(self) -> str:
        """Say how to install what is missing."""
        return f"{self.module} is not installed; run: pip install 't1-r3[{self.extra}]'"
