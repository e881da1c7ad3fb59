r"""A chat tokenizer whose template can be given the bad habits of real ones.

    <|im_start|>ROLE\nTEXT<|im_end|>SEPARATOR

An assistant's TEXT is `<think>REASONING</think>` where it reasoned, its content, and one
`<tool_call>{"name": .., "arguments": ..}</tool_call>` per call. `TemplateQuirks` says in what the
template departs from repeating just that.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from t1_tito.token_bytes import TokenBytes

from .byte_bpe import ByteBpe

Message = Mapping[str, Any]

SCAFFOLD = "<think>\n\n</think>\n\n"
"""What the generation prompt ends with under `TemplateQuirks.scaffold`, and history lacks."""


@dataclass(frozen=True)
class TemplateQuirks:
    """In what a chat template departs from repeating every message as it was.

    Attributes:
        prune_reasoning: drops the reasoning of assistant messages before the last user message.
        strip: strips whitespace around contents.
        scaffold: ends the generation prompt in an empty thought that history does not show.
        fold_tools: puts consecutive tool messages into one turn of the user.
        reserialise: writes the arguments of tool calls in its own JSON style.
        separator: what follows `<|im_end|>`.
        bos: whether the text opens with `<s>`.
    """

    prune_reasoning: bool = False
    strip: bool = False
    scaffold: bool = False
    fold_tools: bool = False
    reserialise: bool = False
    separator: str = "\n"
    bos: bool = False


@dataclass(frozen=True)
class TinyChat:
    """A tokenizer with a chat template, as sessions and simulated harnesses call it."""

    tokenizer: ByteBpe = field(default_factory=ByteBpe)
    quirks: TemplateQuirks = field(default_factory=TemplateQuirks)

    @property
    def token_bytes(self) -> TokenBytes:
        """The bytes behind every id."""
        return self.tokenizer.token_bytes

    @property
    def eos_token_id(self) -> int:
        """Id of `<|im_end|>`."""
        return self.tokenizer.id_of("<|im_end|>")

    @property
    def bos_token_id(self) -> int | None:
        """Id of `<s>`, None where the template does not write it."""
        return self.tokenizer.id_of("<s>") if self.quirks.bos else None

    def encode(self, text: Any, **arguments: Any) -> Any:
        """The ids of a text, list[int]; arguments change nothing."""
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of ids."""
        return self.tokenizer.decode(ids, skip_special_tokens)

    def apply_chat_template(self, conversation: Any, **arguments: Any) -> Any:
        """The conversation as text, or as ids if `tokenize`.

        Args:
            conversation: messages.
            arguments: `tools`, `tokenize` and `add_generation_prompt` are read.
        """
        messages: list[Message] = list(conversation)
        last_user = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
        text = "<s>" if self.quirks.bos else ""
        if arguments.get("tools"):
            text += self._block("system", json.dumps(list(arguments["tools"])))
        for role, group in groupby(enumerate(messages), key=lambda pair: pair[1]["role"]):
            said = [self._said(message, i < last_user) for i, message in group]
            if role == "tool" and self.quirks.fold_tools:
                folded = "".join(f"<tool_response>{one}</tool_response>" for one in said)
                text += self._block("user", folded)
            else:
                text += "".join(self._block(role, one) for one in said)
        if arguments.get("add_generation_prompt"):
            text += "<|im_start|>assistant\n" + (SCAFFOLD if self.quirks.scaffold else "")
        return self.encode(text) if arguments.get("tokenize") else text

    def _block(self, role: str, text: str) -> str:
        return f"<|im_start|>{role}\n{text}<|im_end|>{self.quirks.separator}"

    def _said(self, message: Message, is_past: bool) -> str:
        content = message.get("content") or ""
        text = content.strip() if self.quirks.strip else content
        reasoning = message.get("reasoning_content")
        if reasoning is not None and not (self.quirks.prune_reasoning and is_past):
            text = f"<think>{reasoning}</think>{text}"
        return text + "".join(map(self._call, message.get("tool_calls") or ()))

    def _call(self, call: Mapping[str, Any]) -> str:
        function = call["function"]
        arguments: str = function["arguments"]
        if self.quirks.reserialise:
            arguments = json.dumps(json.loads(arguments))
        return f'<tool_call>{{"name":"{function["name"]}","arguments":{arguments}}}</tool_call>'
