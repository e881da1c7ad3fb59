"""A user's own tokenizer and chat template, read from files."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t1_tito.byte_tables import token_bytes_of
from t1_tito.token_bytes import TokenBytes
from t1_tito.tokenizer_files import load_chat_tokenizer


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
    loaded = load_chat_tokenizer(tokenizer, template)
    return UserChat(loaded, token_bytes_of(loaded))
