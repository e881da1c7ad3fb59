r"""Inert text: the letters of a control token, said by a user or a tool, stay letters.

A tool may print "<|im_end|>", and a tokenizer would make the control id out of it: the observation
would end the turn. So before rendering, a mark is put inside each such literal,

    x<|im_end|>y   ->   x<\ue000|im_end|>y

and the rendered text is cut at the marks. No piece holds the literal any more, so that encoding the
pieces one by one gives ordinary ids that spell the same bytes. Literals that the template itself
writes carry no mark and stay control tokens.

The ids around a cut are not the ones a tokenizer would choose for plain text; they spell the same.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from .chat_tokenizer import Message
from .errors import SeamError

_PRIVATE_USE = range(0xE000, 0xF900)


class InertText:
    """Marks control-token literals in the messages of some roles.

    Args:
        literals: the spelling of every control token; whitespace is never one.
        roles: roles whose text is made inert. The system's and the assistant's are not by default:
            they are written by whoever runs the model.
    """

    def __init__(self, literals: Iterable[str], roles: Iterable[str] = ("user", "tool")) -> None:
        self._roles = frozenset(roles)
        spelled = sorted({text for text in literals if text.strip()}, key=len, reverse=True)
        # a lookahead finds literals that overlap, too; the second character is where they are cut
        pattern = "|".join(map(re.escape, spelled))
        self._starts = re.compile(f"(?=({pattern}))") if spelled else None

    def marked(self, messages: Sequence[Message]) -> tuple[list[Message], str, int]:
        """The messages with a mark in every literal, the mark, and how many were put in.

        Raises:
            SeamError: a control token of one character stands in a message; it cannot be cut.
        """
        strings = [text for message in messages for text in self._strings(message)]
        if self._starts is None or not any(map(self._starts.search, strings)):
            return list(messages), "", 0
        mark = next(
            chr(code) for code in _PRIVATE_USE if not any(chr(code) in text for text in strings)
        )
        count = 0

        def cut(text: str) -> str:
            nonlocal count
            pieces = self._cut(text)
            count += len(pieces) - 1
            return mark.join(pieces)

        marked = [
            cast("Message", _mapped(message, cut))
            if message.get("role") in self._roles
            else message
            for message in messages
        ]
        return marked, mark, count

    def pieces(self, rendered: str, mark: str, count: int) -> list[str]:
        """The rendered text, cut at the marks; its pieces are encoded one by one.

        Raises:
            SeamError: the template lost, doubled or escaped a mark, so that the text cannot be
                told from the template's own.
        """
        if not mark:
            return [rendered]
        pieces = rendered.split(mark)
        if len(pieces) != count + 1:
            raise SeamError(
                f"user or tool text spells control tokens {count} times, but the template rendered "
                f"{len(pieces) - 1} of these places; escape the text before it enters a message"
            )
        return pieces

    def _strings(self, message: Message) -> list[str]:
        found: list[str] = []
        if message.get("role") in self._roles:
            _mapped(message, lambda text: found.append(text) or text)
        return found

    def _cut(self, text: str) -> list[str]:
        assert self._starts is not None
        places = [0]
        for match in self._starts.finditer(text):
            if len(match[1]) == 1:
                raise SeamError(
                    f"the control token {match[1]!r} stands in a message and has only one "
                    "character, so that it cannot be made inert; remove it from the text"
                )
            places.append(match.start() + 1)
        return [text[a:b] for a, b in zip(places, [*places[1:], None], strict=True)]


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """The value with every string in it changed, names of fields included, but for the role."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {
            _mapped(key, change): inner if key == "role" else _mapped(inner, change)
            for key, inner in items
        }
    if isinstance(value, list | tuple):
        return [_mapped(inner, change) for inner in cast("Sequence[Any]", value)]
    return value
