import copy
import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_tito import AdapterError, FinishReason, TurnError
from t1_tito.adapters import sglang, vllm

PROMPT = [11, 12, 13]


def generated():
    """A reply of SGLang's /generate."""
    return {
        "text": "ab",
        "output_ids": [21, 22],
        "meta_info": {
            "id": "r",
            "finish_reason": {"type": "stop", "matched": 22},
            "prompt_tokens": 3,
            "completion_tokens": 2,
            "cached_tokens": 0,
            "weight_version": "7",
            "output_token_logprobs": [[-0.5, 21, "a"], [-0.25, 22, "b"]],
        },
    }


def sglang_chat():
    """A reply of SGLang's chat endpoint with return_token_ids and logprobs."""
    return {
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a"},
                "finish_reason": "stop",
                "matched_stop": 22,
                "logprobs": {
                    "content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]
                },
                "prompt_token_ids": PROMPT,
                "response_token_ids": [21, 22],
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        "metadata": {"weight_version": "7"},
    }


def vllm_chat():
    """A reply of vLLM's chat endpoint with return_token_ids and logprobs."""
    return {
        "prompt_token_ids": PROMPT,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a"},
                "finish_reason": "tool_calls",
                "stop_reason": 22,
                "token_ids": [21, 22],
                "logprobs": {
                    "content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]
                },
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def vllm_completion():
    """A reply of vLLM's completion endpoint."""
    return {
        "choices": [
            {
                "index": 0,
                "text": "a",
                "finish_reason": "stop",
                "stop_reason": None,
                "prompt_token_ids": PROMPT,
                "token_ids": [21, 22],
                "logprobs": {"token_logprobs": [-0.5, -0.25], "tokens": ["a", "b"]},
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }


def vllm_output():
    """A RequestOutput of vLLM's engine."""
    return SimpleNamespace(
        prompt_token_ids=PROMPT,
        outputs=[
            SimpleNamespace(
                token_ids=(21, 22),
                finish_reason="stop",
                stop_reason=22,
                logprobs=[
                    {21: SimpleNamespace(logprob=-0.5), 30: SimpleNamespace(logprob=-0.1)},
                    {22: SimpleNamespace(logprob=-0.25)},
                ],
            )
        ],
    )


def read_sglang(reply, **arguments):
    return sglang.turn_from_generate(reply, PROMPT, **{"version_sent": 7, **arguments})


def read_sglang_chat(reply, **arguments):
    return sglang.turn_from_chat(reply, **{"version_sent": 7, **arguments})


def read_vllm(reply, **arguments):
    return vllm.turn_from_reply(reply, version_sent=7, version_received=7, **arguments)


def read_output(reply, **arguments):
    return vllm.turn_from_output(reply, version_sent=7, version_received=7, **arguments)


READERS = {
    "sglang": (generated, read_sglang),
    "sglang_chat": (sglang_chat, read_sglang_chat),
    "vllm_chat": (vllm_chat, read_vllm),
    "vllm_completion": (vllm_completion, read_vllm),
    "vllm_output": (vllm_output, read_output),
}


def as_objects(record):
    if isinstance(record, dict):
        return SimpleNamespace(**{name: as_objects(value) for name, value in record.items()})
    return [as_objects(value) for value in record] if isinstance(record, list) else record


@pytest.mark.parametrize("name", READERS)
def test_a_reply_becomes_the_turn_it_reports(name):
    make, read = READERS[name]
    for reply in (make(), as_objects(make())):
        turn = read(reply)
        assert turn.prompt_ids.tolist() == PROMPT
        assert turn.completion_ids.tolist() == [21, 22]
        assert turn.logprobs.tolist() == [-0.5, -0.25]
        assert (turn.version_sent, turn.version_received) == (7, 7)
        assert turn.finish_reason is FinishReason.STOP


@given(
    ids=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=20),
    data=st.data(),
)
def test_ids_and_logprobs_of_any_reply_arrive_unchanged(ids, data):
    logprobs = data.draw(
        st.lists(st.floats(-50, 0, width=32), min_size=len(ids), max_size=len(ids))
    )
    reply = generated()
    reply["output_ids"] = ids
    reply["meta_info"] |= {
        "output_token_logprobs": [[p, i, None] for p, i in zip(logprobs, ids, strict=True)],
        "completion_tokens": len(ids),
        "finish_reason": {"type": "length", "length": len(ids)},
    }
    turn = read_sglang(reply)
    assert turn.completion_ids.tolist() == ids
    assert turn.logprobs.tolist() == logprobs
    assert turn.finish_reason is FinishReason.LENGTH


# (reader, where to break the reply, what it says)
BREAKS = [
    # ids that a parser or stop rule took out of the reply
    (
        "sglang",
        ("meta_info", "completion_tokens", 3),
        "2 completion ids, but completion_tokens is 3",
    ),
    ("sglang_chat", ("usage", "completion_tokens", 3), "completion_tokens is 3"),
    ("vllm_chat", ("usage", "completion_tokens", 3), "completion_tokens is 3"),
    ("vllm_completion", ("usage", "completion_tokens", 3), "completion_tokens is 3"),
    (
        "sglang",
        ("meta_info", "finish_reason", {"type": "stop", "matched": 9}),
        "stopped at token 9",
    ),
    (
        "sglang",
        ("meta_info", "finish_reason", {"type": "stop", "matched": [21, 9]}),
        r"stopped at token \[21, 9\], but the completion ends in \[21, 22\]",
    ),
    ("sglang_chat", ("choices", 0, "matched_stop", 9), "stopped at token 9"),
    ("vllm_chat", ("choices", 0, "stop_reason", 9), "stopped at token 9"),
    ("vllm_output", ("outputs", 0, "stop_reason", 9), "stopped at token 9"),
    # ids that the engine made again from text
    ("sglang", ("meta_info", "prompt_tokens", 4), "3 prompt ids, but prompt_tokens is 4"),
    ("sglang_chat", ("usage", "prompt_tokens", 4), "prompt_tokens is 4"),
    ("vllm_chat", ("usage", "prompt_tokens", 4), "prompt_tokens is 4"),
    # lists that disagree
    ("sglang", ("output_ids", [21]), "output_ids has 1, output_token_logprobs has 2"),
    ("sglang", ("output_ids", [21, 23]), "name other ids"),
    (
        "sglang_chat",
        ("choices", 0, "response_token_ids", [21]),
        "response_token_ids has 1, logprobs",
    ),
    ("vllm_chat", ("choices", 0, "token_ids", [21]), "token_ids has 1, logprobs has 2"),
    ("vllm_completion", ("choices", 0, "logprobs", "token_logprobs", [-0.5]), "logprobs has 1"),
    ("vllm_output", ("outputs", 0, "token_ids", (21,)), "token_ids has 1, logprobs has 2"),
    ("vllm_output", ("outputs", 0, "logprobs", [{21: -0.5}, {9: 0.0}]), r"logprobs\[1\] has none"),
    # what the request forgot to ask for
    ("sglang", ("meta_info", "output_token_logprobs", None), "set return_logprob=True"),
    (
        "sglang",
        ("meta_info", "output_token_logprobs", [[-0.5, 21, ""], [None, 22, ""]]),
        r"output_token_logprobs\[1\] is \[None",
    ),
    ("sglang", ("meta_info", None), "meta_info is missing"),
    ("sglang_chat", ("choices", 0, "logprobs", None), "logprobs is missing; ask"),
    (
        "sglang_chat",
        ("choices", 0, "response_token_ids", None),
        "response_token_ids is missing; set",
    ),
    ("vllm_chat", ("choices", 0, "logprobs", None), "logprobs is missing; ask"),
    (
        "vllm_chat",
        ("choices", 0, "logprobs", "content", 1, "logprob", None),
        r"logprob of content\[1\] is missing",
    ),
    ("vllm_output", ("outputs", 0, "logprobs", [{21: -0.5}, None]), r"logprobs\[1\] has none"),
    ("vllm_chat", ("choices", 0, "token_ids", None), "token_ids is missing; set return_token_ids"),
    ("vllm_chat", ("prompt_token_ids", None), "no prompt ids"),
    (
        "vllm_completion",
        ("choices", 0, "logprobs", "token_logprobs", [None, 0.0]),
        r"\[0\] is missing",
    ),
    ("vllm_output", ("outputs", 0, "logprobs", None), "set logprobs=0"),
    # replies that are not over, or not one
    ("sglang", ("meta_info", "finish_reason", None), "finish_reason is missing"),
    ("sglang", ("meta_info", "finish_reason", {"type": "weird"}), "finish_reason is 'weird'"),
    ("vllm_chat", ("choices", 0, "finish_reason", None), "finish_reason is None"),
    ("vllm_chat", ("choices", []), "0 choices, expected one"),
    ("sglang_chat", ("choices", [{}, {}]), "2 choices, expected one"),
    ("vllm_output", ("outputs", []), "0 outputs, expected one"),
    ("sglang", ("meta_info", "completion_tokens", "2"), "completion_tokens must be an integer"),
    # versions
    (
        "sglang",
        ("meta_info", "weight_version", "default"),
        "weight_version 'default' is not a number",
    ),
    ("sglang", ("meta_info", "weight_version", None), "weight_version is missing"),
    ("sglang_chat", ("metadata", None), "metadata is missing"),
]


def broken(record, *path_and_value):
    *path, name, value = path_and_value
    place = record
    for step in path:
        place = getattr(place, step) if isinstance(place, SimpleNamespace) else place[step]
    if isinstance(place, SimpleNamespace):
        setattr(place, name, value)
    else:
        place[name] = value
    return record


@pytest.mark.parametrize(("name", "path", "message"), BREAKS)
def test_a_reply_that_contradicts_itself_is_refused_and_the_turn_named(name, path, message):
    make, read = READERS[name]
    with pytest.raises(AdapterError, match=message) as caught:
        read(broken(copy.deepcopy(make()), *path), turn=4)
    assert str(caught.value).startswith("turn 4, ")


@pytest.mark.parametrize("name", ["sglang_chat", "vllm_chat", "vllm_completion"])
def test_a_prompt_that_the_engine_made_again_is_refused(name):
    make, read = READERS[name]
    assert read(make(), prompt_ids=PROMPT).prompt_ids.tolist() == PROMPT
    with pytest.raises(AdapterError, match="4 ids sent, 3 read, first difference at 1"):
        read(make(), prompt_ids=[11, 1, 2, 13])
    with pytest.raises(AdapterError, match="2 ids sent, 3 read, first difference at 2"):
        read(make(), prompt_ids=[11, 12])


def test_a_delta_turn_is_checked_against_the_whole_prompt():
    turn = sglang.turn_from_generate(generated(), [13], version_sent=7, base_length=2)
    assert (turn.base_length, turn.prompt_ids.tolist(), turn.length) == (2, [13], 5)
    turn = read_vllm(vllm_chat(), prompt_ids=[13], base_length=2, synthetic_length=1)
    assert (turn.base_length, turn.synthetic_length, turn.length) == (2, 1, 5)
    with pytest.raises(AdapterError, match="4 prompt ids, but prompt_tokens is 3"):
        sglang.turn_from_generate(generated(), [13], version_sent=7, base_length=3)


def test_the_chat_endpoint_reads_meta_info_where_it_is_given():
    reply = sglang_chat()
    reply["choices"][0] |= {"logprobs": None, "meta_info": generated()["meta_info"]}
    turn = read_sglang_chat(reply)
    assert turn.completion_ids.tolist() == [21, 22]
    assert turn.prompt_ids.tolist() == PROMPT


def test_versions_of_the_sampled_tokens_go_before_those_of_the_caller():
    reply = generated()
    reply["meta_info"]["weight_versions"] = [{"version": "8", "start": 0, "end": 2}]
    turn = read_sglang(reply)
    assert (turn.version_sent, turn.version_received) == (8, 8)


def test_an_update_within_a_completion_shows_as_two_versions():
    reply = generated()
    reply["meta_info"]["weight_versions"] = [
        {"version": "7", "start": 0, "end": 1},
        {"version": "8", "start": 1, "end": 2},
    ]
    turn = read_sglang(reply)
    assert (turn.version_sent, turn.version_received) == (7, 8)


def test_a_version_that_nobody_tells_is_refused():
    with pytest.raises(AdapterError, match="pass the weight version at sending"):
        sglang.turn_from_generate(generated(), PROMPT)


def test_version_names_may_be_anything_that_the_caller_can_read():
    reply = broken(generated(), "meta_info", "weight_version", "step-12")
    turn = read_sglang(reply, parse_version=lambda name: int(name.removeprefix("step-")))
    assert turn.version_received == 12


def test_an_aborted_request_keeps_what_it_had():
    reply = {
        "output_ids": [],
        "meta_info": {
            "finish_reason": {"type": "abort", "message": "Abort in waiting queue"},
            "weight_version": "7",
            "output_token_logprobs": [],
        },
    }
    turn = read_sglang(reply)
    assert turn.completion_ids.size == 0
    assert turn.finish_reason is FinishReason.ABORT


def test_a_stop_that_returns_no_token_is_refused():
    reply = generated()
    reply["output_ids"] = []
    reply["meta_info"] |= {
        "output_token_logprobs": [],
        "completion_tokens": 0,
        "finish_reason": {"type": "stop", "matched": "text"},
    }
    with pytest.raises(TurnError, match="completion_ids"):
        read_sglang(reply)


def test_ids_are_read_from_token_texts_where_the_server_wrote_them_there():
    reply = vllm_chat()
    reply["choices"][0]["token_ids"] = None
    content = reply["choices"][0]["logprobs"]["content"]
    content[0]["token"], content[1]["token"] = "token_id:21", "token_id:22"
    assert read_vllm(reply).completion_ids.tolist() == [21, 22]
    content[1]["token"] = "token_id:x"
    with pytest.raises(AdapterError, match="token_ids is missing"):
        read_vllm(reply)


def test_vllm_logprobs_may_be_bare_numbers():
    output = vllm_output()
    output.outputs[0].logprobs = [{21: -0.5}, {22: -0.25}]
    assert read_output(output).logprobs.tolist() == [-0.5, -0.25]


@pytest.mark.parametrize("module", [sglang, vllm])
def test_what_a_reply_loses_is_listed_once_and_with_its_reason(module):
    fields = [field for field, _ in module.LOSSY]
    assert len(set(fields)) == len(fields)
    assert all(why for _, why in module.LOSSY)


def test_a_logprob_that_is_no_number_names_turn_and_position():
    reply = vllm_completion()
    reply["choices"][0]["logprobs"]["token_logprobs"][1] = float("nan")
    with pytest.raises(TurnError) as caught:
        vllm.turn_from_reply(reply, version_sent=0, version_received=0, turn=3)
    assert (caught.value.turn, caught.value.field, caught.value.position) == (3, "logprobs", 1)
    reply = generated()
    reply["meta_info"]["output_token_logprobs"][0][0] = float("nan")
    with pytest.raises(TurnError, match=r"turn 4, logprobs\[0\]"):
        read_sglang(reply, turn=4)


@pytest.mark.parametrize("entry", [None, -0.5, [-0.5]])
def test_an_entry_without_logprob_and_id_is_named(entry):
    reply = generated()
    reply["meta_info"]["output_token_logprobs"][1] = entry
    with pytest.raises(AdapterError, match=r"output_token_logprobs\[1\] is"):
        read_sglang(reply)


@pytest.mark.parametrize(
    ("name", "path", "field", "position"),
    [
        ("sglang", ("meta_info", "completion_tokens", 3), "completion_tokens", None),
        ("sglang", ("meta_info", "finish_reason", {"type": "?"}), "finish_reason", None),
        ("sglang", ("meta_info", "weight_version", "x"), "weight_version", None),
        (
            "sglang",
            ("meta_info", "output_token_logprobs", [[-0.5, 21, ""], [None, 22, ""]]),
            "output_token_logprobs",
            1,
        ),
        ("sglang", ("output_ids", [21, 23]), "output_ids", 1),
        ("sglang_chat", ("choices", 0, "matched_stop", 9), "completion_ids", 1),
        ("vllm_chat", ("usage", "prompt_tokens", 4), "prompt_tokens", None),
        ("vllm_chat", ("choices", 0, "logprobs", "content", 1, "logprob", None), "content", 1),
        (
            "vllm_completion",
            ("choices", 0, "logprobs", "token_logprobs", [-0.5, None]),
            "token_logprobs",
            1,
        ),
        ("vllm_output", ("outputs", 0, "logprobs", [{21: -0.5}, {9: 0.0}]), "logprobs", 1),
    ],
)
def test_an_error_tells_turn_field_and_position_apart_and_survives_pickling(
    name, path, field, position
):
    make, read = READERS[name]
    with pytest.raises(AdapterError) as caught:
        read(broken(copy.deepcopy(make()), *path), turn=4)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert error.where.startswith("turn 4, ")
        assert str(error).startswith(error.where)
        assert (error.field, error.position) == (field, position)


def test_the_first_id_that_the_engine_read_otherwise_is_the_position():
    with pytest.raises(AdapterError) as caught:
        vllm.turn_from_reply(vllm_chat(), [11, 12, 99], version_sent=7, version_received=7)
    assert (caught.value.field, caught.value.position) == ("prompt_token_ids", 2)
