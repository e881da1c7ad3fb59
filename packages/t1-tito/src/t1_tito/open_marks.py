"""Open marks: the thought or tool call that a cut turn left unfinished.

A pair of marks is two special tokens spelled alike but for a slash, `<think>` and `</think>`. What the
model opened and did not close is closed by whoever continues the turn; text behind an open
`<think>` would read as thought.
"""

from collections.abc import Collection, Iterable

from .token_bytes import TokenBytes
from .turn import Turn


def closing_mark(opening: str) -> str:
    """The literal that closes what this one opens."""
    return f"{opening[:1]}/{opening[1:]}"


def is_mark(literal: str, literals: Collection[str]) -> bool:
    """Whether a special token opens or closes a pair."""
    opening = literal[:1] + literal[2:] if literal[1:2] == "/" else literal
    return opening in literals and closing_mark(opening) in literals


class OpenMarks:
    """Finds what a turn left open.

    Args:
        token_bytes: for the spelling of special tokens.
        opener: text that opens an assistant turn; marks in it count, as in a prompt that ends in
            `<think>`.
    """

    def __init__(self, token_bytes: TokenBytes, opener: str) -> None:
        self._literals = token_bytes.special_text
        ids = {text: token for token, text in self._literals.items()}
        self._closer_of = {
            token: ids[closing_mark(text)]
            for text, token in ids.items()
            if closing_mark(text) in ids
        }
        heads = [(len(text), token) for text, token in ids.items() if opener.startswith(text)]
        self._head = max(heads)[1] if heads else None

    def left_open(self, turn: Turn) -> list[str]:
        """Opening literals without their closing ones, outermost first."""
        opened: list[int] = []
        closers = set(self._closer_of.values())
        for token in self._said(turn):
            if token in self._closer_of:
                opened.append(token)
            elif token in closers:
                places = [i for i, mark in enumerate(opened) if self._closer_of[mark] == token]
                # what stands inside of a closed pair is closed with it
                opened = opened[: places[-1]] if places else opened
        return [self._literals[mark] for mark in opened]

    def _said(self, turn: Turn) -> Iterable[int]:
        """Ids of the assistant's turn: its opener, where it is known by a first token, and on."""
        completion = turn.completion_ids.tolist()
        if self._head is None:
            return completion
        prompt = turn.prompt_ids.tolist()
        if self._head not in prompt:
            return completion
        start = len(prompt) - 1 - prompt[::-1].index(self._head)
        return prompt[start:] + completion
