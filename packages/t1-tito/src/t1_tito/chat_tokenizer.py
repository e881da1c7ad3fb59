"""The chat tokenizer that sessions and template checks work with, and one way to call it.

A *chat tokenizer* turns messages into text and text into ids. `transformers` tokenizers are chat
tokenizers as they are; anything with the same two methods is. `ChatTemplate` binds one to its tools
and template arguments, so that nothing renders with other arguments than was proven.

It knows no ids that were sampled and takes no decision.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, runtime_checkable

from .byte_tables import token_bytes_of
from .errors import TemplateError
from .token_bytes import TokenBytes

Message = Mapping[str, Any]
"""One chat message: `role`, `content`, and what else its template reads."""


@runtime_checkable
class ChatTokenizer(Protocol):
    """What sessions and template checks call; `transformers` tokenizers have it.

    Optional attributes are read where present: `chat_template` (str), `bos_token_id`,
    `eos_token_id` (int or None), `token_bytes` (`TokenBytes`) and `backend_tokenizer` (for the pin).
    """

    def apply_chat_template(self, conversation: Any, **arguments: Any) -> Any:
        """Render messages; called with tokenize=False, add_generation_prompt and tools."""
        ...

    def encode(self, text: Any, **arguments: Any) -> Any:
        """Encode text into ids; called with add_special_tokens=False."""
        ...


@dataclass(frozen=True, eq=False)
class ChatTemplate:
    """A chat tokenizer with the tools and arguments that all renderings share.

    Attributes:
        tokenizer: the chat tokenizer.
        tools: tool schemas that the template is given, or None.
        arguments: further template arguments, such as `enable_thinking`.
    """

    tokenizer: ChatTokenizer
    tools: Sequence[Mapping[str, Any]] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def render(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        """Text of the messages, with the assistant's opener where a generation prompt is asked for.

        Raises:
            TemplateError: the template refused the messages or failed on them.
        """
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=None if self.tools is None else list(self.tools),
                tokenize=False,
                add_generation_prompt=generation_prompt,
                **self.arguments,
            )
        except Exception as error:
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise TemplateError(
                f"the chat template does not render the roles ({roles}): "
                f"{type(error).__name__}: {error}"
            ) from error
        if not isinstance(text, str):
            raise TemplateError(
                f"apply_chat_template(tokenize=False) should return text, got {type(text).__name__}"
            )
        return text

    def encode(self, text: str) -> list[int]:
        """Ids of the text alone: nothing is put in front of it or behind it."""
        return [int(token) for token in self.tokenizer.encode(text, add_special_tokens=False)]

    @property
    def source(self) -> str:
        """The template itself, "" where the tokenizer does not show it."""
        source = getattr(self.tokenizer, "chat_template", None)
        if isinstance(source, Mapping):
            return json.dumps(dict(source), sort_keys=True)
        return source if isinstance(source, str) else ""

    @property
    def bos_id(self) -> int | None:
        """Id of the token that opens a text, None where there is none."""
        return getattr(self.tokenizer, "bos_token_id", None)

    @property
    def eos_id(self) -> int | None:
        """Id of the token that the tokenizer says ends a text, None where there is none."""
        return getattr(self.tokenizer, "eos_token_id", None)


def byte_table(tokenizer: ChatTokenizer, given: TokenBytes | None) -> TokenBytes:
    """The byte table at hand: given, carried by the tokenizer, or read from it.

    Raises:
        ByteTableError: it cannot be read.
    """
    if given is not None:
        return given
    carried = getattr(tokenizer, "token_bytes", None)
    return carried if isinstance(carried, TokenBytes) else token_bytes_of(tokenizer)


def digest(text: str) -> str:
    """Sha256 of a text, in hexadecimal."""
    return sha256(text.encode()).hexdigest()
