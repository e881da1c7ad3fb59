"""The machine holds for sessions, and finds what is wrong with faulty ones."""

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from t1_tito import FidelityError
from t1_tito.session import Session
from t1_tito.template_pin import pin_template
from t1_tito.testing import session_machine
from t1_tito.tiny import tiny_tokenizer

TINY = tiny_tokenizer()
TABLE = TINY.token_bytes
PIN = pin_template(TINY, token_bytes=TABLE)


def machine_of(kind):
    return session_machine(lambda: kind(TINY, token_bytes=TABLE, pin=PIN), TABLE)


class TinyMachine(machine_of(Session)):
    @invariant()
    def the_tiny_template_is_never_refused(self):
        assert not self.refused


TestSession = TinyMachine.TestCase
TestSession.settings = settings(max_examples=25, stateful_step_count=8, deadline=None)


class Forgetful(Session):
    """Leaves the last branch out of its trial."""

    def _ordered(self):
        return list(super()._ordered())[:1]


class Encoding(Session):
    """Encodes the text of history again."""

    def prompt(self, messages):
        prompt = super().prompt(messages)
        again = TINY.encode(TABLE.text(prompt.ids))
        if prompt.node is not None:
            object.__setattr__(prompt, "new_ids", np.array(again, np.int32))
            object.__setattr__(prompt, "base_length", 0)
        return prompt


class Greedy(Session):
    """Takes every history to go on from the last turn."""

    def prompt(self, messages):
        if self.nodes:
            return self.extend(len(self.nodes) - 1, messages[-1:])
        return super().prompt(messages)


@pytest.mark.parametrize("faulty", [Forgetful, Encoding, Greedy])
def test_the_machine_finds_a_faulty_session(faulty):
    with pytest.raises(FidelityError) as caught:
        run_state_machine_as_test(
            machine_of(faulty),
            settings=settings(
                max_examples=100,
                stateful_step_count=8,
                deadline=None,
                database=None,
                derandomize=True,
                report_multiple_bugs=False,
                phases=[Phase.generate],
            ),
        )
    assert caught.value.invariant == "machine"
