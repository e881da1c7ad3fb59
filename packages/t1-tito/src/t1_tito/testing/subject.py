"""The subject of a conformance run: whatever turns a trial's turns into training samples.

    subject(turns, token_bytes?) -> samples

It is given the turns as plain dicts with the fields of `Turn`, and the byte table if it has a
parameter of that name. It returns samples (see `t1_tito.testing.samples`) or a `Trial`.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from t1_tito.assembler import assemble
from t1_tito.errors import FidelityError, FileFormatError
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Trial
from t1_tito.turn import Turn

from .cases import Case
from .engine_faults import reply_of
from .samples import Sample, read_samples

OWN_ASSEMBLER = "t1_tito.testing.subject:own_assembler"
"""Where this package's assembler is found as a subject."""


def own_assembler(turns: Sequence[dict[str, Any]], token_bytes: TokenBytes) -> Trial:
    """This package's assembler as a subject."""
    return assemble([Turn(**turn) for turn in turns], token_bytes)


def load_subject(name: str) -> Callable[..., object]:
    """Import a subject.

    Args:
        name: "package.module:callable", found on the import path or below the working directory.

    Raises:
        FileFormatError: there is no such module or callable.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise FileFormatError(f"expected package.module:callable, got {name!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        advice = "run it from the folder that holds the module, or install what it is part of"
        raise FileFormatError(f"{name}: {error}: {advice}") from error
    except (ImportError, AttributeError) as error:
        raise FileFormatError(f"{name}: {error}") from error
    if not callable(found):
        raise FileFormatError(f"{name}: is {type(found).__name__}, expected a callable")
    return found


class Subject:
    """A subject that can be asked for samples."""

    def __init__(self, call: Callable[..., object]) -> None:
        self._call = call
        self._takes_bytes = "token_bytes" in inspect.signature(call).parameters

    def returned(self, turns: Sequence[Turn], case: Case) -> object:
        """What the subject returns for turns of a case."""
        replies = [reply_of(turn) for turn in turns]
        if self._takes_bytes:
            return self._call(replies, token_bytes=case.token_bytes)
        return self._call(replies)

    def samples(self, case: Case, turns: Sequence[Turn] | None = None) -> list[Sample]:
        """The samples for a case, or for other turns with its byte table.

        Raises:
            FidelityError: "shape"; what was returned are no samples.
        """
        return read_samples(self.returned(case.turns if turns is None else turns, case))

    def trial(self, case: Case) -> Trial:
        """The `Trial` for a case.

        Raises:
            FidelityError: "shape"; something else was returned.
        """
        returned = self.returned(case.turns, case)
        if not isinstance(returned, Trial):
            raise FidelityError("shape", None, None, "a Trial was returned for other turns only")
        return returned
