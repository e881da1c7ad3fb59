"""Suffix locality: what a template renders behind an assistant turn does not depend on what is before.

A session renders appended messages behind a stub instead of the history. That is right if and only if
this text is the same behind every history. It is tried per group of appended messages, on histories
of different length, with and without system message, reasoning and tool calls; once per group.
"""

from collections.abc import Iterable
from itertools import product

from .chat_tokenizer import ChatTemplate
from .errors import TemplateError
from .template_probes import (
    STUB,
    Group,
    appended,
    assistant,
    common_length,
    conversation,
    system,
    tool_count,
    user,
)

_NAME = "message "


def suffixes_behind_histories(template: ChatTemplate, group: Group) -> list[tuple[str, str]]:
    """Pairs (name of a history, text behind its last assistant's content) for this group.

    Histories that the template refuses are left out.

    Raises:
        TemplateError: it refuses them all, or leaves out the assistant's content.
    """
    found: list[tuple[str, str]] = []
    refusals: list[TemplateError] = []
    last, new = assistant(STUB, calls=tool_count(group)), appended(group, _NAME)
    for name, history in _histories(group):
        try:
            text = template.render([*history, last, *new], generation_prompt=True)
        except TemplateError as error:
            refusals.append(error)
            continue
        _, seen, behind = text.rpartition(STUB)
        if not seen:
            raise TemplateError("the chat template leaves out an assistant message's content")
        found.append((name, behind))
    if not found:
        raise TemplateError(f"appended roles {'+'.join(group)}: {refusals[0]}") from refusals[0]
    return found


def lost_message(group: Group, suffix: str) -> str | None:
    """What is wrong if a message of the group is not rendered behind the assistant turn; else None."""
    if all(message["content"] in suffix for message in appended(group, _NAME)):
        return None
    return "the template does not render them all behind the assistant turn that they follow"


class SuffixLocality:
    """Groups of appended messages whose suffix is proven to be independent of the history.

    Attributes:
        groups: those proven so far.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self.groups: set[Group] = set()
        self._template = template

    def accept(self, groups: Iterable[Group]) -> None:
        """Take groups as proven."""
        self.groups.update(groups)

    def require(self, group: Group) -> None:
        """Prove a group, unless that was done before.

        Raises:
            TemplateError: two histories give different suffixes, or the template refuses the group.
        """
        if group in self.groups:
            return
        (name, suffix), *others = suffixes_behind_histories(self._template, group)
        lost = lost_message(group, suffix)
        if lost:
            raise TemplateError(f"appended roles {'+'.join(group)}: {lost}")
        for other, text in others:
            if text != suffix:
                at = common_length(suffix, text)
                raise TemplateError(
                    f"appended roles {'+'.join(group)}: what the template renders behind an assistant "
                    f"turn depends on the history before it; behind {name} it reads "
                    f"{suffix[max(0, at - 16) : at + 16]!r}, behind {other} "
                    f"{text[max(0, at - 16) : at + 16]!r}. Use another template, or append these roles in no session"
                )
        self.groups.add(group)


def _histories(group: Group) -> list[tuple[str, list[dict[str, object]]]]:
    histories: list[tuple[str, list[dict[str, object]]]] = [("a user's line", [user("x")])]
    rounds: list[list[Group]] = [[("user",)], [("tool",), ("user",)], [("tool", "tool"), ("tool",)]]
    for past, reasoning, with_system in product(rounds, (False, True), (False, True)):
        steps = conversation(past, reasoning=reasoning, with_system=with_system)
        # the last user's line makes room for the group's own assistant turn
        history = [message for step in steps for message in step]
        kind = "reasoning" if reasoning else "no reasoning"
        name = f"{len(history) + 1} messages ({kind}{', system' if with_system else ''})"
        histories.append((name, [*history, user("And then?")]))
        histories.append((f"{name}, no question", history[:-1]))
    histories.append(("a system message", [system("s"), user("x")]))
    return histories
