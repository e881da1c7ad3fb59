"""Writing TOML, for the one kind of document this package writes: tables of plain values.

`dump(parse(text))` keeps every value of a document, known key or not; comments and layout are not
kept. Reading is the standard library's `tomllib`.
"""

import datetime as dt
import json
import re
from collections.abc import Mapping
from typing import cast

__all__ = ["dump"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def dump(document: Mapping[str, object]) -> str:
    """Returns the document as TOML text.

    Raises:
        TypeError: a value is of a type TOML does not have (None, for example).
    """
    lines: list[str] = []
    _write_table(lines, (), document)
    return "\n".join(lines).lstrip("\n") + "\n"


def _write_table(lines: list[str], path: tuple[str, ...], table: Mapping[str, object]) -> None:
    nested: list[tuple[str, object]] = []
    for key, value in table.items():
        if isinstance(value, Mapping) or _is_array_of_tables(value):
            nested.append((key, value))
        else:
            lines.append(f"{_key(key)} = {_value(value)}")
    # a table's own values must come before the headers of its children
    for key, value in nested:
        inner = (*path, key)
        name = ".".join(map(_key, inner))
        if isinstance(value, Mapping):
            lines += ["", f"[{name}]"]
            _write_table(lines, inner, cast("Mapping[str, object]", value))
        else:
            for item in cast("list[Mapping[str, object]]", value):
                lines += ["", f"[[{name}]]"]
                _write_table(lines, inner, item)


def _is_array_of_tables(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(cast("list[object]", value)) > 0
        and all(isinstance(item, Mapping) for item in cast("list[object]", value))
    )


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    # JSON's escapes are TOML's, except that TOML wants DEL escaped and has no surrogate pairs
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    match value:
        case bool():
            text = "true" if value else "false"
        case str():
            text = _string(value)
        case int() | float():
            text = repr(value)
        case dt.date() | dt.time():
            text = value.isoformat()
        case list() | tuple():
            text = "[" + ", ".join(map(_value, cast("list[object]", value))) + "]"
        case Mapping():
            items = cast("Mapping[str, object]", value).items()
            text = "{" + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in items) + "}"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}: {value!r}")
    return text
