"""Hypothesis strategies: tokenizers, spellings, conversations, harnesses and engines gone wrong.

    byte_bpe ──► tiny_chats ──► scripts ──► simulated trials     what a harness really does
    conversations, replays                                       ids alone, no text behind them

All shrink towards fewer turns, fewer tokens, the tokenizer's own spelling and no mutation.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from t1_tito.turn import FinishReason, Turn

from .byte_bpe import ByteBpe
from .engine_faults import EngineFault
from .simulator import Chat, Message, Mutation, MutationKind, Script, Step, simulate
from .spelling import speller_of
from .tiny_chat import TemplateQuirks, TinyChat

_BOOLEANS = st.booleans()
_THREE_BOOLEANS = st.tuples(_BOOLEANS, _BOOLEANS, _BOOLEANS)
_IDS = st.integers(0, 2**31 - 1) | st.integers(0, 3)
_LOGPROBS = st.floats(-50, 0, width=32)

# pieces of text in which merges, whitespace, scripts and normalisation meet
_WORDS = (
    *("a", "b", "ab", "abc", " ", "  ", " a", "\n", "\n\n", "x\n", "\t"),
    *("é", "e\u0301", "🫠", "日本", '{"a": 1}'),
)
_PLAIN_WORDS = [word for word in _WORDS if word.isascii()]


# one token each, so that prompts stay short
_TEMPLATE_WORDS = (b"assistant\n", b"user\n", b"tool", b"system", b'{"name":"f","arguments":')


_PIECES = [word.encode() for word in (*"ab \nab \nab \nc1>é🫠日\u0301", *_WORDS)]
_PAIRS = st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), max_size=12)
_WORD_LISTS = st.lists(st.sampled_from(_WORDS), max_size=4)


@st.composite
def byte_bpe(draw: st.DrawFn, *, normalising: bool = True, dummy_prefix: bool = True) -> ByteBpe:
    """Draw a tokenizer.

    Args:
        draw: supplied by Hypothesis.
        normalising: whether it may normalise text (NFC).
        dummy_prefix: whether it may put spaces in front of text.
    """
    words = tuple(word.encode() for word in draw(_WORD_LISTS))
    merges: list[tuple[bytes, bytes]] = []
    pieces = list(_PIECES)
    for left, right in draw(_PAIRS):
        pair = (pieces[left % len(pieces)], pieces[right % len(pieces)])
        merges.append(pair)
        pieces.append(pair[0] + pair[1])
    nfc, prefix, fallback = draw(_THREE_BOOLEANS)
    return ByteBpe(
        tuple(merges),
        (*_TEMPLATE_WORDS, *words),
        nfc=normalising and nfc,
        dummy_prefix=dummy_prefix and prefix,
        byte_fallback=fallback,
    )


# built once: Hypothesis spends more time on building strategies than on drawing
_TEXTS = st.lists(st.sampled_from(_WORDS), max_size=5).map("".join)
_PLAIN_TEXTS = st.lists(st.sampled_from(_PLAIN_WORDS), max_size=5).map("".join)
_ARGUMENTS = st.sampled_from([None, '{"x":1}', '{"x":1,"y":"a b"}', '{"x": 1}'])
_CHOICES = st.lists(st.integers(0, 7), max_size=8)
_CUTS = st.none() | st.integers(1, 12)


def texts(*, plain: bool = False) -> st.SearchStrategy[str]:
    """Short texts whose tokens depend on their neighbours; `plain` ones are ASCII."""
    return _PLAIN_TEXTS if plain else _TEXTS


def noncanonical(tokenizer: Chat | ByteBpe, ids: Sequence[int]) -> st.SearchStrategy[list[int]]:
    """Other ids that spell the same bytes; shrinks towards the ids given."""
    speller = speller_of(tokenizer.token_bytes)
    return _CHOICES.map(lambda drawn: speller.respell(ids, drawn))


@st.composite
def completions(
    draw: st.DrawFn, tokenizer: Chat | ByteBpe, *, valid_utf8: bool = True, max_size: int = 8
) -> list[int]:
    """Draw what an engine may sample.

    Args:
        draw: supplied by Hypothesis.
        tokenizer: whose ids.
        valid_utf8: False for any ids at all, half characters and control tokens among them.
        max_size: upper bound on the length of ids drawn one by one.
    """
    if valid_utf8:
        ids = [int(token) for token in tokenizer.encode(draw(texts()), add_special_tokens=False)]
        return draw(noncanonical(tokenizer, ids))
    known = np.flatnonzero(tokenizer.token_bytes.known).tolist()
    return draw(st.lists(st.sampled_from(known), min_size=1, max_size=max_size))


@st.composite
def conversations(
    draw: st.DrawFn, *, max_turns: int = 6, splits: bool = True, version: int = 0
) -> list[Turn]:
    """Draw the turns of one trial as ids alone, every prompt given whole.

    About half of the prompts extend what came before, the others open a new stream.

    Args:
        draw: supplied by Hypothesis.
        max_turns: upper bound on the number of turns, >= 1.
        splits: whether a prompt may also leave the stream instead of extending it.
        version: weight version of every turn.
    """
    turns: list[Turn] = []
    before: list[int] = []
    for _ in range(draw(st.integers(1, max_turns))):
        context = draw(st.lists(_IDS, min_size=0 if turns else 1, max_size=6))
        extends = bool(turns) and not (splits and draw(st.booleans()))
        prompt = before + context if extends else context or [draw(_IDS)]
        finish = draw(st.sampled_from(FinishReason))
        least = 1 if finish is FinishReason.STOP else 0
        completion = draw(st.lists(_IDS, min_size=least, max_size=6))
        logprobs = draw(st.lists(_LOGPROBS, min_size=len(completion), max_size=len(completion)))
        turns.append(Turn(prompt, completion, logprobs, version, version, finish))
        before = prompt + completion
    return turns


@st.composite
def replays(draw: st.DrawFn, tokenizer: Chat | ByteBpe, *, max_turns: int = 5) -> list[Turn]:
    """Draw a trial of a harness that replays every id exactly, whatever was sampled.

    Args:
        draw: supplied by Hypothesis.
        tokenizer: whose ids.
        max_turns: upper bound on the number of turns, >= 1.
    """
    turns: list[Turn] = []
    before: list[int] = []
    for index in range(draw(st.integers(1, max_turns))):
        context = draw(completions(tokenizer, valid_utf8=False))
        completion = draw(completions(tokenizer, valid_utf8=False))
        logprobs = [-(1 + 64 * index + k) / 1024 for k in range(len(completion))]
        turns.append(Turn(before + context, completion, logprobs, 0, 0, FinishReason.STOP))
        before = before + context + completion
    return turns


def template_quirk() -> st.SearchStrategy[TemplateQuirks]:
    """Bad habits of chat templates, alone and together; shrinks towards none."""
    return st.builds(
        TemplateQuirks,
        prune_reasoning=st.booleans(),
        strip=st.booleans(),
        scaffold=st.booleans(),
        fold_tools=st.booleans(),
        reserialise=st.booleans(),
        separator=st.sampled_from(["\n", "", " \n", "\n\n"]),
        bos=st.booleans(),
    )


def tiny_chats(
    quirks: st.SearchStrategy[TemplateQuirks] | None = None, *, normalising: bool = True
) -> st.SearchStrategy[TinyChat]:
    """Drawn tokenizers with drawn templates; `normalising` ones may change text before it is cut."""
    drawn = template_quirk() if quirks is None else quirks
    return st.builds(TinyChat, byte_bpe(normalising=normalising, dummy_prefix=normalising), drawn)


def harness_mutation(max_turn: int = 3) -> st.SearchStrategy[Mutation]:
    """What a harness does to its history; shrinks towards nothing."""
    return st.builds(Mutation, st.sampled_from(MutationKind), st.integers(1, max_turn))


_MUTATIONS = harness_mutation()


def engine_fault() -> st.SearchStrategy[EngineFault]:
    """What an engine gets wrong in one reply."""
    return st.sampled_from(EngineFault)


@st.composite
def _assistant_messages(draw: st.DrawFn) -> Message:
    message: dict[str, object] = {"role": "assistant", "content": draw(_TEXTS)}
    reasoning = draw(st.none() | _TEXTS)
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    arguments = draw(_ARGUMENTS)
    if arguments is not None:
        function = {"name": "f", "arguments": arguments}
        message["tool_calls"] = [{"id": "c0", "type": "function", "function": function}]
    return message


_ASSISTANT_MESSAGES = _assistant_messages()
_SYSTEMS = st.none() | _TEXTS


def _opening(said: tuple[str | None, str]) -> tuple[Message, ...]:
    system, user = said
    asked: Message = {"role": "user", "content": user}
    return (asked,) if system is None else ({"role": "system", "content": system}, asked)


_OPENINGS = st.tuples(_SYSTEMS, _TEXTS).map(_opening)


def _answers(texts_: list[str]) -> tuple[Message, ...]:
    return tuple({"role": "tool", "tool_call_id": "c0", "content": text} for text in texts_)


def _asked(text: str) -> tuple[Message, ...]:
    return ({"role": "user", "content": text},)


_TOOL_ANSWERS = st.lists(_TEXTS, min_size=1, max_size=2).map(_answers)
_QUESTIONS = _TEXTS.map(_asked)


def observations(said: Message) -> st.SearchStrategy[tuple[Message, ...]]:
    """What follows an assistant's message: tool answers if it called a tool, else a user."""
    return _TOOL_ANSWERS if said.get("tool_calls") else _QUESTIONS


