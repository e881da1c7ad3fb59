import numpy as np
import pytest
from session_driver import Driver, check_exact

from t1_tito import FinishReason, Kind, SeamError, TurnError, VersionError
from t1_tito.seam import SeamProof
from t1_tito.session import Session
from t1_tito.tiny import tiny_tokenizer

TINY = tiny_tokenizer()
STOP = TINY.stop_id
SYSTEM = {"role": "system", "content": "You are a shell."}
TASK = {"role": "user", "content": "List the files."}


def new_driver(**arguments):
    return Driver(Session(TINY, token_bytes=TINY.token_bytes, **arguments))


def said(text):
    return {"role": "assistant", "content": text}


def observed(text):
    return {"role": "user", "content": text}


def play(driver, turns, messages=(SYSTEM, TASK)):
    """So many plain turns; returns the history with the last observation."""
    messages = list(messages)
    for i in range(turns):
        driver.turn(messages, [*TINY.encode(f"ls {i}"), STOP], said(f"ls {i}"))
        messages = [*driver.histories[-1], observed(f"file {i}")]
    return messages


def test_a_linear_conversation_is_one_chunk_and_exact():
    driver = new_driver()
    play(driver, 5)
    trial = driver.session.trial({"task": "ls"})
    assert len(trial.chunks) == 1
    assert trial.metadata["task"] == "ls"
    check_exact(driver)


def test_prompts_equal_the_whole_rendering_where_the_template_and_the_ids_are_canonical():
    driver = new_driver()
    messages = play(driver, 4)
    for sent, history in zip(driver.sent, driver.histories, strict=True):
        whole = TINY.apply_chat_template(history[:-1], add_generation_prompt=True)
        assert sent.tolist() == TINY.encode(whole)
    assert driver.session.prompt(messages).proof is SeamProof.SPECIAL_BEFORE


def test_the_template_s_separator_behind_the_stop_token_is_added_exactly_once():
    driver = new_driver()
    messages = play(driver, 1)
    new = driver.session.prompt(messages).new_ids
    assert TINY.decode(new[:2].tolist()) == "\n<|im_start|>"
    assert driver.sampled[0][-1] == STOP


def test_non_canonical_ids_stay_as_sampled_and_are_never_encoded_again():
    driver = new_driver()
    bytewise = list(b"echo hello")
    assert TINY.encode("echo hello") != bytewise
    driver.turn([SYSTEM, TASK], [*bytewise, STOP], said("echo hello"))
    prompt = driver.turn(
        [*driver.histories[0], observed("hello")], [*TINY.encode("done"), STOP], said("done")
    )
    at = prompt.base_length - len(bytewise) - 1
    assert driver.sent[1][at : at + len(bytewise)].tolist() == bytewise
    check_exact(driver)


def test_going_back_continues_from_the_earlier_turn_and_trains_every_token_once():
    driver = new_driver()
    play(driver, 4)
    back = [*driver.histories[1], observed("try again")]
    prompt = driver.turn(back, [*TINY.encode("pwd"), STOP], said("pwd"))
    assert prompt.parent == 1
    trial = driver.session.trial()
    assert len(trial.chunks) == 2
    check_exact(driver)


def test_a_prompt_sampled_several_times_gives_a_branch_each():
    driver = new_driver()
    messages = play(driver, 2)
    for text in ("a", "b", "c"):
        driver.turn(messages, [*TINY.encode(text), STOP], said(text))
    assert [node.parent.index for node in driver.session.nodes[2:]] == [1, 1, 1]
    check_exact(driver)


def test_branches_interleaved_in_time_come_out_branch_by_branch():
    driver = new_driver()
    play(driver, 1)
    for i in range(3):
        for branch in ("left", "right"):
            behind = [h for h in driver.histories if branch in str(h)] or [driver.histories[0]]
            driver.turn(
                [*behind[-1], observed(f"{branch} {i}")],
                [*TINY.encode(f"{branch} {i}"), STOP],
                said(f"{branch} {i}"),
            )
    assert driver.session.turn_order() == (0, 1, 3, 5, 2, 4, 6)
    check_exact(driver)


def test_a_branch_taken_up_after_another_one_starts_from_its_own_history():
    driver = new_driver()
    play(driver, 1)
    for parent, text in ((0, "left"), (0, "right"), (1, "a"), (2, "b"), (1, "c")):
        driver.turn(
            [*driver.histories[parent], observed(f"go {text}")],
            [*TINY.encode(text), STOP],
            said(text),
        )
    assert driver.session.turn_order() == (0, 1, 3, 2, 4, 5)
    check_exact(driver)


def test_equal_answers_in_two_branches_continue_from_the_later_one():
    driver = new_driver()
    for ids in (TINY.encode("ls"), list(b"ls")):
        driver.turn([SYSTEM, TASK], [*ids, STOP], said("ls"))
    assert driver.session.prompt([*driver.histories[0], observed("x")]).parent == 1


