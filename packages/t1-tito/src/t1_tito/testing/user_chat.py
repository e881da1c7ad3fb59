"""A user's own tokenizer and chat template, read from files."""

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from t1_tito.byte_tables import token_bytes_of
from t1_tito.errors import FileFormatError, MissingExtraError
from t1_tito.token_bytes import TokenBytes


@dataclass(frozen=True)
class UserChat:
    """A transformers tokenizer with its byte table; a `Chat`."""

    tokenizer: Any
    token_bytes: TokenBytes

    @property
    def bos_token_id(self) -> int | None:
        """Id of the token that opens a text, None where there is none."""
        return self.tokenizer.bos_token_id

    @property
    def eos_token_id(self) -> int | None:
        """Id that the tokenizer says ends a text, None where there is none."""
        return self.tokenizer.eos_token_id

    def apply_chat_template(self, conversation: Any, **arguments: Any) -> Any:
        """Render messages."""
        return self.tokenizer.apply_chat_template(conversation, **arguments)

    def encode(self, text: Any, **arguments: Any) -> Any:
        """Encode text into ids."""
        return self.tokenizer.encode(text, **arguments)


def load_chat(tokenizer: Path, template: Path | None = None) -> UserChat:
    """Read a tokenizer in Hugging Face's format, and its chat template.

    Args:
        tokenizer: a tokenizer.json, or the folder with it; tokenizer_config.json and
            chat_template.jinja beside it are read.
        template: the chat template, instead of the one beside the tokenizer.

    Raises:
        MissingExtraError: transformers is not installed.
        FileFormatError: a file cannot be read, or there is no chat template.
        ByteTableError: the tokenizer's ids do not stand for bytes.
    """
    path = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    if not path.is_file():
        raise FileFormatError(f"{path}: there is no such file")
    if find_spec("transformers") is None or find_spec("jinja2") is None:
        raise MissingExtraError("a tokenizer needs: pip install 't1-tito[transformers]' jinja2")
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 needs the extra

    config = _config(path.with_name("tokenizer_config.json"))
    try:
        loaded: Any = PreTrainedTokenizerFast(tokenizer_file=str(path))
    except Exception as error:
        # the library raises bare Exception for a file that it does not understand
        raise FileFormatError(f"{path}: not a tokenizer: {error}") from error
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        if token is not None:
            setattr(loaded, name, token["content"] if isinstance(token, dict) else token)
    loaded.chat_template = _template(path, config, template)
    return UserChat(loaded, token_bytes_of(loaded))


def _config(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path}: {error}") from error


def _template(path: Path, config: dict[str, Any], given: Path | None) -> str:
    beside = path.with_name("chat_template.jinja")
    file = given or (beside if beside.exists() else None)
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise FileFormatError(f"{file}: {error.strerror or error}") from error
    template = config.get("chat_template")
    if not isinstance(template, str):
        raise FileFormatError(f"{path}: no chat template beside it; name one")
    return template
