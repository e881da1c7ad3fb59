"""What a template check found, as a table for people and as values for programs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class TemplateProperty(StrEnum):
    """A property that exact token histories rest on."""

    CLOSED_PREFIX = "closed prefix"
    """Appending messages leaves the rendering of those before as it was."""
    GENERATION_PREFIX = "generation-prompt prefix"
    """History holds an answer behind the very opener that its generation prompt ended in."""
    SUFFIX_LOCALITY = "suffix locality"
    """What is rendered behind an assistant turn does not depend on the history before it."""
    SINGLE_BOS = "single BOS"
    """The token that opens a text stands at position 0 or nowhere."""


class Outcome(StrEnum):
    """Result of one cell."""

    PASS = "pass"  # noqa: S105
    """Held on every probe."""
    FAIL = "FAIL"
    """Broken on at least one probe; the first is described."""
    REFUSED = "refused"
    """The template does not render such messages."""


@dataclass(frozen=True)
class Cell:
    """One property, tried in one setting.

    Attributes:
        property: what was tried.
        group: roles of the appended messages, joined by "+".
        level: "text" or "ids".
        reasoning: whether assistant messages carry reasoning; None where that was not varied.
        tools: whether the template was given tool schemas.
        outcome: what came of it.
        position: first character or id where the renderings differ, of a FAIL.
        detail: both renderings around it, or the template's refusal.
    """

    property: TemplateProperty
    group: str
    level: str
    reasoning: bool | None
    tools: bool
    outcome: Outcome
    position: int | None
    detail: str


_ALWAYS_TRIED = (
    TemplateProperty.CLOSED_PREFIX,
    TemplateProperty.GENERATION_PREFIX,
    TemplateProperty.SUFFIX_LOCALITY,
)


@dataclass(frozen=True)
class TemplateReport:
    """All cells of a check.

    Attributes:
        template_arguments: what the template was given besides messages and tools.
        cells: in the order tried.
        restored_by: for each property that fails, the template arguments, of those tried, that make
            all its failing cells pass.
    """

    template_arguments: Mapping[str, Any]
    cells: tuple[Cell, ...]
    restored_by: Mapping[TemplateProperty, tuple[Mapping[str, Any], ...]]

    @property
    def failures(self) -> tuple[Cell, ...]:
        """The cells that fail; refusals are none, see `proven`."""
        return tuple(cell for cell in self.cells if cell.outcome is Outcome.FAIL)

    @property
    def proven(self) -> bool:
        """Whether every property was seen to hold and never to fail.

        Where the tokenizer has no token that opens a text, a single BOS is not asked for.
        """
        return not self.failures and not self.unseen

    @property
    def unseen(self) -> tuple[TemplateProperty, ...]:
        """The properties that neither held nor failed anywhere: the template refused every probe."""
        outcomes: dict[TemplateProperty, set[Outcome]] = {kind: set() for kind in _ALWAYS_TRIED}
        for cell in self.cells:
            outcomes.setdefault(cell.property, set()).add(cell.outcome)
        return tuple(kind for kind, seen in outcomes.items() if seen <= {Outcome.REFUSED})

    def holds(self, wanted: TemplateProperty) -> bool:
        """Whether the property was seen to hold and never to fail."""
        outcomes = {cell.outcome for cell in self.cells if cell.property is wanted}
        return Outcome.PASS in outcomes and Outcome.FAIL not in outcomes

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        settings = [(False, False), (True, False), (False, True), (True, True)]
        heads = [
            f"{'reasoning' if reasoning else 'plain'}{', tools' if tools else ''}"
            for reasoning, tools in settings
        ]
        yield f"template arguments: {dict(self.template_arguments) or 'none'}"
        yield f"{'property':<26}{'appended':<16}{'level':<7}" + "".join(f"{h:<18}" for h in heads)
        order = list(TemplateProperty)
        ordered = sorted(self.cells, key=lambda cell: order.index(cell.property))
        rows = dict.fromkeys((cell.property, cell.group, cell.level) for cell in ordered)
        for row in rows:
            found = {
                (cell.reasoning, cell.tools): cell.outcome
                for cell in self.cells
                if (cell.property, cell.group, cell.level) == row
            }
            shown = [
                found.get((reasoning, tools)) or found.get((None, tools)) or "-"
                for reasoning, tools in settings
            ]
            yield (
                f"{row[0]:<26}{row[1]:<16}{row[2]:<7}" + "".join(f"{s:<18}" for s in shown)
            ).rstrip()
        in_text = {_setting(cell) for cell in self.failures if cell.level == "text"}
        for cell in self.failures:
            # ids differ wherever text does, and text is easier to read
            if cell.level == "ids" and _setting(cell) in in_text:
                continue
            kind = {True: ", reasoning", False: ", plain", None: ""}[cell.reasoning]
            tools = ", tools" if cell.tools else ""
            yield f"{cell.property}, {cell.group}, {cell.level}{kind}{tools}: {cell.detail}"
        yield from self._refusals()
        for kind in self.unseen:
            yield f"{kind} is not shown: the template refused every probe"
        for broken, arguments in self.restored_by.items():
            found_text = " or ".join(str(dict(given)) for given in arguments)
            yield f"{broken} is restored by: {found_text or 'no template argument that was tried'}"

    def _refusals(self) -> Iterator[str]:
        """Each reason once, with the groups that it was given for."""
        groups: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            if cell.outcome is Outcome.REFUSED:
                groups.setdefault(cell.detail, {})[cell.group] = None
        for reason, refused in groups.items():
            yield f"refused ({', '.join(refused)}): {reason}"


def _setting(cell: Cell) -> tuple[object, ...]:
    return cell.property, cell.group, cell.reasoning, cell.tools
