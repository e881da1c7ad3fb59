"""Strategies for the cases of a conformance run."""

from hypothesis import strategies as st

from t1_tito.turn import Turn

from .cases import Case
from .reference import whole_prompts
from .simulator import Chat, Mutation, simulate, stop_id_of
from .spelling import speller_of
from .strategies import replays, scripts, simulated_trials, tiny_chats


def simulated_cases(chats: st.SearchStrategy[Chat] | None) -> st.SearchStrategy[Case]:
    """Trials of harnesses with any habit and any accident."""
    return simulated_trials(chats).map(
        lambda trial: Case(trial.turns, trial.chat.token_bytes, frozenset({stop_id_of(trial.chat)}))
    )


@st.composite
def replay_cases(draw: st.DrawFn, chats: st.SearchStrategy[Chat] | None) -> Case:
    """Draw a trial of a harness that replays every id, whatever was sampled."""
    chat = draw(tiny_chats() if chats is None else chats)
    return Case(draw(replays(chat)), chat.token_bytes)


@st.composite
def drift_cases(draw: st.DrawFn, chats: st.SearchStrategy[Chat] | None) -> Case:
    """Draw a trial that replays ids until, from one turn on, history is spelled otherwise."""
    chat = draw(tiny_chats() if chats is None else chats)
    script = draw(
        scripts(mutations=st.just(Mutation()), truncates=False, replays_ids=True, min_turns=2)
    )
    clean = simulate(chat, script)
    turn = draw(st.integers(1, len(clean) - 1))
    choices = draw(st.lists(st.integers(0, 7), min_size=1, max_size=40))
    return Case(_drifted(chat, clean, turn, choices), chat.token_bytes, frozenset(), clean, turn)


def _drifted(chat: Chat, clean: list[Turn], turn: int, choices: list[int]) -> list[Turn]:
    """The turns, whose prompts from `turn` on spell the completion before it otherwise."""
    prompts = whole_prompts(clean)
    start = len(prompts[turn - 1])
    stop = start + clean[turn - 1].completion_ids.size
    # of the stop token on, nothing is spelled otherwise
    respelled = speller_of(chat.token_bytes).respell(prompts[turn][start:stop], choices)
    drifted = list(clean[:turn])
    for later in range(turn, len(clean)):
        old, prompt = clean[later], prompts[later]
        is_replay = prompt[start:stop] == prompts[turn][start:stop]
        changed = prompt[:start] + respelled + prompt[stop:] if is_replay else prompt
        drifted.append(
            Turn(
                changed,
                old.completion_ids,
                old.logprobs,
                old.version_sent,
                old.version_received,
                old.finish_reason,
            )
        )
    return drifted
