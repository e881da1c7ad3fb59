"""Text files that appear whole, and JSON that every reader takes."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from t1_trainer.errors import StorageError

__all__ = ["json_text", "write_atomically"]


def write_atomically(path: Path, text: str) -> None:
    """Write a text file so that readers see the old or the new content, never a part.

    Raises:
        StorageError: it cannot be written.
    """
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        raise StorageError(error.errno, error.strerror, str(path)) from error


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON as every reader takes it: numbers it lacks (NaN, infinities) become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in cast("list[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value
