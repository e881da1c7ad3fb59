import pytest

from t1_tito.message_matching import content_text, matcher_named
from t1_tito.session import Session
from t1_tito.tiny import tiny_tokenizer

TINY = tiny_tokenizer()


def call(arguments, **extra):
    function = {"name": "run", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c", "type": "function", "function": function}],
        **extra,
    }


@pytest.mark.parametrize(
    ("stored", "replayed", "strict", "json", "role_and_content"),
    [
        (call('{"a": 1}'), call('{"a": 1}'), True, True, True),
        (call('{"a":1}'), call('{"a": 1}'), False, True, True),
        (call('{"a": 1}'), call({"a": 1}), False, True, True),
        (call('{"a": 1}'), call('{"a": 2}'), False, False, True),
        (call("{broken"), call("{broken"), True, True, True),
        (call("{broken"), call("{ broken"), False, False, True),
        (call("{}", reasoning_content="hm"), call("{}"), False, False, True),
        (call("{}", refusal=None), call("{}"), True, True, True),
        ({"role": "user", "content": "a"}, {"role": "user", "content": "a "}, False, False, False),
        ({"role": "user", "content": "a"}, {"role": "tool", "content": "a"}, False, False, False),
        (
            {"role": "user", "content": "ab"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]},
            False,
            False,
            True,
        ),
    ],
)
def test_matchers_agree_with_the_table(stored, replayed, strict, json, role_and_content):
    assert matcher_named("strict")(stored, replayed) is strict
    assert matcher_named("json")(stored, replayed) is json
    assert matcher_named("role_and_content")(stored, replayed) is role_and_content


def test_an_unknown_matcher_is_refused():
    with pytest.raises(ValueError, match="matcher is one of strict, json"):
        matcher_named("fuzzy")


def test_content_that_is_no_text_is_compared_whole():
    image = {"role": "user", "content": [{"type": "image", "url": "a"}, "x"]}
    other = {"role": "user", "content": [{"type": "image", "url": "b"}, "x"]}
    assert content_text(image) != content_text(other)
    assert content_text({"role": "user"}) == ""


@pytest.mark.parametrize(("matcher", "parent"), [("strict", None), ("json", 0)])
def test_a_tool_call_replayed_in_another_spelling_keeps_its_stored_ids(matcher, parent):
    session = Session(TINY, token_bytes=TINY.token_bytes, matcher=matcher)
    task = {"role": "user", "content": "go"}
    prompt = session.prompt([task])
    sampled = [*TINY.encode('\n<tool_call>\n{"name":"run"}\n</tool_call>'), TINY.stop_id]
    session.record(prompt, sampled, [0.0] * len(sampled), 0, 0, "stop", call('{"a":1}'))
    replayed = [task, call('{"a": 1}'), {"role": "tool", "content": "done"}]
    again = session.prompt(replayed)
    assert again.parent == parent
    assert again.unrecorded == (0 if parent == 0 else 1)
    if parent == 0:
        assert again.ids[prompt.ids.size :][: len(sampled)].tolist() == sampled
