"""A stateful machine: a session of yours, with your template, against a list of what was sent.

    TestMine = session_machine(lambda: Session(tokenizer), token_bytes).TestCase

The harness goes on from the last turn or from an earlier one, edits an answer, starts afresh, writes
the same message in another way, and samples a prompt twice. The model is a list of turns: the
messages, the ids that were sent and those that came back. After every step the trial holds each
sampled token once, with loss and its log-probability, behind exactly the ids that were sent for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from t1_tito.errors import FidelityError, SeamError
from t1_tito.session import Session
from t1_tito.session_prompt import Prompt
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Trial, TurnRecord

Messages = list[dict[str, Any]]

_TEXTS = st.text(st.sampled_from("ab \n\té🫠<|im_end|>think/"), max_size=12)
_NEW = st.lists(st.tuples(st.sampled_from(["user", "tool"]), _TEXTS), min_size=1, max_size=3)
_IDS = st.lists(st.integers(0, 1 << 20), max_size=8)
_FINISHES = st.sampled_from(["stop", "length", "abort"])


@dataclass(frozen=True)
class RecordedTurn:
    """What the model knows of a turn.

    Attributes:
        history: the messages up to and with its answer.
        sent: the ids that went to the engine.
        sampled: the ids that came back.
        logprobs: of each.
    """

    history: Messages
    sent: list[int]
    sampled: list[int]
    logprobs: list[float]


class SessionMachine(RuleBasedStateMachine):
    """The rules; `session_machine` says on what they are run.

    Attributes:
        turns: the recorded turns.
        refused: prompts that the session refused because it could not prove their ids.
    """

    make: Callable[[], Session]
    token_bytes: TokenBytes

    def __init__(self) -> None:
        super().__init__()
        self.session = self.make()
        self.turns: list[RecordedTurn] = []
        self.refused = 0
        stops = self.session.stop_ids
        self._usable = [
            i for i in np.flatnonzero(self.token_bytes.known).tolist() if i not in stops
        ]

    def _ask(self, history: Messages, new: Sequence[tuple[str, str]]) -> tuple[Messages, Prompt]:
        messages = [*history, *({"role": role, "content": text} for role, text in new)]
        return messages, self.session.prompt(messages)

    def _record(self, messages: Messages, prompt: Prompt, chosen: list[int], finish: str) -> None:
        ids = [self._usable[choice % len(self._usable)] for choice in chosen]
        if finish == "stop":
            ids.append(min(self.session.stop_ids))
        # every sampled token has a log-probability of its own
        logprobs = [-(1 + k + 64 * len(self.turns)) / 1024 for k in range(len(ids))]
        answer = {"role": "assistant", "content": self.token_bytes.text(ids)}
        index = self.session.record(prompt, ids, logprobs, 3, 3, finish, answer)
        if index != len(self.turns):
            raise _broken(f"turn {len(self.turns)} was recorded as turn {index}")
        history = [*messages, answer]
        self.turns.append(RecordedTurn(history, prompt.ids.tolist(), ids, logprobs))

    @rule(new=_NEW, chosen=_IDS, finish=_FINISHES)
    def the_harness_starts_afresh(
        self, new: list[tuple[str, str]], chosen: list[int], finish: str
    ) -> None:
        """As after a compaction: nothing of history is left."""
        # no other history begins like this
        opening: Messages = [{"role": "system", "content": f"summary {len(self.turns)}"}]
        try:
            messages, prompt = self._ask(opening, new)
        except SeamError:
            self.refused += 1
            return
        if prompt.parent is not None:
            raise _broken(f"a new history was taken to continue turn {prompt.parent}")
        self._record(messages, prompt, chosen, finish)

    @precondition(lambda self: self.turns)
    @rule(back=st.integers(0, 3), new=_NEW, chosen=_IDS, finish=_FINISHES, again=st.booleans())
    def the_harness_goes_on(
        self, back: int, new: list[tuple[str, str]], chosen: list[int], finish: str, again: bool
    ) -> None:
        """From the last turn, or from an earlier one; maybe the prompt is sampled twice."""
        history = self.turns[-1 - back % len(self.turns)].history
        # the same messages as another client writes them
        spelled = [{"tool_calls": None, **dict(reversed(message.items()))} for message in history]
        try:
            _, prompt = self._ask(spelled, new)
        except SeamError:
            self.refused += 1
            return
        self._check_parent(prompt, history)
        messages = [*history, *({"role": role, "content": text} for role, text in new)]
        self._record(messages, prompt, chosen, finish)
        if again:
            self._record(messages, prompt, chosen[:1], "stop")

    @precondition(lambda self: self.turns)
    @rule(new=_NEW, chosen=_IDS, finish=_FINISHES)
    def the_harness_edits_the_last_answer(
        self, new: list[tuple[str, str]], chosen: list[int], finish: str
    ) -> None:
        """What was never sampled must not be taken for what was."""
        history = [*self.turns[-1].history[:-1], {"role": "assistant", "content": "edited by hand"}]
        try:
            messages, prompt = self._ask(history, new)
        except SeamError:
            self.refused += 1
            return
        if prompt.parent is not None and self.turns[prompt.parent].history == history:
            raise _broken(f"an edited answer was taken for that of turn {prompt.parent}")
        self._record(messages, prompt, chosen, finish)

    @precondition(lambda self: self.turns)
    @rule(back=st.integers(0, 3))
    def a_prompt_without_news_is_refused(self, back: int) -> None:
        """Nothing has changed afterwards."""
        try:
            self.session.prompt(self.turns[-1 - back % len(self.turns)].history)
        except SeamError:
            return
        raise _broken("a history that ends in an answer was not refused")

    def _check_parent(self, prompt: Prompt, history: Messages) -> None:
        parent = None if prompt.parent is None else self.turns[prompt.parent]
        if parent is None or parent.history != history:
            raise _broken(f"a replayed history was taken to continue turn {prompt.parent}")
        stored = parent.sent + parent.sampled
        if prompt.ids[: len(stored)].tolist() != stored:
            raise _broken(f"the prompt does not begin with the ids of turn {prompt.parent}")

    @invariant()
    def every_sampled_token_is_trained_once_behind_what_was_sent(self) -> None:
        """Over all branches."""
        if not self.turns:
            return
        trial, order = self.session.trial(), self.session.turn_order()
        count = len(self.turns)
        if sorted(order) != list(range(count)) or len(trial.turns) != count:
            raise _broken(f"of {count} turns the trial holds {len(trial.turns)}, in order {order}")
        for index, record in zip(order, trial.turns, strict=True):
            _check_turn(trial, record, self.turns[index])
        trained = sum(int(chunk.loss_mask.sum()) for chunk in trial.chunks)
        sampled = sum(len(turn.sampled) for turn in self.turns)
        if trained != sampled:
            raise _broken(f"{sampled} tokens were sampled, {trained} are trained")


def _check_turn(trial: Trial, record: TurnRecord, turn: RecordedTurn) -> None:
    chunk = trial.chunks[record.chunk]
    place = slice(record.start, record.start + len(turn.sampled))
    same = (
        ("the ids before it", chunk.tokens[: record.start], turn.sent),
        ("its ids", chunk.tokens[place], turn.sampled),
        ("its log-probabilities", chunk.logprobs[place], turn.logprobs),
        ("its loss", chunk.loss_mask[place], [True] * len(turn.sampled)),
    )
    for what, found, expected in same:
        if found.tolist() != expected:
            problem = f"{what} are {found.tolist()}, sent and sampled were {expected}"
            raise FidelityError("machine", record.chunk, record.start, problem)


def _broken(problem: str) -> FidelityError:
    return FidelityError("machine", None, None, problem)


def session_machine(make: Callable[[], Session], token_bytes: TokenBytes) -> type[SessionMachine]:
    """A state machine for Hypothesis that drives sessions as harnesses do.

    A prompt that a session refuses by `SeamError` must leave it as it was; it breaks nothing.

    Args:
        make: a new session.
        token_bytes: the byte table of its tokenizer.
    """
    given = {"make": staticmethod(make), "token_bytes": token_bytes, "__module__": __name__}
    return type("Machine", (SessionMachine,), given)
