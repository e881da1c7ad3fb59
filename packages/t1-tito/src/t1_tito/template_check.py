"""Template checks: does a chat template keep what it has rendered?

For messages m and their first k, m[:k], a whole turn or group at a time:

    closed prefix             render(m[:k])         is a prefix of  render(m[:k+1])
    generation-prompt prefix  render(m[:k], opener) is a prefix of  render(m[:k] + answer)
    suffix locality           what follows an answer is the same behind every history
    single BOS                the opening token stands at position 0 or nowhere

A harness that renders whole histories needs the first two: where they fail, each turn's prompt
rewrites the ones before. A session needs the third only. All are tried on made-up conversations, as
text and as ids, per role of the appended messages, with and without reasoning and tools: a pass is
evidence, a failure is proof.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .chat_tokenizer import ChatTemplate, ChatTokenizer, Message
from .errors import TemplateError
from .suffix_locality import lost_message, suffixes_behind_histories
from .template_arguments import candidate_arguments
from .template_probes import TOOLS, Group, common_length, conversation, system, user
from .template_report import Cell, Outcome, TemplateProperty, TemplateReport

DEFAULT_GROUPS: tuple[Group, ...] = (
    ("user",),
    ("tool",),
    ("tool", "tool"),
    ("tool", "user"),
    ("system",),
)
"""Groups that are tried where none are named."""

_ENCODINGS = ("conversation", "default encode")

_Pair = tuple[str, str]
_Encode = Callable[[str], list[int]]


@dataclass(frozen=True)
class _Probe:
    """Two renderings, the first of which should begin the second, and whose cells they belong to."""

    property: TemplateProperty
    group: str
    reasoning: bool
    shorter: str
    longer: str


def check_template(
    tokenizer: ChatTokenizer,
    *,
    tools: Sequence[Mapping[str, Any]] = TOOLS,
    groups: Sequence[Group] = DEFAULT_GROUPS,
    template_arguments: Mapping[str, Any] | None = None,
) -> TemplateReport:
    """Try every property of a tokenizer's chat template.

    Args:
        tokenizer: the chat tokenizer.
        tools: tool schemas for the settings with tools; those call a tool named "run".
        groups: what may be appended between two assistant turns.
        template_arguments: as in use.

    Returns:
        The report. For properties that fail, it is tried which template arguments restore them:
        known ones, and what the template itself asks for (where jinja2 is installed).
    """
    arguments = dict(template_arguments or {})
    cells = _cells(tokenizer, tools, groups, arguments)
    restored = {
        broken: tuple(_restoring(broken, tokenizer, tools, groups, arguments, cells))
        for broken in dict.fromkeys(cell.property for cell in cells if cell.outcome is Outcome.FAIL)
        if broken is not TemplateProperty.SINGLE_BOS
    }
    return TemplateReport(arguments, tuple(cells), restored)


def _restoring(
    broken: TemplateProperty,
    tokenizer: ChatTokenizer,
    tools: Sequence[Mapping[str, Any]],
    groups: Sequence[Group],
    arguments: Mapping[str, Any],
    cells: Sequence[Cell],
) -> Iterator[Mapping[str, Any]]:
    # groups that pass need no second trial
    broken_groups = {c.group for c in cells if c.property is broken and c.outcome is Outcome.FAIL}
    groups = [g for g in groups if "+".join(g) in broken_groups] or groups
    failing = [_setting(c) for c in cells if c.property is broken and c.outcome is Outcome.FAIL]
    for tried in candidate_arguments(ChatTemplate(tokenizer)):
        if tried.items() <= arguments.items():
            continue
        again = _cells(tokenizer, tools, groups, {**arguments, **tried})
        outcomes = {_setting(cell): cell.outcome for cell in again}
        if all(outcomes.get(setting) is Outcome.PASS for setting in failing):
            yield tried


def _setting(cell: Cell) -> tuple[object, ...]:
    return cell.property, cell.group, cell.level, cell.reasoning, cell.tools


def _cells(
    tokenizer: ChatTokenizer,
    tools: Sequence[Mapping[str, Any]],
    groups: Sequence[Group],
    arguments: Mapping[str, Any],
) -> list[Cell]:
    cells: list[Cell] = []
    known: dict[str, list[int]] = {}
    for given in (None, tools):
        template = ChatTemplate(tokenizer, given, arguments)
        tried = [group for group in groups if given is not None or "tool" not in group]
        encode = partial(_encoded_once, template, known)
        for reasoning in (False, True):
            cells += _prefix_cells(template, tried, reasoning, encode)
        cells += [cell for group in tried for cell in _locality_cells(template, group, encode)]
        cells += _bos_cells(template)
    return cells


def _encoded_once(template: ChatTemplate, known: dict[str, list[int]], text: str) -> list[int]:
    """Ids of a text; most texts begin two pairs."""
    if text not in known:
        known[text] = template.encode(text)
    return known[text]


def _prefix_cells(
    template: ChatTemplate, groups: Sequence[Group], reasoning: bool, encode: _Encode
) -> list[Cell]:
    tools = template.tools is not None
    probes: list[_Probe] = []
    refused: list[Cell] = []
    for group in groups:
        try:
            probes += _probes(template, group, reasoning)
        except TemplateError as error:
            refused += [
                Cell(
                    kind,
                    "+".join(group),
                    level,
                    reasoning,
                    tools,
                    Outcome.REFUSED,
                    None,
                    _refusal(error),
                )
                for kind in (TemplateProperty.CLOSED_PREFIX, TemplateProperty.GENERATION_PREFIX)
                for level in ("text", "ids")
            ]
    keys = dict.fromkeys((probe.property, probe.group) for probe in probes)
    found = [
        _judged(kind, group, level, reasoning, tools, pairs, to_ids)
        for kind, group in sorted(keys, key=lambda key: list(TemplateProperty).index(key[0]))
        for pairs in [
            [(p.shorter, p.longer) for p in probes if (p.property, p.group) == (kind, group)]
        ]
        for level, to_ids in (("text", None), ("ids", encode))
    ]
    return found + refused


def _probes(template: ChatTemplate, group: Group, reasoning: bool) -> list[_Probe]:
    """Every prefix pair of conversations that append this group."""
    pasts: list[list[Group]] = [[group, group]]
    if template.tools is not None and "tool" not in group:
        # what a template drops from history it may drop from tool rounds only
        pasts.append([("tool",), group, ("tool",), group])
    probes: list[_Probe] = []
    for past in pasts:
        with_system = "system" not in group and _takes_system(template)
        steps = conversation(past, reasoning=reasoning, with_system=with_system)
        messages: list[Message] = list(steps[0])
        last = "opening"
        for step in steps[1:]:
            before, messages = messages, [*messages, *step]
            shorter, longer = template.render(before), template.render(messages)
            if step[0]["role"] == "assistant":
                probes.append(
                    _Probe(TemplateProperty.CLOSED_PREFIX, "assistant", reasoning, shorter, longer)
                )
                opened = template.render(before, generation_prompt=True)
                probes.append(
                    _Probe(TemplateProperty.GENERATION_PREFIX, last, reasoning, opened, longer)
                )
            else:
                last = "+".join(str(message["role"]) for message in step)
                probes.append(
                    _Probe(TemplateProperty.CLOSED_PREFIX, last, reasoning, shorter, longer)
                )
    return probes


def _takes_system(template: ChatTemplate) -> bool:
    try:
        template.render([system("s"), user("x")])
    except TemplateError:
        return False
    return True


def _locality_cells(template: ChatTemplate, group: Group, encode: _Encode) -> list[Cell]:
    kind, name, tools = (
        TemplateProperty.SUFFIX_LOCALITY,
        "+".join(group),
        template.tools is not None,
    )
    try:
        (_, first), *others = suffixes_behind_histories(template, group)
    except TemplateError as error:
        return [Cell(kind, name, "text", None, tools, Outcome.REFUSED, None, _refusal(error))]
    lost = lost_message(group, first)
    if lost:
        return [Cell(kind, name, "text", None, tools, Outcome.FAIL, None, lost)]
    distinct = dict.fromkeys(text for _, text in others)
    pairs = [pair for other in distinct for pair in ((first, other), (other, first))]
    return [
        _judged(kind, name, level, None, tools, pairs, to_ids)
        for level, to_ids in (("text", None), ("ids", encode))
    ]


def _bos_cells(template: ChatTemplate) -> list[Cell]:
    bos = template.bos_id
    if bos is None:
        return []
    kind, tools = TemplateProperty.SINGLE_BOS, template.tools is not None
    steps = conversation([("user",)], reasoning=False, with_system=_takes_system(template))
    try:
        text = template.render([message for step in steps for message in step])
    except TemplateError as error:
        refused = Outcome.REFUSED, None, _refusal(error)
        return [Cell(kind, name, "ids", None, tools, *refused) for name in _ENCODINGS]
    ids = template.encode(text)
    default = [int(token) for token in template.tokenizer.encode(text)]
    return [
        _bos_cell(name, bos, tried, tools)
        for name, tried in zip(_ENCODINGS, (ids, default), strict=True)
    ]


def _refusal(error: TemplateError) -> str:
    """What the template itself says; which roles it was given is told by the cell."""
    reason: BaseException = error
    while reason.__cause__ is not None:
        reason = reason.__cause__
    return str(error) if reason is error else f"{type(reason).__name__}: {reason}"


def _bos_cell(name: str, bos: int, ids: list[int], tools: bool) -> Cell:
    again = ids.index(bos, 1) if bos in ids[1:] else None
    detail = (
        "" if again is None else f"id {bos} stands at position {again}, too: {ids[: again + 2]}"
    )
    outcome = Outcome.PASS if again is None else Outcome.FAIL
    return Cell(TemplateProperty.SINGLE_BOS, name, "ids", None, tools, outcome, again, detail)


def _judged(
    kind: TemplateProperty,
    group: str,
    level: str,
    reasoning: bool | None,
    tools: bool,
    pairs: Sequence[_Pair],
    encode: _Encode | None,
) -> Cell:
    for shorter, longer in pairs:
        first: Sequence[Any] = encode(shorter) if encode else shorter
        second: Sequence[Any] = encode(longer) if encode else longer
        if second[: len(first)] != first:
            position = common_length(first, second)
            window = slice(max(0, position - 12), position + 24)
            return Cell(
                kind,
                group,
                level,
                reasoning,
                tools,
                Outcome.FAIL,
                position,
                f"from {level} position {position} on, {first[window]!r} became {second[window]!r}",
            )
    return Cell(kind, group, level, reasoning, tools, Outcome.PASS, None, "")