def test_a_compacted_history_opens_a_new_root():
    driver = new_driver()
    play(driver, 3)
    summary = [SYSTEM, observed("Summary: there are three files."), TASK]
    prompt = driver.turn(summary, [*TINY.encode("ok"), STOP], said("ok"))
    assert prompt.parent is None
    assert prompt.base_length == 0
    assert len(driver.session.trial().chunks) == 2
    check_exact(driver)


def test_a_turn_cut_by_the_limit_is_closed_with_synthetic_tokens_without_loss():
    driver = new_driver()
    driver.turn([SYSTEM, TASK], TINY.encode("ls -"), said("ls -"), finish="length")
    prompt = driver.turn(
        [*driver.histories[0], observed("go on")], [*TINY.encode("la"), STOP], said("la")
    )
    assert prompt.new_ids[: prompt.synthetic_length].tolist() == [STOP]
    chunk = driver.session.trial().chunks[0]
    synthetic = chunk.kind == Kind.SYNTHETIC
    assert chunk.tokens[synthetic].tolist() == [STOP]
    assert not chunk.loss_mask[synthetic].any()
    check_exact(driver)


@pytest.mark.parametrize(
    ("cut", "closing"),
    [
        ("<think>\nfirst I", "\n</think>\n\n<|im_end|>"),
        ("<think>\na\n</think>\n\nls", "<|im_end|>"),
        ('\n<tool_call>\n{"name": "run"', "\n</tool_call><|im_end|>"),
        ("<think>a<tool_call>b</think>c", "<|im_end|>"),
        ("</think>c", "<|im_end|>"),
        ("<think>\nwait <tool_call>", "\n</tool_call>\n</think>\n\n<|im_end|>"),
    ],
)
def test_open_thoughts_and_tool_calls_are_closed_innermost_first(cut, closing):
    driver = new_driver()
    driver.turn([SYSTEM, TASK], TINY.encode(cut), said(cut), finish="length")
    prompt = driver.session.prompt([*driver.histories[0], observed("go on")])
    assert TINY.decode(prompt.new_ids[: prompt.synthetic_length].tolist()) == closing


def test_a_turn_cut_inside_a_character_is_closed_by_the_control_token_alone():
    driver = new_driver()
    half = [*TINY.encode("<think>"), *"🫠".encode()[:2]]
    driver.turn([SYSTEM, TASK], half, said("\ufffd"), finish="abort")
    prompt = driver.turn(
        [*driver.histories[0], observed("go on")], [*TINY.encode("hm"), STOP], said("hm")
    )
    closing = TINY.decode(prompt.new_ids[: prompt.synthetic_length].tolist())
    assert closing == "</think>\n\n<|im_end|>"
    check_exact(driver)


def test_a_turn_that_reached_the_limit_on_its_stop_token_is_not_closed_twice():
    driver = new_driver()
    driver.turn([SYSTEM, TASK], [*TINY.encode("ls"), STOP], said("ls"), finish="length")
    prompt = driver.session.prompt([*driver.histories[0], observed("x")])
    assert prompt.synthetic_length == 0
    assert STOP not in prompt.new_ids[:1]


def test_an_aborted_turn_without_tokens_can_be_continued():
    driver = new_driver()
    driver.turn([SYSTEM, TASK], [], said(""), finish="abort")
    driver.turn([*driver.histories[0], observed("again")], [STOP], said(""))
    check_exact(driver)


def test_appending_to_a_known_turn_gives_what_the_whole_history_gives():
    driver = new_driver()
    messages = play(driver, 3)
    whole = driver.session.prompt(messages)
    compared = driver.session.compared_messages
    appended = driver.session.extend(2, messages[-1:])
    assert appended.ids.tolist() == whole.ids.tolist()
    assert driver.session.compared_messages == compared


def test_consecutive_tool_messages_are_rendered_as_one_group():
    driver = new_driver()
    calls = [{"function": {"name": "run", "arguments": {"command": c}}} for c in "ab"]
    answer = {"role": "assistant", "content": "", "tool_calls": calls}
    driver.turn([SYSTEM, TASK], [*TINY.encode("\n<tool_call>..."), STOP], answer)
    results = [{"role": "tool", "content": c} for c in "AB"]
    prompt = driver.session.prompt([*driver.histories[0], *results])
    rendered = TINY.apply_chat_template(results, add_generation_prompt=True)
    assert TINY.decode(prompt.new_ids.tolist()) == "\n" + rendered


def test_an_answer_that_the_session_never_saw_enters_as_counted_context():
    driver = new_driver()
    play(driver, 1)
    edited = [SYSTEM, TASK, said("rm -rf /"), observed("no")]
    prompt = driver.turn(edited, [*TINY.encode("sorry"), STOP], said("sorry"))
    assert (prompt.parent, prompt.unrecorded) == (None, 1)
    check_exact(driver)


