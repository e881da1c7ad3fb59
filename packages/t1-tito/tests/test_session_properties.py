"""Random harnesses: whatever is sampled, cut, replayed, rolled back, forked or compacted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_driver import Driver, check_exact

from t1_tito.session import Session
from t1_tito.template_pin import pin_template
from t1_tito.tiny import tiny_tokenizer

TINY = tiny_tokenizer()
TABLE = TINY.token_bytes
PIN = pin_template(TINY, token_bytes=TABLE)
ORDINARY = len(TINY.pieces)

# any ids: non-canonical splits, half characters, and control tokens that do not end a turn
ids = st.lists(
    st.one_of(
        st.integers(0, ORDINARY - 1),
        st.sampled_from(sorted(set(TINY.added.values()) - {TINY.stop_id})),
    ),
    max_size=8,
)
text = st.text(st.sampled_from("ab \n\té🫠<|im_end|>think/"), max_size=12)
new_messages = st.lists(st.tuples(st.sampled_from(["user", "tool"]), text), min_size=1, max_size=3)
action = st.fixed_dictionaries(
    {
        # what the harness sends: the last history, an earlier one, an edited one or a summary
        "history": st.sampled_from(["last", "last", "last", "earlier", "edited", "summary"]),
        "which": st.integers(0, 100),
        "new": new_messages,
        "again": st.booleans(),
        "completion": ids,
        "finish": st.sampled_from(["stop", "stop", "stop", "length", "abort"]),
    }
)


def spelled_otherwise(message):
    """The same message as another client would write it."""
    return {"tool_calls": None, **dict(reversed(message.items()))}


def sent_history(driver, step):
    if not driver.histories or step["history"] == "summary":
        return [{"role": "system", "content": "You are terse."}]
    which = -1 if step["history"] == "last" else step["which"] % len(driver.histories)
    history = list(driver.histories[which])
    if step["history"] == "edited":
        history[-1] = {"role": "assistant", "content": "edited"}
    return [spelled_otherwise(message) for message in history]


def play(steps):
    driver = Driver(Session(TINY, token_bytes=TABLE, pin=PIN))
    for step in steps:
        messages = [
            *sent_history(driver, step),
            *({"role": role, "content": content} for role, content in step["new"]),
        ]
        completion = list(step["completion"])
        if step["finish"] == "stop":
            completion.append(TINY.stop_id)
        answer = {"role": "assistant", "content": TABLE.text(completion)}
        driver.turn(messages, completion, answer, step["finish"])
        if step["again"]:
            driver.turn(messages, [*completion[:1], TINY.stop_id], answer)
    return driver


@given(st.lists(action, min_size=1, max_size=8))
def test_every_sampled_token_is_trained_once_behind_the_ids_it_was_sampled_behind(steps):
    check_exact(play(steps))


@given(st.lists(action, min_size=1, max_size=8))
def test_stored_ids_never_change(steps):
    driver = play(steps)
    for node, sent, sampled in zip(driver.session.nodes, driver.sent, driver.sampled, strict=True):
        assert node.history_ids().tolist() == [*sent.tolist(), *sampled]
        assert node.last_ids(5).tolist() == [*sent.tolist(), *sampled][-5:]


@given(st.lists(action, min_size=1, max_size=6))
def test_a_replayed_history_continues_from_a_turn_that_ends_it(steps):
    driver = play(steps)
    for history in driver.histories:
        prompt = driver.session.prompt([*history, {"role": "user", "content": "x"}])
        assert driver.histories[prompt.parent] == history
        assert prompt.base_length == driver.session.nodes[prompt.parent].turn.length


@given(st.lists(action, min_size=1, max_size=6))
def test_control_tokens_of_a_prompt_are_the_template_s(steps):
    driver = play(steps)
    for node in driver.session.nodes:
        found = [TABLE.special_text[i] for i in node.turn.prompt_ids.tolist() if i in TABLE.special]
        behind = found[node.turn.synthetic_length and found.index("<|im_end|>") + 1 :]
        messages = len(node.appended)
        assert behind.count("<|im_end|>") == messages
        assert behind.count("<|im_start|>") == messages + 1
        assert set(behind) <= {"<|im_end|>", "<|im_start|>"}


@given(st.lists(action, min_size=2, max_size=6), st.data())
def test_the_check_sees_one_changed_id_anywhere(steps, data):
    driver = play(steps)
    which = data.draw(st.integers(0, len(driver.sent) - 1))
    at = data.draw(st.integers(0, driver.sent[which].size - 1))
    driver.sent[which][at] ^= 1
    with pytest.raises(AssertionError):
        check_exact(driver)


def test_a_harness_that_encodes_history_again_is_seen_as_drift():
    driver = Driver(Session(TINY, token_bytes=TABLE, pin=PIN))
    task = {"role": "user", "content": "go"}
    driver.turn([task], [*b"hello", TINY.stop_id], {"role": "assistant", "content": "hello"})
    driver.turn([*driver.histories[0], task], [TINY.stop_id], {"role": "assistant", "content": ""})
    whole = TABLE.text(driver.sent[1])
    driver.sent[1] = np.array(TINY.encode(whole), np.int32)
    with pytest.raises(AssertionError, match="conditioning differs"):
        check_exact(driver)
