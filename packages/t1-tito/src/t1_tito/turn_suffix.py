r"""The turn suffix: the text that follows an assistant turn, rendered without the history before it.

A template is asked for a conversation of three parts: a user's line, a *stub* of the assistant turn
(the stored turn's tool calls, and a word as its content), and the appended messages. What stands
behind the stub's word is the end of the assistant turn, the appended messages, and the opener of the
next turn, whatever came before. Of that, the model has sampled the first token itself:

    Qwen     word <|im_end|> \n <|im_start|>user ...     the rest begins behind <|im_end|>
    GLM      word <|user|> \n ...                        no closing token; the stop token is the header
    harmony  word <|end|> <|start|> ...                  <|return|>, which was sampled, stands for <|end|>

A turn that was cut is closed first: by what closes an open thought or tool call, and by the token
that the template ends turns with. This text is *synthetic*.

Whether the suffix really is independent of the history is a property of the template, which
`t1_tito.template_check` tries.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .chat_tokenizer import ChatTemplate, Message
from .errors import SeamError, TemplateError
from .inert_text import InertText
from .open_marks import closing_mark, is_mark
from .template_probes import STUB, common_length
from .token_bytes import TokenBytes

OPENING: tuple[Message, ...] = ({"role": "user", "content": "x"},)


@dataclass(frozen=True)
class TurnSuffix:
    """Text to append to a stored turn.

    Attributes:
        synthetic: text that closes a cut turn, "" where it had ended.
        pieces: the text behind it, up to and with the opener of the next assistant turn; cut where
            a control-token literal was made inert. At least one.
    """

    synthetic: str
    pieces: tuple[str, ...]


class SuffixRenderer:
    """Renders what follows an assistant turn, in time independent of the history's length.

    Args:
        template: the chat template with its tools and arguments.
        token_bytes: for the spelling of control tokens.
        stop_ids: ids that end a turn; empty: those that the template itself ends turns with.
        inert: what is done to control-token literals in messages.

    Raises:
        SeamError: a stop id is not a special token.
        TemplateError: the template does not render a user's line and an answer.

    Attributes:
        stop_ids: as given or found.
        opener: text that opens an assistant turn.
        rendered_characters: characters that the template has rendered so far.
    """

    def __init__(
        self,
        template: ChatTemplate,
        token_bytes: TokenBytes,
        stop_ids: frozenset[int],
        inert: InertText,
    ) -> None:
        self.rendered_characters = 0
        self._template = template
        self._literals = dict(token_bytes.special_text)
        self._inert = inert
        text_stops = sorted(stop_ids - set(self._literals))
        if text_stops:
            raise SeamError(f"stop id {text_stops[0]} is not a special token of the byte table")
        self._endings: dict[tuple[str, ...], str] = {}
        self.stop_ids = stop_ids or self._found_stop_ids()
        self.opener = self._found_opener()
        self._reasoning_closer = self._found_reasoning_closer()

    @property
    def ending(self) -> str:
        """Text behind an assistant's content where no message follows."""
        return self._ending({"role": "assistant", "content": STUB})

    def opening(self, messages: Sequence[Message]) -> list[str]:
        """Text of a conversation that nothing is stored of, in pieces, with the assistant's opener."""
        marked, mark, count = self._inert.marked(messages)
        text = self._render(marked, generation_prompt=True)
        return self._inert.pieces(text, mark, count)

    def history_opener(self) -> str:
        """Text between a user's line and an assistant's content once further messages follow."""
        before = self._render(OPENING)
        text = self._render([*OPENING, self._stub({}), *OPENING])
        return text.partition(STUB)[0].removeprefix(before)

    def after(
        self, stored: Message, appended: Sequence[Message], last_id: int, open_marks: Sequence[str]
    ) -> TurnSuffix:
        """What follows a stored assistant message.

        Args:
            stored: the assistant message as the harness knows it; only its tool calls matter.
            appended: messages behind it.
            last_id: the last stored id; the turn has ended if it is a stop id.
            open_marks: opening literals that the turn left open, outermost first.

        Raises:
            TemplateError: the template does not render this.
            SeamError: it renders the stub in another way once messages follow.
        """
        stub = self._stub(stored)
        ending = self._ending(stub)
        marked, mark, count = self._inert.marked(appended)
        rendered = self._render([*OPENING, stub, *marked], generation_prompt=True)
        tail = self._behind_stub(rendered)
        shared = ending[: common_length(ending, tail)]
        body, close = self._closing(ending, tail, shared)
        synthetic = ""
        if last_id not in self.stop_ids:
            synthetic = self._closers(open_marks) + tail[body : body + close]
            rest = tail[body + close :]
        elif self._literals[last_id] in shared:
            rest = tail[shared.rindex(self._literals[last_id]) + len(self._literals[last_id]) :]
        elif close:
            # the sampled stop token stands for the one that the template writes
            rest = tail[body + close :]
        else:
            # no closing token: the stop token may be the next header already
            rest = tail[body:].removeprefix(self._literals[last_id])
        return TurnSuffix(synthetic, tuple(self._inert.pieces(rest, mark, count)))

    def _closing(self, ending: str, tail: str, shared: str) -> tuple[int, int]:
        """Where the turn's closing token stands in the tail, and its length; 0 where none does."""
        body, close = self._last_stop(shared)
        if close:
            return body, close
        body, close = self._last_stop(ending)
        if not tail.startswith(ending[:body]):
            raise SeamError(
                "the chat template renders an assistant turn in another way once messages follow: "
                f"{ending[:body][:80]!r} became {tail[:80]!r}"
            )
        # another token may close the turn here, if a header follows it; else it is that header
        other = self._special_length(tail, body) if close else 0
        behind = tail[body + other :]
        space = len(behind) - len(behind.lstrip())
        return body, other if other and self._special_length(behind, space) else 0

    def _last_stop(self, ending: str) -> tuple[int, int]:
        found = [(len(ending), 0)]
        for stop in self.stop_ids:
            literal = self._literals[stop]
            place = ending.rfind(literal)
            if place >= 0:
                found.append((place, len(literal)))
        return max(found[1:], default=found[0])

    def _special_length(self, text: str, start: int) -> int:
        """Length of the longest control-token literal at that place, 0 where there is none."""
        fitting = (len(lit) for lit in self._literals.values() if text.startswith(lit, start))
        return max(fitting, default=0)

    def _ending(self, stub: Message) -> str:
        """Text behind the stub's word where no message follows."""
        key = tuple(_call_key(call) for call in stub.get("tool_calls", ()))
        if key not in self._endings:
            self._endings[key] = self._behind_stub(self._render([*OPENING, stub]))
        return self._endings[key]

    def _behind_stub(self, text: str) -> str:
        _, found, behind = text.partition(STUB)
        if not found:
            raise TemplateError("the chat template leaves out an assistant message's content")
        return behind

    def _stub(self, stored: Message) -> dict[str, Any]:
        stub: dict[str, Any] = {"role": "assistant", "content": STUB}
        if stored.get("tool_calls"):
            stub["tool_calls"] = [_without_arguments(call) for call in stored["tool_calls"]]
        return stub

    def _render(self, messages: Sequence[Message], *, generation_prompt: bool = False) -> str:
        text = self._template.render(messages, generation_prompt=generation_prompt)
        self.rendered_characters += len(text)
        return text

    def _closers(self, open_marks: Sequence[str]) -> str:
        return "".join(self._closer(mark) for mark in reversed(open_marks))

    def _closer(self, mark: str) -> str:
        closing = closing_mark(mark)
        return self._reasoning_closer if closing in self._reasoning_closer else f"\n{closing}"

    def _found_stop_ids(self) -> frozenset[int]:
        """The last control token behind an answer and behind a tool call, and the end of text."""
        eos = self._template.eos_id
        found = {eos} if eos is not None and eos in self._literals else set[int]()
        # a mark such as </tool_call> ends a part of a turn, never the turn
        spelled = set(self._literals.values())
        marks = {text for text in spelled if is_mark(text, spelled)}
        for ending in self._endings_in_use():
            places = {
                ending.rfind(text): token
                for token, text in self._literals.items()
                if text not in marks
            }
            last = max(places, default=-1)
            if last >= 0:
                found.add(places[last])
        return frozenset(found)

    def _endings_in_use(self) -> Iterator[str]:
        """What the template puts behind an answer, behind a tool call, and where messages follow."""
        yield self.ending
        # some templates write the end of text only where nothing follows
        stub = self._stub({})
        followed = self._behind_stub(self._render([*OPENING, stub, *OPENING]))
        yield self.ending[: common_length(self.ending, followed)]
        call = {"id": "call00000", "type": "function", "function": {"name": "f", "arguments": {}}}
        try:
            yield self._ending(self._stub({"tool_calls": [call]}))
        except TemplateError:
            # a template without tools; its turns end in one way
            return

    def _found_opener(self) -> str:
        without = self._render(OPENING)
        opened = self._render(OPENING, generation_prompt=True)
        return opened.removeprefix(without) if opened.startswith(without) else ""

    def _found_reasoning_closer(self) -> str:
        """Text between a thought and the content behind it, "" where the template shows none."""
        thought = "t1titothought"
        try:
            text = self._render(
                [*OPENING, {"role": "assistant", "content": STUB, "reasoning_content": thought}]
            )
        except TemplateError:
            # a template without reasoning may refuse the field; there is nothing to close then
            return ""
        _, found, behind = text.partition(thought)
        between, also_found, _ = behind.partition(STUB)
        return between if found and also_found else ""


def _without_arguments(call: Message) -> dict[str, Any]:
    """The tool call with no arguments: its name and id may matter to what follows, these do not."""
    if "function" in call:
        return {**call, "function": {**call["function"], "arguments": {}}}
    return {**call, "arguments": {}}


def _call_key(call: Message) -> str:
    return repr(sorted(_without_arguments(call).items(), key=lambda item: item[0]))
