"""A chat tokenizer read from files in Hugging Face's format: tokenizer.json and what lies beside it.

Nothing is fetched. `transformers` and `jinja2` are imported when a tokenizer is read.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .chat_tokenizer import ChatTokenizer
from .errors import FileFormatError, MissingExtraError


def load_chat_tokenizer(path: Path, template_path: Path | None = None) -> ChatTokenizer:
    """Read a tokenizer and its chat template.

    Args:
        path: a tokenizer.json, or the folder with it; tokenizer_config.json and chat_template.jinja
            beside it are read.
        template_path: the chat template, instead of the one beside the tokenizer.

    Returns:
        A `transformers` tokenizer.

    Raises:
        FileFormatError: a file cannot be read, or there is no chat template.
        MissingExtraError: transformers or jinja2 is not installed.
    """
    path = path / "tokenizer.json" if path.is_dir() else path
    # read here, so that a wrong path is named as such
    _json_object(path)
    if find_spec("transformers") is None or find_spec("jinja2") is None:
        raise MissingExtraError("a chat tokenizer needs: pip install 't1-tito[transformers]'")
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 needs the extra

    beside = path.with_name("tokenizer_config.json")
    config = _json_object(beside) if beside.exists() else {}
    template = _template(path, config, template_path)
    try:
        loaded: Any = PreTrainedTokenizerFast(tokenizer_file=str(path))
    except Exception as error:
        # the library raises bare Exception for a file that it does not understand
        raise FileFormatError(f"{path}: not a tokenizer: {error}") from error
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        if token is not None:
            setattr(loaded, name, token["content"] if isinstance(token, dict) else token)
    loaded.chat_template = template
    return loaded


def _json_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: expected a JSON object")
    return content


def _template(path: Path, config: dict[str, Any], given: Path | None) -> str:
    beside = path.with_name("chat_template.jinja")
    file = given or (beside if beside.exists() else None)
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise FileFormatError(f"{file}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise FileFormatError(f"{file}: not a text in UTF-8: {error}") from error
    template = config.get("chat_template")
    if not isinstance(template, str):
        raise FileFormatError(
            f"{path.parent}: no chat template beside {path.name}; name one with --template "
            "(of pytest: --tito-template)"
        )
    return template
