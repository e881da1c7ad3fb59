"""Whether a replayed message is a stored one.

A harness sends its history with every request, and not always as it was given: tool-call arguments
come back with other spaces, reasoning is left out. Three matchers say how much of that is taken for
the same message; where one matches, the stored spelling and the stored ids stay.

    strict            every field equal; a field that is None or an empty list counts as absent
    json              as strict, but tool-call arguments are compared as JSON values
    role_and_content  role and text of the content only

They compare messages, one at a time; what follows from a match is the session's business.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, cast

from .chat_tokenizer import Message

Matcher = Literal["strict", "json", "role_and_content"]
"""Name of a rule that decides whether a replayed message is a stored one."""


def matcher_named(name: Matcher) -> Callable[[Message, Message], bool]:
    """The function (stored, replayed) -> bool of that name.

    Raises:
        ValueError: there is no such matcher.
    """
    view = _VIEWS.get(name)
    if view is None:
        raise ValueError(f"matcher is one of {', '.join(_VIEWS)}; got {name!r}")
    return lambda stored, replayed: view(stored) == view(replayed)


def content_text(message: Message) -> str:
    """The message's content as text: parts joined, "" where there is none."""
    content = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list | tuple) else [content]
    return "".join(_part_text(part) for part in parts)


def _part_text(part: Any) -> str:
    if isinstance(part, Mapping):
        text = cast("Mapping[str, Any]", part).get("text")
        return text if isinstance(text, str) else json.dumps(part, sort_keys=True, default=repr)
    return str(part)


def _present(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.items() if value is not None and value != []}


def _with_json_arguments(message: Message) -> dict[str, Any]:
    present = _present(message)
    calls = present.get("tool_calls")
    if calls:
        present["tool_calls"] = [_call(call) for call in calls]
    return present


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if isinstance(function, Mapping):
        return {**call, "function": _call(cast("Mapping[str, Any]", function))}
    return {**call, "arguments": _parsed(call.get("arguments"))}


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def _role_and_content(message: Message) -> tuple[Any, str]:
    return message.get("role"), content_text(message)


_VIEWS: dict[str, Callable[[Message], Any]] = {
    "strict": _present,
    "json": _with_json_arguments,
    "role_and_content": _role_and_content,
}