def test_work_for_a_prompt_does_not_grow_with_the_history():
    driver = new_driver()
    encoded, rendered, messages = [], [], [SYSTEM, TASK]
    for i in range(300):
        before = driver.session.encoded_characters, driver.session.rendered_characters
        driver.turn(messages, [*TINY.encode("ls"), STOP], said("ls"))
        encoded.append(driver.session.encoded_characters - before[0])
        rendered.append(driver.session.rendered_characters - before[1])
        messages = [*driver.histories[-1], observed(f"file {i:03}")]
    assert encoded[10] == encoded[299] > 0
    assert rendered[10] == rendered[299] > 0
    assert driver.session.trial().turns[-1].prompt_length > 5_000


def test_extending_needs_no_comparison_and_prompting_one_per_message():
    driver = new_driver()
    messages = play(driver, 20)
    before = driver.session.compared_messages
    driver.session.prompt(messages)
    assert driver.session.compared_messages - before == len(messages) - 1


@pytest.mark.parametrize("messages", [[], [SYSTEM, TASK, said("ls")]])
def test_a_history_that_asks_for_nothing_is_refused(messages):
    driver = new_driver()
    play(driver, 1)
    with pytest.raises(SeamError, match="for the assistant to answer"):
        driver.session.prompt(messages)
    with pytest.raises(SeamError, match="already answered"):
        driver.session.prompt(driver.histories[0])


def test_a_hidden_stop_token_is_an_error_that_names_turn_and_position():
    driver = new_driver()
    messages = play(driver, 2)
    with pytest.raises(TurnError, match="none of the stop ids") as raised:
        driver.turn(messages, TINY.encode("ls"), said("ls"))
    assert (raised.value.turn, raised.value.field, raised.value.position) == (
        2,
        "completion_ids",
        len(TINY.encode("ls")) - 1,
    )


@pytest.mark.parametrize(
    ("completion", "logprobs", "field"),
    [
        ([STOP], [], "logprobs"),
        ([STOP], [float("nan")], "logprobs"),
        ([10_000, STOP], [0.0, 0.0], "completion_ids"),
    ],
)
def test_malformed_answers_leave_the_session_usable_up_to_the_last_good_turn(
    completion, logprobs, field
):
    driver = new_driver()
    messages = play(driver, 2)
    prompt = driver.session.prompt(messages)
    with pytest.raises(TurnError) as raised:
        driver.session.record(prompt, completion, logprobs, 0, 0, FinishReason.STOP, said("x"))
    assert (raised.value.turn, raised.value.field) == (2, field)
    check_exact(driver)
    driver.turn(messages, [*TINY.encode("ok"), STOP], said("ok"))
    check_exact(driver)


def test_an_answer_must_be_the_assistant_s_and_the_prompt_this_session_s():
    driver, other = new_driver(), new_driver()
    messages = play(driver, 2)
    prompt = driver.session.prompt(messages)
    with pytest.raises(TurnError, match="expected the assistant's"):
        driver.session.record(prompt, [STOP], [0.0], 0, 0, "stop", observed("x"))
    with pytest.raises(TurnError, match="another session"):
        other.session.record(prompt, [STOP], [0.0], 0, 0, "stop", said("x"))


def test_stored_messages_do_not_follow_later_changes_of_the_harness_s_own():
    driver = new_driver()
    task = dict(TASK)
    driver.turn([SYSTEM, task], [*TINY.encode("ls"), STOP], said("ls"))
    task["content"] = "changed"
    assert driver.session.prompt([SYSTEM, TASK, said("ls"), observed("x")]).parent == 0
    assert driver.session.prompt([SYSTEM, task, said("ls"), observed("x")]).parent is None


def test_a_stop_id_that_is_plain_text_is_refused():
    with pytest.raises(SeamError, match="stop id 65 is not a special token"):
        new_driver(stop_ids={65})


def test_the_exactness_check_sees_a_changed_prompt():
    driver = new_driver()
    play(driver, 3)
    driver.sent[1] = np.append(driver.sent[1][:-1], 0)
    with pytest.raises(AssertionError, match="conditioning differs"):
        check_exact(driver)


def test_the_exactness_check_sees_a_lost_turn():
    driver = new_driver()
    play(driver, 3)
    driver.sent.append(driver.sent[0])
    with pytest.raises(AssertionError, match="missing or doubled"):
        check_exact(driver)


def test_a_turn_under_two_weight_versions_is_refused_and_the_trial_goes_on():
    session = Session(TINY, token_bytes=TINY.token_bytes)
    prompt = session.prompt([TASK])
    with pytest.raises(VersionError, match="turn 0: sent at weight version 0, answered at 1"):
        session.record(prompt, [STOP], [-1.0], 0, 1, "stop", said(""))
    session.record(prompt, [STOP], [-1.0], 1, 1, "stop", said(""))
    assert session.trial().turns[0].version_sent == 1


@pytest.mark.parametrize("node", [-1, 1])
def test_a_turn_that_does_not_exist_cannot_be_extended(node):
    driver = new_driver()
    play(driver, 1)
    with pytest.raises(SeamError, match=f"there is no turn {node}; 1 are recorded"):
        driver.session.extend(node, [TASK])
