"""Made-up conversations that templates are tried on, and the comparison of what they render.

A *group* is what a harness appends between two assistant turns, named by its roles: ("user",),
("tool",), ("tool", "tool"), ("tool", "user"). Runs of a role are capped at two, for a template that
treats two alike treats more alike.
"""

from collections.abc import Sequence
from typing import Any

from .chat_tokenizer import Message

Group = tuple[str, ...]
"""Roles of the messages that are appended together."""

STUB = "t1titostub"
"""Content of an assistant message that is looked for in what a template renders."""

TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Run a command.",
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "string"}},
                "required": ["command"],
            },
        },
    },
)
"""The tool schema that probes use."""


def group_of(messages: Sequence[Message]) -> Group:
    """The group that appended messages form."""
    roles: list[str] = []
    for message in messages:
        role = str(message.get("role"))
        if roles[-2:] != [role, role]:
            roles.append(role)
    return tuple(roles)


def appended(group: Group, name: str) -> list[dict[str, Any]]:
    """Messages of these roles with telling contents."""
    return [_MAKERS.get(role, _plain)(role, f"{name}{i}") for i, role in enumerate(group)]


def assistant(
    content: str, *, calls: int = 0, reasoning: str | None = None, call_id: str = "call00000"
) -> dict[str, Any]:
    """An assistant message with so many tool calls."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {
                "id": call_id if i == 0 else f"{call_id[:-1]}{i}",
                "type": "function",
                "function": {"name": "run", "arguments": {"command": f"step {i}"}},
            }
            for i in range(calls)
        ]
    return message


def system(content: str) -> dict[str, Any]:
    """A system message."""
    return _plain("system", content)


def user(content: str) -> dict[str, Any]:
    """A user message."""
    return _plain("user", content)


def common_length(first: Sequence[object], second: Sequence[object]) -> int:
    """Length of the longest common beginning of two texts or id lists."""
    for position, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return position
    return min(len(first), len(second))


def tool_count(group: Group) -> int:
    """Tool calls that an assistant message before this group made."""
    return group.count("tool")


def conversation(
    groups: Sequence[Group], *, reasoning: bool, with_system: bool
) -> list[list[dict[str, Any]]]:
    """A conversation in steps: the opening, then assistant, group, assistant, group, ...

    Every step is what is appended at once. The last step is an assistant message. The first message
    that calls tools says something, too; later ones only call, so that the calls follow the opener.
    """
    opening = ([system("You are terse.")] if with_system else []) + [user("First question.")]
    steps = [opening]
    for place, group in enumerate([*groups, ()]):
        thought = f"Thought number {place}." if reasoning else None
        calls = tool_count(group)
        content = "" if calls and place else f"Answer {place}."
        steps.append([assistant(content, calls=calls, reasoning=thought)])
        if group:
            steps.append(appended(group, f"Message {place}."))
    return steps


def _plain(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _tool(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "name": "run", "tool_call_id": "call00000", "content": content}


_MAKERS = {"tool": _tool, "user": _plain, "system": _plain, "assistant": _plain}
