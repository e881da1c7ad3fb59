"""A stateful machine: an assembler of yours against the naive twin, over any order of calls.

    TestMine = assembler_machine(MyAssembler).TestCase

What it does to one trial, and to every copy and branch that it has kept: turns whose prompt repeats
every id, spells them otherwise, lacks the end, goes back to an earlier turn or is a delta; forks;
turns that are to be refused. The model of a trial is the list of its turns, from which
`reference_assemble` derives all of it again. After every step each trial is what its own turns say, so
that nothing leaks from one into another.
"""

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from t1_tito.boundary import Policy
from t1_tito.errors import FidelityError, TitoError
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Chunk, Trial
from t1_tito.turn import FinishReason, Turn

from .byte_bpe import ByteBpe
from .reference import reference_assemble, rows_of_chunk, whole_prompts
from .spelling import Speller
from .strategies import byte_bpe

_OPENS = -1
"""Stands for the `<|im_start|>` of whichever tokenizer was drawn."""

# a handful of ids, so that what is dropped, repeated and merged meets often
_CONTEXTS = st.lists(st.sampled_from([97, 98, 32, 10, 256, 257, _OPENS]), max_size=5)
_COMPLETIONS = _CONTEXTS
_CHOICES = st.lists(st.integers(0, 7), max_size=8)


class ForkingAssembler(Protocol):
    """What a machine calls: `t1_tito.Assembler`, or what can stand in for it."""

    def add(self, turn: Turn, *, fork: bool = False) -> object:
        """Add a turn; a `TitoError` refuses it and changes nothing."""
        ...

    def finish(self) -> Trial:
        """The trial so far."""
        ...

    def snapshot(self) -> Any:
        """An independent copy."""
        ...

    def fork(self) -> Any:
        """One for a trial that branches off here and trains only what it adds."""
        ...


@dataclass
class ModelTrial:
    """An assembler and all that is known of its trial.

    Attributes:
        assembler: under test.
        before: of a branch, the ids that it branched off behind; its first turn may add to them.
        turns: that were added.
        forks: indices of those that opened a chunk by order.
    """

    assembler: ForkingAssembler
    before: list[int] = field(default_factory=list[int])
    turns: list[Turn] = field(default_factory=list[Turn])
    forks: frozenset[int] = frozenset()

    @property
    def prompts(self) -> list[list[int]]:
        """The whole prompt of every turn."""
        return whole_prompts(self.turns, self.before)

    @property
    def spoken(self) -> list[int]:
        """All ids up to the end of the last turn."""
        if not self.turns:
            return self.before
        return self.prompts[-1] + self.turns[-1].completion_ids.tolist()

    def check(self, token_bytes: TokenBytes, policy: Policy) -> None:
        """Compare the assembler's trial with what the turns say.

        Raises:
            FidelityError: "machine"; names what differs.
        """
        if not self.turns:
            return
        expected = reference_assemble(
            self.turns, token_bytes, policy=policy, forks=self.forks, before=self.before
        )
        trial = self.assembler.finish()
        _check_same("turn records", list(trial.turns), list(expected.turns))
        _check_same("boundaries", _decisions(trial), _decisions(expected))
        _check_same("chunks", [len(c) for c in trial.chunks], [len(c) for c in expected.chunks])
        for index, (ours, theirs) in enumerate(zip(trial.chunks, expected.chunks, strict=True)):
            _check_rows(index, ours, theirs)


def _decisions(trial: Trial) -> list[tuple[object, ...]]:
    return [(b.case, b.scaffold_dropped, b.tail_dropped, b.span) for b in trial.boundaries]


def _check_same(what: str, found: Sequence[object], expected: Sequence[object]) -> None:
    if found != expected:
        problem = f"{what} are {found}, the turns say {expected}"
        raise FidelityError("machine", None, None, problem)


def _check_rows(index: int, chunk: Chunk, expected: Chunk) -> None:
    rows = zip(rows_of_chunk(chunk), rows_of_chunk(expected), strict=True)
    for position, (found, wanted) in enumerate(rows):
        if found != wanted:
            raise FidelityError("machine", index, position, f"{found}, the turns say {wanted}")
    if (chunk.loss_mask != expected.loss_mask).any():
        raise FidelityError("machine", index, None, "its loss mask is not where it was sampled")


