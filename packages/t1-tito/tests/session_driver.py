"""Drives a session as a harness does, and checks what comes out of it against what was sent."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from t1_tito import BoundaryCase, Reason
from t1_tito.audit import audit
from t1_tito.session import Session
from t1_tito.session_prompt import Prompt


@dataclass
class Driver:
    """A harness: it keeps histories of messages and sends them whole.

    Attributes:
        session: under test.
        histories: for each recorded turn, the messages up to and with its answer.
        sent: for each recorded turn, the ids that went to the engine.
        sampled: for each recorded turn, the ids that came back.
    """

    session: Session
    histories: list[list[dict[str, Any]]] = field(default_factory=list)
    sent: list[np.ndarray] = field(default_factory=list)
    sampled: list[list[int]] = field(default_factory=list)

    def turn(
        self,
        messages: list[dict[str, Any]],
        completion: list[int],
        answer: dict[str, Any],
        finish: str = "stop",
    ) -> Prompt:
        """Send a history, have `completion` sampled, and record it."""
        prompt = self.session.prompt(messages)
        self.sent.append(prompt.ids.copy())
        self.sampled.append(completion)
        logprobs = np.linspace(-1, -0.1, len(completion), dtype=np.float32)
        self.session.record(prompt, completion, logprobs, 3, 3, finish, answer)
        self.histories.append([*messages, answer])
        return prompt


def check_exact(driver: Driver) -> None:
    """Each sampled token is trained once, behind exactly the ids that were sent for it."""
    session = driver.session
    trial = session.trial()
    order = session.turn_order()
    assert sorted(order) == list(range(len(driver.sent))), "a turn is missing or doubled"
    trained = 0
    for node, record in zip(order, trial.turns, strict=True):
        chunk = trial.chunks[record.chunk]
        before = chunk.tokens[: record.start]
        np.testing.assert_array_equal(before, driver.sent[node], "conditioning differs")
        place = slice(record.start, record.start + len(driver.sampled[node]))
        np.testing.assert_array_equal(chunk.tokens[place], driver.sampled[node])
        assert chunk.loss_mask[place].all()
        trained += record.completion_length
    assert sum(int(chunk.loss_mask.sum()) for chunk in trial.chunks) == trained
    for boundary in trial.boundaries:
        assert boundary.case is BoundaryCase.STRICT or boundary.reason is Reason.FORK
    report = audit(trial, session.turns)
    assert not report.findings
    assert report.emission_drift == 0
    assert report.context_drift == 0
    assert report.conditioning_exact == 1.0
