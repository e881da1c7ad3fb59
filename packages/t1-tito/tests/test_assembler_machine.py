"""The assembler against its naive twin over any order of calls."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from t1_tito import Assembler, FinishReason, Turn, TurnError
from t1_tito.testing import byte_bpe, reference_assemble
from t1_tito.testing.reference import rows_of_chunk, whole_prompts
from t1_tito.testing.spelling import Speller

TOKENS = st.lists(st.sampled_from([97, 98, 32, 10, 256, 257]), max_size=5)
CHOICES = st.lists(st.integers(0, 7), max_size=8)


class AssemblerMachine(RuleBasedStateMachine):
    """Adds turns in every way, and keeps copies; the model is a list of turns and forks.

    A harness replays ids, spells them otherwise, drops the end of a turn, or goes back to an earlier
    one. After every step the assembler, and every copy that was kept, holds what the naive twin
    derives from the turns alone.
    """

    make = Assembler

    @initialize(tokenizer=byte_bpe())
    def start(self, tokenizer):
        self.tokenizer = tokenizer
        self.table = tokenizer.token_bytes
        self.speller = Speller(self.table)
        self.assembler = self.make(self.table)
        self.turns, self.forks = [], set()
        self.kept = []

    @property
    def spoken(self):
        """All ids up to the end of the last turn."""
        if not self.turns:
            return []
        return whole_prompts(self.turns)[-1] + self.turns[-1].completion_ids.tolist()

    def known(self, ids):
        return [token for token in ids if token < len(self.tokenizer.pieces)]

    def add(self, prompt, completion, *, base=0, synthetic=0, stops=True, fork=False):
        ending = [self.tokenizer.id_of("<|im_end|>")] if stops else []
        ids = self.known(completion) + ending
        prompt = prompt or [97]
        turn = Turn(
            prompt,
            ids,
            [-(1 + k + 64 * len(self.turns)) / 1024 for k in range(len(ids))],
            0,
            0,
            FinishReason.STOP if stops else FinishReason.LENGTH,
            base_length=base,
            synthetic_length=min(synthetic, len(prompt)),
        )
        if fork and self.turns:
            self.forks.add(len(self.turns))
        self.turns.append(turn)
        boundary = self.assembler.add(turn, fork=fork)
        assert (boundary is None) == (len(self.turns) == 1)

    @rule(context=TOKENS, completion=TOKENS, stops=st.booleans(), fork=st.booleans())
    def the_harness_replays_ids(self, context, completion, stops, fork):
        self.add(self.spoken + self.known(context), completion, stops=stops, fork=fork)

    @precondition(lambda self: self.turns)
    @rule(context=TOKENS, completion=TOKENS, stops=st.booleans(), synthetic=st.integers(0, 2))
    def the_harness_sends_a_delta(self, context, completion, stops, synthetic):
        base = len(self.spoken)
        self.add(self.known(context), completion, base=base, stops=stops, synthetic=synthetic)

    @precondition(lambda self: self.turns)
    @rule(context=TOKENS, completion=TOKENS, choices=CHOICES)
    def the_harness_spells_the_last_turn_otherwise(self, context, completion, choices):
        start = len(self.spoken) - self.turns[-1].completion_ids.size
        other = self.speller.respell(self.spoken[start:], choices)
        self.add(self.spoken[:start] + other + self.known(context), completion)

    @precondition(lambda self: self.turns)
    @rule(context=TOKENS, completion=TOKENS, choices=CHOICES)
    def the_harness_spells_everything_otherwise(self, context, completion, choices):
        other = self.speller.respell(self.spoken, choices)
        self.add(other + self.known(context), completion)

    @precondition(lambda self: self.turns)
    @rule(context=TOKENS, completion=TOKENS, dropped=st.integers(1, 4), delta=st.booleans())
    def the_harness_drops_the_end(self, context, completion, dropped, delta):
        left = self.spoken[: max(len(self.spoken) - dropped, 1)]
        if delta:
            self.add(self.known(context), completion, base=len(left))
        else:
            self.add(left + self.known(context), completion)

    @precondition(lambda self: len(self.turns) > 1)
    @rule(context=TOKENS, completion=TOKENS, back=st.integers(1, 5), delta=st.booleans())
    def the_harness_goes_back(self, context, completion, back, delta):
        earlier = whole_prompts(self.turns)[-1 - back % len(self.turns)]
        shared = 0
        while (
            shared < min(len(earlier), len(self.spoken)) and earlier[shared] == self.spoken[shared]
        ):
            shared += 1
        if delta and shared == len(earlier):
            self.add(self.known(context), completion, base=shared)
        else:
            self.add(earlier + self.known(context), completion)

    @precondition(lambda self: self.turns)
    @rule(excess=st.integers(1, 3))
    def a_delta_to_more_than_there_is_is_refused(self, excess):
        turn = Turn([97], [97], [0.0], 0, 0, "length", base_length=len(self.spoken) + excess)
        with pytest.raises(TurnError) as caught:
            self.assembler.add(turn)
        assert (caught.value.field, caught.value.turn) == ("base_length", len(self.turns))

    @rule(place=st.integers(0, 2))
    def an_unknown_id_is_refused(self, place):
        ids = [97, 97, 97]
        ids[place] = self.tokenizer.vocabulary_size
        with pytest.raises(TurnError) as caught:
            self.assembler.add(Turn([97], ids, [0.0] * 3, 0, 0, "length"))
        assert (caught.value.field, caught.value.position) == ("completion_ids", place)

    @rule()
    def a_copy_is_kept(self):
        self.kept.append((self.assembler.snapshot(), list(self.turns), set(self.forks)))

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 9))
    def a_kept_copy_goes_on(self, which):
        other = self.kept.pop(which % len(self.kept))
        self.kept.append((self.assembler, self.turns, self.forks))
        self.assembler, self.turns, self.forks = other

    @invariant()
    def everything_is_what_the_turns_say(self):
        for assembler, turns, forks in [(self.assembler, self.turns, self.forks), *self.kept]:
            assert assembler.turn_count == len(turns)
            if not turns:
                continue
            expected = reference_assemble(turns, self.table, forks=forks)
            trial = assembler.finish()
            rows = [rows_of_chunk(chunk) for chunk in trial.chunks]
            assert rows == [rows_of_chunk(chunk) for chunk in expected.chunks]
            assert trial.turns == expected.turns
            assert [
                (b.case, b.scaffold_dropped, b.tail_dropped, b.span) for b in trial.boundaries
            ] == [(b.case, b.scaffold_dropped, b.tail_dropped, b.span) for b in expected.boundaries]

    @invariant()
    def its_length_is_that_of_the_last_turn(self):
        assert self.assembler.length == len(self.spoken)


TestAssembler = AssemblerMachine.TestCase
TestAssembler.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


class Sharing(Assembler):
    """Snapshots share the boundaries of the original."""

    def snapshot(self):
        twin = super().snapshot()
        twin._state.boundaries = self._state.boundaries
        return twin


class Careless(Assembler):
    """Takes in a turn before it refuses it."""

    def add(self, turn, *, fork=False):
        if turn.base_length > self.length:
            self._state.records.append(None)
        return super().add(turn, fork=fork)


@pytest.mark.parametrize("faulty", [Sharing, Careless])
def test_the_machine_finds_a_faulty_assembler(faulty):
    class Machine(AssemblerMachine):
        make = faulty

    with pytest.raises((AssertionError, AttributeError, ExceptionGroup)):
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=100,
                stateful_step_count=8,
                deadline=None,
                database=None,
                phases=[Phase.generate],
            ),
        )