class AssemblerMachine(RuleBasedStateMachine):
    """The rules; `assembler_machine` says on what they are run."""

    make: Callable[[TokenBytes], ForkingAssembler]
    policy: Policy

    def __init__(self) -> None:
        super().__init__()
        self.tokenizer = ByteBpe()
        self.speller = Speller(self.tokenizer.token_bytes)
        self.trial = ModelTrial(self.make(self.tokenizer.token_bytes))
        self.kept: list[ModelTrial] = []

    @initialize(tokenizer=byte_bpe(), context=_CONTEXTS, completion=_COMPLETIONS)
    def the_first_turn(self, tokenizer: ByteBpe, context: list[int], completion: list[int]) -> None:
        """Begin a trial with a drawn tokenizer."""
        self.tokenizer = tokenizer
        self.speller = Speller(tokenizer.token_bytes)
        self.trial = ModelTrial(self.make(tokenizer.token_bytes))
        self._add(self._known(context), completion)

    def _known(self, ids: Sequence[int]) -> list[int]:
        opens = self.tokenizer.id_of("<|im_start|>")
        known = [token for token in ids if token < len(self.tokenizer.pieces)]
        return [opens if token == _OPENS else token for token in known]

    def _add(
        self,
        prompt: list[int],
        completion: list[int],
        *,
        stops: bool = True,
        fork: bool = False,
        **more: int,
    ) -> None:
        trial, finish = self.trial, FinishReason.STOP if stops else FinishReason.LENGTH
        ids = self._known(completion) + ([self.tokenizer.id_of("<|im_end|>")] if stops else [])
        # every sampled token of a trial has a log-probability of its own
        logprobs = [-(1 + k + 64 * len(trial.turns)) / 1024 for k in range(len(ids))]
        turn = Turn(prompt or [97], ids, logprobs, 0, 0, finish, **more)
        trial.assembler.add(turn, fork=fork)
        if fork and trial.turns:
            trial.forks |= {len(trial.turns)}
        trial.turns.append(turn)

    def _replay(self, left: list[int], context: list[int], said: list[int], *, delta: bool) -> None:
        """Add a turn behind the first ids of what was spoken."""
        if delta and left:
            self._add(self._known(context), said, base_length=len(left))
        else:
            self._add(left + self._known(context), said)

    @rule(context=_CONTEXTS, completion=_COMPLETIONS, stops=st.booleans(), fork=st.booleans())
    def the_harness_replays_ids(
        self, context: list[int], completion: list[int], stops: bool, fork: bool
    ) -> None:
        """The prompt repeats every id."""
        prompt = self.trial.spoken + self._known(context)
        self._add(prompt, completion, stops=stops, fork=fork)

    @rule(
        context=_CONTEXTS, completion=_COMPLETIONS, synthetic=st.integers(0, 2), fork=st.booleans()
    )
    def the_harness_sends_a_delta(
        self, context: list[int], completion: list[int], synthetic: int, fork: bool
    ) -> None:
        """The prompt is what was added, maybe with ids that close the turn before."""
        new, base = self._known(context), len(self.trial.spoken)
        synthetic = min(synthetic, len(new))
        self._add(new, completion, fork=fork, base_length=base, synthetic_length=synthetic)

    @rule(context=_CONTEXTS, completion=_COMPLETIONS, choices=_CHOICES, whole=st.booleans())
    def the_harness_spells_otherwise(
        self, context: list[int], completion: list[int], choices: list[int], whole: bool
    ) -> None:
        """The prompt has other ids for the bytes of the last completion, or of all history."""
        spoken, turns = self.trial.spoken, self.trial.turns
        said = len(spoken) if whole or not turns else turns[-1].completion_ids.size
        kept, last = spoken[: len(spoken) - said], spoken[len(spoken) - said :]
        self._add(kept + self.speller.respell(last, choices) + self._known(context), completion)

    @rule(
        context=_CONTEXTS, completion=_COMPLETIONS, dropped=st.integers(1, 4), delta=st.booleans()
    )
    def the_harness_drops_the_end(
        self, context: list[int], completion: list[int], dropped: int, delta: bool
    ) -> None:
        """The prompt lacks the last ids."""
        spoken = self.trial.spoken
        self._replay(spoken[: max(len(spoken) - dropped, 1)], context, completion, delta=delta)

    @precondition(lambda self: self.trial.turns)
    @rule(context=_CONTEXTS, completion=_COMPLETIONS, stripped=st.integers(1, 3))
    def the_harness_drops_the_scaffold(
        self, context: list[int], completion: list[int], stripped: int
    ) -> None:
        """The prompt lacks the ids before the last completion, and ends in them itself."""
        prompt, said = self.trial.prompts[-1], self.trial.turns[-1].completion_ids.tolist()
        cut = max(len(prompt) - stripped, 1)
        self._add(prompt[:cut] + said + self._known(context) + prompt[cut:], completion)

    @precondition(lambda self: len(self.trial.turns) > 1)
    @rule(context=_CONTEXTS, completion=_COMPLETIONS, back=st.integers(1, 5), delta=st.booleans())
    def the_harness_goes_back(
        self, context: list[int], completion: list[int], back: int, delta: bool
    ) -> None:
        """The prompt is that of an earlier turn and goes on otherwise."""
        earlier = self.trial.prompts[-1 - back % len(self.trial.turns)]
        is_beginning = self.trial.spoken[: len(earlier)] == earlier
        self._replay(earlier, context, completion, delta=delta and is_beginning)

    @rule(excess=st.integers(0, 3))
    def a_turn_is_refused(self, excess: int) -> None:
        """A delta to more than there is, or a turn of two weight versions, leaves all as it was."""
        spoken = self.trial.spoken
        if excess:
            base = len(spoken) + excess
            self._refused(Turn([97], [97], [0.0], 0, 0, "length", base_length=base))
        else:
            self._refused(Turn([*spoken, 97], [97], [0.0], 0, 1, "length"))

    def _refused(self, turn: Turn) -> None:
        try:
            self.trial.assembler.add(turn)
        except TitoError:
            return
        raise FidelityError("machine", None, None, f"{turn} was not refused")

    @rule(
        context=_CONTEXTS,
        completion=_COMPLETIONS,
        dropped=st.integers(0, 2),
        branches=st.booleans(),
        goes_on=st.booleans(),
    )
    def a_copy_is_taken(
        self, context: list[int], completion: list[int], dropped: int, branches: bool, goes_on: bool
    ) -> None:
        """A snapshot, or a branch for which all that was spoken is context, gets a turn of its own."""
        original, spoken = self.trial, self.trial.spoken
        if branches:
            self.trial = ModelTrial(original.assembler.fork(), before=list(spoken))
        else:
            twin = original.assembler.snapshot()
            self.trial = replace(original, assembler=twin, turns=copy(original.turns))
        left = spoken[: max(len(spoken) - dropped, 1)]
        self._add(self._known(context), completion, base_length=len(left))
        self.kept.append(original)
        if not goes_on:
            self.a_kept_one_goes_on(-1)

    @precondition(lambda self: self.kept)
    @rule(which=st.integers(0, 9))
    def a_kept_one_goes_on(self, which: int) -> None:
        """Change places with a copy or a branch."""
        other = self.kept.pop(which % len(self.kept))
        self.kept.append(self.trial)
        self.trial = other

    @invariant()
    def everything_is_what_the_turns_say(self) -> None:
        """The trial and all that were kept."""
        for trial in (self.trial, *self.kept):
            trial.check(self.tokenizer.token_bytes, self.policy)


def assembler_machine(
    make: Callable[[TokenBytes], ForkingAssembler], *, policy: Policy | None = None
) -> type[AssemblerMachine]:
    """A state machine for Hypothesis that runs an assembler against its naive twin.

    `assembler_machine(MyAssembler).TestCase` is a test for pytest and unittest;
    `hypothesis.stateful.run_state_machine_as_test` runs it anywhere.

    Args:
        make: a new assembler for a byte table, as `Assembler` is. It decides boundaries by the ladder
            "proven", adds turns given whole and as deltas, and refuses a turn by a `TitoError`.
        policy: the policy that `make` gives it; None for the default.
    """
    given = {"make": staticmethod(make), "policy": policy or Policy(), "__module__": __name__}
    return type("Machine", (AssemblerMachine,), given)