@st.composite
def dialogues(draw: st.DrawFn, *, max_turns: int = 3) -> list[Message]:
    """Draw a conversation as messages: maybe a system's, a user's, then turns with observations."""
    messages: list[Message] = list(draw(_OPENINGS))
    for _ in range(draw(st.integers(1, max_turns))):
        said = draw(_ASSISTANT_MESSAGES)
        messages += [said, *draw(observations(said))]
    return messages


@st.composite
def scripts(
    draw: st.DrawFn,
    *,
    min_turns: int = 1,
    max_turns: int = 4,
    mutations: st.SearchStrategy[Mutation] | None = None,
    truncates: bool = True,
    replays_ids: bool | None = None,
) -> Script:
    """Draw a script for the simulator.

    Args:
        draw: supplied by Hypothesis.
        min_turns: lower bound on the number of turns.
        max_turns: upper bound on the number of turns, >= 1.
        mutations: what the harness may do; None for any mutation.
        truncates: whether turns may be cut by a limit.
        replays_ids: whether the harness appends to ids; None for either.
    """
    steps: list[Step] = []
    for _ in range(draw(st.integers(min_turns, max_turns))):
        said = draw(_ASSISTANT_MESSAGES)
        steps.append(
            Step(
                message=said,
                observations=draw(observations(said)),
                spelling=tuple(draw(_CHOICES)),
                cut=draw(_CUTS) if truncates else None,
            )
        )
    return Script(
        opening=draw(_OPENINGS),
        steps=tuple(steps),
        mutation=draw(_MUTATIONS if mutations is None else mutations),
        replays_ids=draw(_BOOLEANS) if replays_ids is None else replays_ids,
    )


@dataclass(frozen=True)
class SimulatedTrial:
    """A drawn trial and what it came from.

    Attributes:
        chat: tokenizer and template.
        script: what was said and done.
        turns: what was recorded, every prompt whole.
    """

    chat: Chat
    script: Script
    turns: list[Turn]


_CHATS = tiny_chats()
_SCRIPTS = scripts()


@st.composite
def simulated_trials(
    draw: st.DrawFn,
    chats: st.SearchStrategy[Chat] | None = None,
    scripts_: st.SearchStrategy[Script] | None = None,
) -> SimulatedTrial:
    """Draw a trial as a harness, a template and an engine produce it together.

    Args:
        draw: supplied by Hypothesis.
        chats: tokenizers with templates; None for `tiny_chats`.
        scripts_: scripts; None for `scripts`.
    """
    chat = draw(_CHATS if chats is None else chats)
    script = draw(_SCRIPTS if scripts_ is None else scripts_)
    return SimulatedTrial(chat, script, simulate(chat, script))
