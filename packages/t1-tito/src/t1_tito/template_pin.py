"""The template pin: what was proven of a tokenizer and its chat template, to be held against later.

A template or tokenizer that changes under a running campaign changes every prompt without an error.
The pin is written once, when the template was checked, and verified at each start: by hashes, by the
ids of all special tokens, and by the ids that the template was measured to put around a turn. A
session that is given a pin compares what needs no rendering.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from weakref import WeakKeyDictionary

from .chat_tokenizer import ChatTemplate, ChatTokenizer, byte_table, digest
from .errors import TemplateError
from .inert_text import InertText
from .suffix_locality import SuffixLocality
from .template_probes import Group, common_length
from .token_bytes import TokenBytes
from .turn_suffix import SuffixRenderer

DEFAULT_PINNED_GROUPS: tuple[Group, ...] = (("user",), ("tool",), ("tool", "tool"))
_VERSION = 1
_IDS = ("opener_ids", "history_opener_ids", "closing_ids")
_DIGESTS: WeakKeyDictionary[ChatTokenizer, tuple[str, str]] = WeakKeyDictionary()


@dataclass(frozen=True)
class TemplatePin:
    """What was measured.

    Attributes:
        template_sha256: of the chat template's source.
        tokenizer_sha256: of the tokenizer's vocabulary, merges, normalisation and added tokens; of its
            byte table where it does not show these.
        template_arguments: what the template was given besides messages and tools.
        special_ids: id of each special token by its literal text.
        opener_ids: ids that open an assistant turn (the generation prompt).
        history_opener_ids: those of them that history repeats before an assistant's content; what an
            audit looks for.
        closing_ids: ids that the template puts behind an assistant's content.
        groups: appended roles whose suffix is independent of the history.
    """

    template_sha256: str
    tokenizer_sha256: str
    template_arguments: Mapping[str, Any]
    special_ids: Mapping[str, int]
    opener_ids: tuple[int, ...]
    history_opener_ids: tuple[int, ...]
    closing_ids: tuple[int, ...]
    groups: tuple[Group, ...]

    def to_json(self) -> str:
        """The pin as a JSON object."""
        return json.dumps({"schema_version": _VERSION, **asdict(self)}, indent=2, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "TemplatePin":
        """Read what `to_json` wrote.

        Raises:
            TemplateError: it is not such an object; names the field.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            version = fields.pop("schema_version")
            pin = cls(**fields)
            tuples: dict[str, Any] = {name: tuple(getattr(pin, name)) for name in _IDS}
            tuples["groups"] = tuple(tuple(group) for group in pin.groups)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TemplateError(f"not a template pin: {type(error).__name__}: {error}") from error
        if version != _VERSION:
            raise TemplateError(f"template pin: schema_version {version!r} is not {_VERSION}")
        return cls(**fields | tuples)

    def verify(
        self,
        tokenizer: ChatTokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        token_bytes: TokenBytes | None = None,
    ) -> None:
        """Measure again and compare.

        Args:
            tokenizer: the chat tokenizer in use now.
            tools: as when it was pinned.
            token_bytes: its byte table, where it is at hand.

        Raises:
            TemplateError: the first field that differs, with both values.
        """
        now = pin_template(
            tokenizer,
            tools=tools,
            template_arguments=self.template_arguments,
            groups=self.groups,
            token_bytes=token_bytes,
        )
        for field, pinned in asdict(self).items():
            _require_same(field, pinned, asdict(now)[field])

    def require(self, template: ChatTemplate, table: TokenBytes) -> None:
        """Refuse another template, tokenizer or template arguments; renders nothing.

        Args:
            template: in use now. Its tokenizer is read once, and again when the size of its
                vocabulary or its added tokens change.
            table: its byte table.

        Raises:
            TemplateError: the first field that differs, with both values.
        """
        measured: dict[str, Any] = {
            "template_arguments": dict(template.arguments),
            "template_sha256": digest(template.source),
            "special_ids": _special_ids(table),
            "tokenizer_sha256": _known_tokenizer_digest(template.tokenizer, table),
        }
        for field, now in measured.items():
            _require_same(field, getattr(self, field), now)


def pin_template(
    tokenizer: ChatTokenizer,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    template_arguments: Mapping[str, Any] | None = None,
    groups: Sequence[Group] = DEFAULT_PINNED_GROUPS,
    token_bytes: TokenBytes | None = None,
) -> TemplatePin:
    """Prove that sessions can use a template, and write down what it was.

    Args:
        tokenizer: the chat tokenizer.
        tools: tool schemas in use.
        template_arguments: template arguments in use.
        groups: roles that are appended between two assistant turns.
        token_bytes: the tokenizer's byte table, where it is at hand.

    Raises:
        TemplateError: what the template renders for a group depends on the history, or it refuses
            the group.
        ByteTableError: the byte table cannot be read from the tokenizer.
    """
    template = ChatTemplate(tokenizer, tools, dict(template_arguments or {}))
    locality = SuffixLocality(template)
    for group in groups:
        locality.require(group)
    table = byte_table(tokenizer, token_bytes)
    suffixes = SuffixRenderer(template, table, frozenset(), InertText(()))
    opener = tuple(template.encode(suffixes.opener))
    history = tuple(template.encode(suffixes.history_opener()))
    return TemplatePin(
        template_sha256=digest(template.source),
        tokenizer_sha256=_tokenizer_digest(tokenizer, table),
        template_arguments=template.arguments,
        special_ids=_special_ids(table),
        opener_ids=opener,
        history_opener_ids=opener[: common_length(opener, history)],
        closing_ids=tuple(template.encode(suffixes.ending)),
        groups=tuple(groups),
    )


def _tokenizer_digest(tokenizer: ChatTokenizer, table: TokenBytes) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        parts = (table.lengths.tobytes(), table.flat.tobytes())
        return digest("".join(part.hex() for part in parts))
    content = json.loads(backend.to_str())
    # set by whoever encodes, and by the library that wrote the file
    for changing in ("padding", "truncation", "version"):
        content.pop(changing, None)
    return digest(json.dumps(content, sort_keys=True))


def _known_tokenizer_digest(tokenizer: ChatTokenizer, table: TokenBytes) -> str:
    """The digest; what the tokenizer shows is read once, for a large vocabulary takes a second."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return _tokenizer_digest(tokenizer, table)
    state = (
        f"{backend.get_vocab_size(with_added_tokens=False)} {backend.get_added_tokens_decoder()}"
    )
    try:
        known = _DIGESTS.get(tokenizer)
    except TypeError:
        # it cannot be hashed or referred to weakly, so it is read every time
        return _tokenizer_digest(tokenizer, table)
    if known is None or known[0] != state:
        known = _DIGESTS[tokenizer] = (state, _tokenizer_digest(tokenizer, table))
    return known[1]


def _special_ids(table: TokenBytes) -> dict[str, int]:
    return {text: token for token, text in sorted(table.special_text.items())}


def _require_same(field: str, pinned: Any, measured: Any) -> None:
    if measured != pinned:
        raise TemplateError(f"{field} changed: {_difference(pinned, measured)}")


def _difference(pinned: Any, measured: Any) -> str:
    if isinstance(pinned, Mapping) and isinstance(measured, Mapping):
        for key in [*pinned, *measured]:
            if pinned.get(key) != measured.get(key):
                return f"{key!r} was {pinned.get(key)!r}, is {measured.get(key)!r}"
    return f"was {pinned!r}, is {measured!r}"
