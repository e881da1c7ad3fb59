"""Cases: the turns on which something failed, as one JSON file that runs again.

    {"schema_version": 1, "invariant": "emit", "subject": "pkg:callable",
     "turns": [..fields of Turn..], "stop_ids": [..],
     "vocabulary": {"pieces": {"97": "61"}, "special": {"300": "<s>"}},
     "failure": {"chunk": 0, "position": 3, "problem": ".."}, "scenario": {..}}

Of the vocabulary only the ids that occur in the turns are kept, their bytes in hexadecimal.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t1_tito.errors import FidelityError, FileFormatError
from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import Turn

from .engine_faults import reply_of

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Case:
    """What a subject is given, and what is known about it.

    Attributes:
        turns: the turns.
        token_bytes: the bytes behind every id of them.
        stop_ids: ids that end a turn.
        clean: for a case of drift, the same turns with every id replayed; else empty.
        drift: index of the first turn whose prompt spells history otherwise; 0 for none.
    """

    turns: Sequence[Turn]
    token_bytes: TokenBytes
    stop_ids: frozenset[int] = frozenset()
    clean: Sequence[Turn] = ()
    drift: int = 0

    def __repr__(self) -> str:
        """The turns as Hypothesis and reports print a case: a line of ids, and one of their text."""
        lines = ["Case"]
        for i, turn in enumerate(self.turns):
            prompt, completion = turn.prompt_ids.tolist(), turn.completion_ids.tolist()
            text = self.token_bytes.text
            lines += [
                f"  {i}: {turn.base_length} kept ‖ {prompt} -> {completion} {turn.finish_reason}",
                f"     {text(prompt)!r} -> {text(completion)!r}",
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Failure:
    """How a subject broke an invariant.

    Attributes:
        invariant: its name.
        chunk: index of the sample, or None.
        position: position in it, or None.
        problem: what is wrong.
        case: the smallest case that was found.
    """

    invariant: str
    chunk: int | None
    position: int | None
    problem: str
    case: Case = field(repr=False)

    @classmethod
    def of(cls, invariant: str, error: Exception, case: Case) -> "Failure":
        """The failure that an exception tells of; any but `FidelityError` is the subject's own."""
        if isinstance(error, FidelityError):
            return cls(invariant, error.chunk, error.position, error.problem, case)
        return cls(
            invariant, None, None, f"the subject raised {type(error).__name__}: {error}", case
        )

    def __str__(self) -> str:
        """The invariant, the place and the problem."""
        return str(FidelityError(self.invariant, self.chunk, self.position, self.problem))

    def to_json(self, subject: str) -> dict[str, Any]:
        """The case and its failure; `Case` file format.

        Args:
            subject: where the subject is found, as "pkg:callable".
        """
        case = self.case
        return {
            "schema_version": SCHEMA_VERSION,
            "invariant": self.invariant,
            "subject": subject,
            "turns": [reply_of(turn) for turn in case.turns],
            "clean": [reply_of(turn) for turn in case.clean],
            "drift": case.drift,
            "stop_ids": sorted(case.stop_ids),
            "vocabulary": _vocabulary(case),
            "failure": {
                "chunk": self.chunk,
                "position": self.position,
                "problem": self.problem,
            },
        }


def _vocabulary(case: Case) -> dict[str, Any]:
    table = case.token_bytes
    turns = (*case.turns, *case.clean)
    used = {int(i) for turn in turns for ids in (turn.prompt_ids, turn.completion_ids) for i in ids}
    used |= case.stop_ids
    special = {i: table.special_text[i] for i in sorted(used) if i in table.special_text}
    pieces = {i: table.bytes_of([i]).hex() for i in sorted(used) if i not in special}
    return {"pieces": pieces, "special": special}


def read_case(path: Path) -> tuple[dict[str, Any], Case]:
    """Read a case file.

    Returns:
        The file's content, and the case in it.

    Raises:
        FileFormatError: it cannot be read or is no case; names the field.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA_VERSION:
        raise FileFormatError(f"{path}: expected a case with schema_version {SCHEMA_VERSION}")
    try:
        return content, _case(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise FileFormatError(f"{path}: {problem}") from error


def _case(content: Mapping[str, Any]) -> Case:
    if not isinstance(content["invariant"], str) or not isinstance(content["subject"], str):
        raise TypeError("invariant and subject should be strings")
    vocabulary = content["vocabulary"]
    spelled = {int(i): bytes.fromhex(piece) for i, piece in vocabulary["pieces"].items()}
    special = {int(i): str(text) for i, text in vocabulary["special"].items()}
    size = max([*spelled, *special, -1]) + 1
    pieces = [spelled.get(i) for i in range(size)]
    return Case(
        turns=[Turn(**fields) for fields in content["turns"]],
        token_bytes=TokenBytes.from_tokens(pieces, special),
        stop_ids=frozenset(content["stop_ids"]),
        clean=[Turn(**fields) for fields in content["clean"]],
        drift=int(content["drift"]),
    )


def write_case(folder: Path, failure: Failure, subject: str) -> Path:
    """Write a failure's case; its name says the invariant.

    Raises:
        FileFormatError: the file cannot be written.
    """
    path = folder / f"{failure.invariant}.json"
    text = json.dumps(failure.to_json(subject), ensure_ascii=False, indent=1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error
    return path
