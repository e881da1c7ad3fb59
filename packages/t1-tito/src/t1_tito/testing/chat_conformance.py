"""What a tokenizer and its chat template must hold for token-in-token-out, tried on drawn texts.

table      ids spell their text in bytes, whatever it is
template   what was rendered stays when messages follow
bos        the token that opens a text stands at position 0 only
inert      text of users and tools yields no control id in a `Session`
seam       ids that a `Session` appends are those of the whole text
"""

import unicodedata
from collections.abc import Callable

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from t1_tito.chat_tokenizer import ChatTemplate
from t1_tito.errors import FidelityError
from t1_tito.seam import SeamEncoder
from t1_tito.session import Session

from .behaviour_invariants import check_inert, check_seam, check_template
from .conformance import quiet
from .invariants import check_bos
from .simulator import Chat, Message
from .strategies import dialogues, texts

CHAT_CHECKS = ("table", "template", "bos", "inert", "seam")
"""What `check_chat` knows."""


def check_chat(chat: Chat, name: str, *, examples: int = 50) -> None:
    """Try one property of a tokenizer and template.

    Args:
        chat: the tokenizer and template.
        name: one of `CHAT_CHECKS`.
        examples: how many cases to draw.

    Raises:
        FidelityError: it is broken; the smallest case that was found.
        KeyError: there is no such check.
    """
    prepare = {
        "table": _table,
        "template": _template,
        "bos": _bos,
        "inert": _inert,
        "seam": _seam,
    }[name]
    quiet(given(st.data())(prepare(chat)), examples)()


def _table(chat: Chat) -> Callable[[st.DataObject], None]:
    def holds(data: st.DataObject) -> None:
        text = data.draw(texts())
        spelled = chat.token_bytes.bytes_of(chat.encode(text, add_special_tokens=False))
        allowed = {text.encode(), unicodedata.normalize("NFC", text).encode()}
        if spelled not in allowed | {b" " + one for one in allowed}:
            raise FidelityError("table", None, None, f"{text!r} is spelled {spelled!r}")

    return holds


def _template(chat: Chat) -> Callable[[st.DataObject], None]:
    return lambda data: check_template(chat, data.draw(dialogues()))


def _bos(chat: Chat) -> Callable[[st.DataObject], None]:
    bos_id = getattr(chat, "bos_token_id", None)

    def holds(data: st.DataObject) -> None:
        messages = [dict(message) for message in data.draw(dialogues())]
        text = chat.apply_chat_template(
            messages, tools=None, tokenize=False, add_generation_prompt=True
        )
        if bos_id is not None:
            check_bos(chat.encode(text, add_special_tokens=False), bos_id)

    return holds


def _inert(chat: Chat) -> Callable[[st.DataObject], None]:
    session = Session(chat, token_bytes=chat.token_bytes)
    literals = sorted(text for text in chat.token_bytes.special_text.values() if len(text) > 1)

    def holds(data: st.DataObject) -> None:
        literal = data.draw(st.sampled_from(literals))
        content = data.draw(texts()) + literal + data.draw(texts())

        def prompt_of(said: str) -> list[int]:
            asked: Message = {"role": "user", "content": said}
            return session.prompt([asked]).ids.tolist()

        check_inert(prompt_of, chat.token_bytes, content)

    return holds


def _seam(chat: Chat) -> Callable[[st.DataObject], None]:
    encoder = SeamEncoder(ChatTemplate(chat), chat.token_bytes)

    def holds(data: st.DataObject) -> None:
        stored = chat.encode(data.draw(texts().filter(bool)), add_special_tokens=False)
        text = data.draw(texts().filter(bool))
        check_seam(
            lambda ids, said: encoder.append(np.array(ids, np.int32), [said]).ids,
            chat,
            stored,
            text,
        )

    return holds
