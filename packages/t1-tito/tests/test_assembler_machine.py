"""The machine holds for the assembler, and finds what is wrong with faulty ones."""

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from t1_tito import Assembler, FidelityError, Policy
from t1_tito.testing import assembler_machine

REWRITE = Policy(repair="rewrite")


class CountingMachine(assembler_machine(Assembler)):
    """Also holds the assembler to its counts."""

    @invariant()
    def its_counts_are_those_of_the_turns(self):
        for trial in (self.trial, *self.kept):
            assert trial.assembler.turn_count == len(trial.turns)
            assert trial.assembler.length == len(trial.spoken)


TestAssembler = CountingMachine.TestCase
TestAssembler.settings = settings(max_examples=40, stateful_step_count=12, deadline=None)

TestRewritingAssembler = assembler_machine(
    lambda table: Assembler(table, policy=REWRITE), policy=REWRITE
).TestCase
TestRewritingAssembler.settings = TestAssembler.settings


class Sharing(Assembler):
    """Snapshots share the boundaries of the original."""

    def snapshot(self):
        twin = super().snapshot()
        twin._state.boundaries = self._state.boundaries
        return twin


class Careless(Assembler):
    """Takes in a turn before it refuses it."""

    def add(self, turn, *, fork=False):
        if turn.base_length > self.length and self.turn_count:
            self._state.records.append(self._state.records[-1])
        return super().add(turn, fork=fork)


class Repeating(Assembler):
    """Branches train again what the trial trains."""

    def fork(self):
        return self.snapshot()


class Leaking(Assembler):
    """What a branch says becomes history of the trial that it left."""

    def fork(self):
        twin = super().fork()
        twin._state.history = self._state.history
        return twin


class Overlooking(Assembler):
    """Does not open a chunk where it is told to."""

    def add(self, turn, *, fork=False):
        return super().add(turn)


class Trusting(Assembler):
    """Refuses nothing."""

    def _check(self, index, turn):
        pass


@pytest.mark.parametrize("faulty", [Sharing, Careless, Repeating, Leaking, Overlooking, Trusting])
def test_the_machine_finds_a_faulty_assembler(faulty):
    with pytest.raises(FidelityError) as caught:
        run(assembler_machine(faulty))
    assert caught.value.invariant == "machine"


def test_the_machine_finds_an_assembler_of_another_policy():
    with pytest.raises(FidelityError):
        run(assembler_machine(Assembler, policy=REWRITE))


def run(machine):
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=200,
            stateful_step_count=12,
            deadline=None,
            database=None,
            derandomize=True,
            report_multiple_bugs=False,
            phases=[Phase.generate],
        ),
    )
