"""A harness in miniature: from a script of messages to the turns an engine would have recorded.

    script (messages, how they are sampled)  ->  model spells ids  ->  harness edits history
          ^                                                                    |
          +------------------------ next prompt, by text or by ids ------------+

A text harness decodes what was sampled, keeps messages, and renders and encodes the whole history
for every turn. A harness that replays ids appends to them. A `Mutation` is what a harness does to
its history at one turn. Everything random is in the script, so that a script gives the same turns
again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from t1_tito.token_bytes import TokenBytes
from t1_tito.turn import FinishReason, Turn

from .reference import whole_prompts
from .spelling import speller_of

Message = Mapping[str, Any]


class Chat(Protocol):
    """A chat tokenizer with its byte table, such as `TinyChat`."""

    @property
    def token_bytes(self) -> TokenBytes:
        """The bytes behind every id."""
        ...

    def apply_chat_template(self, conversation: Any, **arguments: Any) -> Any:
        """Render messages."""
        ...

    def encode(self, text: Any, **arguments: Any) -> Any:
        """Encode text into ids."""
        ...


class MutationKind(StrEnum):
    """What a harness does to its history before one request."""

    NONE = "none"
    """Nothing."""
    RESERIALISE = "reserialise"
    """Writes the arguments of earlier tool calls in another JSON style."""
    PRUNE = "prune"
    """Drops earlier reasoning."""
    ROLLBACK = "rollback"
    """Goes back to before the last assistant message."""
    COMPACT = "compact"
    """Replaces everything by the first message and a summary."""
    DROP_TURN = "drop_turn"
    """Forgets the first assistant message and what was observed after it."""
    INJECT_SPECIAL = "inject_special"
    """Lets the text of a control token into an observation."""
    LOSE_TRUNCATED_TURN = "lose_truncated_turn"
    """Cuts the turn by a limit, records no turn, and keeps its text in history."""


@dataclass(frozen=True)
class Mutation:
    """A mutation and the turn before which it happens; a turn >= 1."""

    kind: MutationKind = MutationKind.NONE
    turn: int = 1


@dataclass(frozen=True)
class Step:
    """One turn of a script.

    Attributes:
        message: what the model says.
        observations: user or tool messages that follow.
        spelling: choices for `Speller.respell`; () for the tokenizer's own spelling.
        cut: how many ids are sampled before a limit stops the turn; None to reach the stop token.
    """

    message: Message
    observations: tuple[Message, ...] = ()
    spelling: tuple[int, ...] = ()
    cut: int | None = None


@dataclass(frozen=True)
class Script:
    """Everything that decides how a trial goes.

    Attributes:
        opening: messages before the first turn.
        steps: the turns, at least one.
        mutation: what the harness does, once.
        replays_ids: whether the harness appends to ids instead of encoding its history again.
    """

    opening: tuple[Message, ...]
    steps: tuple[Step, ...]
    mutation: Mutation = Mutation()
    replays_ids: bool = False


def stop_id_of(chat: Chat) -> int:
    """The special id with which the template ends an assistant's message.

    Raises:
        ValueError: there is none.
    """
    probe = ({"role": "user", "content": "q"}, {"role": "assistant", "content": "zxz"})
    text = _render(chat, probe)
    ids = _encode(chat, text[text.rindex("zxz") :])
    for token in ids:
        if token in chat.token_bytes.special_text:
            return token
    raise ValueError("the chat template ends an assistant's message without a special token")


def simulate(chat: Chat, script: Script, *, version: int = 0) -> list[Turn]:
    """Play a script.

    The log-probability of token k of turn i is -(1 + 64 i + k) / 1024: in small trials each is unique,
    so that a misplaced one is seen.

    Args:
        chat: the tokenizer and template that model and harness share.
        script: what is said and done.
        version: weight version of every turn.

    Returns:
        The recorded turns, each with its whole prompt; fewer than steps where one is lost.
    """
    return _Harness(chat, script, version).play()


class _Harness:
    def __init__(self, chat: Chat, script: Script, version: int) -> None:
        self._chat, self._script, self._version = chat, script, version
        self._stop = stop_id_of(chat)
        self._speller = speller_of(chat.token_bytes)
        self._history: list[Message] = list(script.opening)
        self._before_last: list[Message] = []
        # ids of everything up to the last message, while nothing was edited
        self._ids: list[int] | None = None
        self._turns: list[Turn] = []

    def play(self) -> list[Turn]:
        for number, step in enumerate(self._script.steps):
            mutated = number > 0 and number == self._script.mutation.turn
            kind = self._script.mutation.kind if mutated else MutationKind.NONE
            if kind in _EDITS:
                edited = _EDITS[kind](self._history, self._before_last)
                if edited != self._history:
                    self._history, self._ids = edited, None
            self._take(step, kind)
        return self._turns

    def _take(self, step: Step, kind: MutationKind) -> None:
        loses = kind is MutationKind.LOSE_TRUNCATED_TURN and len(self._script.steps) > 1
        prompt = self._prompt()
        completion, is_whole = self._sample(step, cut=step.cut if not loses else step.cut or 1)
        finish = FinishReason.STOP if is_whole else FinishReason.LENGTH
        if not loses:
            logprobs = [-(1 + 64 * len(self._turns) + k) / 1024 for k in range(len(completion))]
            version = self._version
            turn = Turn(prompt, completion, logprobs, version, version, finish)
            self._turns.append(turn)
        said = step.message
        if not is_whole:
            said = {"role": "assistant", "content": self._chat.token_bytes.text(completion)}
        self._before_last = list(self._history)
        self._history.append(said)
        self._ids = prompt + completion if self._script.replays_ids and is_whole else None
        observations: list[Message] = list(step.observations)
        if kind is MutationKind.INJECT_SPECIAL:
            literal = self._chat.token_bytes.special_text[self._stop]
            observations = [{**m, "content": f"{m['content']}{literal}x"} for m in observations]
        self._observe(observations)

    def _observe(self, observations: list[Message]) -> None:
        before = _render(self._chat, self._history)
        self._history += observations
        if self._ids is None:
            return
        after = _render(self._chat, self._history)
        literal = self._chat.token_bytes.special_text[self._stop]
        closed = before.rfind(literal) + len(literal)
        # what was rendered so far must not change when more is appended
        if closed < len(literal) or not after.startswith(before[:closed]):
            self._ids = None
            return
        # without the generation prompt, which the next prompt brings along
        self._ids += _encode(self._chat, after[closed:])

    def _prompt(self) -> list[int]:
        opened = _render(self._chat, self._history, generation_prompt=True)
        if self._ids is None:
            return _encode(self._chat, opened)
        closed = _render(self._chat, self._history)
        if not opened.startswith(closed):
            return _encode(self._chat, opened)
        return self._ids + _encode(self._chat, opened[len(closed) :])

    def _sample(self, step: Step, cut: int | None) -> tuple[list[int], bool]:
        opened = _render(self._chat, self._history, generation_prompt=True)
        whole = _render(self._chat, [*self._history, step.message])
        shared = next(
            (i for i, (x, y) in enumerate(zip(opened, whole, strict=False)) if x != y),
            min(len(opened), len(whole)),
        )
        ids = _encode(self._chat, whole[shared:])
        ids = ids[: ids.index(self._stop) + 1] if self._stop in ids else [*ids, self._stop]
        ids = self._speller.respell(ids, step.spelling)
        if cut is None or cut >= len(ids):
            return ids, True
        return ids[:cut], False


def _render(chat: Chat, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
    plain = [dict(message) for message in messages]
    text = chat.apply_chat_template(
        plain, tools=None, tokenize=False, add_generation_prompt=generation_prompt
    )
    return str(text)


def _encode(chat: Chat, text: str) -> list[int]:
    return [int(token) for token in chat.encode(text, add_special_tokens=False)]


_Edit = Callable[[list[Message], list[Message]], list[Message]]


def _reserialise(history: list[Message], before_last: list[Message]) -> list[Message]:
    return [_with_other_json(message) for message in history]


def _with_other_json(message: Message) -> Message:
    if not message.get("tool_calls"):
        return message
    calls: list[Message] = []
    for call in message["tool_calls"]:
        function = call["function"]
        arguments = function["arguments"]
        parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
        style = json.dumps(parsed, indent=1)
        calls.append({**call, "function": {**function, "arguments": style}})
    return {**message, "tool_calls": calls}


def _prune(history: list[Message], before_last: list[Message]) -> list[Message]:
    return [
        {key: value for key, value in message.items() if key != "reasoning_content"}
        for message in history
    ]


def _rollback(history: list[Message], before_last: list[Message]) -> list[Message]:
    return before_last


def _compact(history: list[Message], before_last: list[Message]) -> list[Message]:
    return [*history[:1], {"role": "user", "content": "summary: go on"}]


def _drop_turn(history: list[Message], before_last: list[Message]) -> list[Message]:
    said = [i for i, message in enumerate(history) if message["role"] == "assistant"]
    end = said[1] if len(said) > 1 else len(history)
    return [*history[: said[0]], *history[end:]] if said[0] else history


_EDITS: dict[MutationKind, _Edit] = {
    MutationKind.RESERIALISE: _reserialise,
    MutationKind.PRUNE: _prune,
    MutationKind.ROLLBACK: _rollback,
    MutationKind.COMPACT: _compact,
    MutationKind.DROP_TURN: _drop_turn,
}


def as_delta(turns: Sequence[Turn]) -> list[Turn]:
    """The same turns, each prompt given as what it adds to the turn before it where it can be."""
    given: list[Turn] = []
    before: list[int] = []
    for turn, prompt in zip(turns, whole_prompts(turns), strict=True):
        shared = 0
        while shared < min(len(before), len(prompt)) and before[shared] == prompt[shared]:
            shared += 1
        # invented ids must stay among those that are given
        shared = min(shared, turn.base_length) if turn.synthetic_length else shared
        given.append(_with_prompt(turn, prompt[shared:], shared))
        before = prompt + turn.completion_ids.tolist()
    return given


def as_full(turns: Sequence[Turn]) -> list[Turn]:
    """The same turns, every prompt given whole; ids that a renderer invented count as ordinary."""
    prompts = whole_prompts(turns)
    return [_with_prompt(turn, prompt, 0) for turn, prompt in zip(turns, prompts, strict=True)]


def _with_prompt(turn: Turn, prompt: list[int], base_length: int) -> Turn:
    kept = turn.synthetic_length if base_length == turn.base_length else 0
    return Turn(
        prompt,
        turn.completion_ids,
        turn.logprobs,
        turn.version_sent,
        turn.version_received,
        turn.finish_reason,
        base_length=base_length,
        synthetic_length=kept,
    )
