import pytest
from chat_templates import templated
from real_tokenizers import real_tokenizer
from session_driver import Driver, check_exact

from t1_tito import TemplateError
from t1_tito.session import Session
from t1_tito.template_probes import TOOLS

USER = {"role": "user", "content": "List the files."}
CLOSED_BY_A_TOKEN = [
    "cohere",
    "deepseekv3",
    "gemma3",
    "llama3_1",
    "muse_glimmer",
    "nemotron_3_nano",
    "phi3",
    "qwen2_5",
    "qwen3",
    "qwen3_5_nothink",
    "qwen3_5_think",
    "qwen3_8",
]


def said(text, calls=0):
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {
                "id": f"call0000{i}",
                "type": "function",
                "function": {"name": "run", "arguments": {"command": f"ls {i}"}},
            }
            for i in range(calls)
        ]
    return message


def results(count):
    return [
        {"role": "tool", "name": "run", "tool_call_id": f"call0000{i}", "content": f"file {i}"}
        for i in range(count)
    ]


def observed(text):
    return {"role": "user", "content": text}


class Chat(Driver):
    """A driver that says text and knows the template's own rendering of the whole history."""

    def __init__(self, tokenizer, token_bytes, **arguments):
        super().__init__(Session(tokenizer, token_bytes=token_bytes, **arguments))
        self.tokenizer, self.table = tokenizer, token_bytes
        self.tools = arguments.get("tools")
        self.arguments = arguments.get("template_arguments", {})

    def say(self, messages, text, stop, answer=None):
        """One turn; `stop` is the literal of the stop token, None for a turn that was cut."""
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        if stop is not None:
            ids.append(self.tokenizer.convert_tokens_to_ids(stop))
        self.turn(messages, ids, answer or said(text), "stop" if stop else "length")
        return self.histories[-1]

    def suffix(self, messages):
        """Text of the new ids behind synthetic ones, and of the synthetic ones."""
        prompt = self.session.prompt(messages)
        cut = prompt.synthetic_length
        return self.table.text(prompt.new_ids[cut:]), self.table.text(prompt.new_ids[:cut])

    def whole(self, messages):
        """What the template renders for the whole history."""
        return self.tokenizer.apply_chat_template(
            messages,
            tools=self.tools,
            tokenize=False,
            add_generation_prompt=True,
            **self.arguments,
        )


def closing_of(chat, messages):
    """The stop token that stands last before the appended message in the template's rendering."""
    text = chat.whole(messages).rpartition(messages[-1]["content"])[0].rpartition("ls")[2]
    literals = [chat.table.special_text[stop] for stop in chat.session.stop_ids]
    return max(literals, key=text.find)


@pytest.mark.parametrize("name", CLOSED_BY_A_TOKEN)
def test_new_text_is_the_end_of_the_template_s_own_rendering(name):
    chat = Chat(*templated(name))
    probe = [USER, said("ls"), observed("a.txt")]
    stop = closing_of(chat, probe)
    history = [*chat.say([USER], "ls", stop), observed("a.txt")]
    new, synthetic = chat.suffix(history)
    assert synthetic == ""
    assert chat.whole(history).endswith(stop + new)

    history = [*chat.say(history, "cat a", None), observed("go on")]
    new, synthetic = chat.suffix(history)
    assert synthetic.endswith(stop)
    assert chat.whole(history).endswith(stop + new)

    chat.say(history, "cat a.txt", stop)
    chat.say([*chat.histories[0], observed("b.txt")], "cat b.txt", stop)
    check_exact(chat)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", ["qwen2_5", "qwen3", "qwen3_5_think", "nemotron_3_nano"])
def test_tool_results_are_rendered_as_the_template_renders_their_group(name, count):
    chat = Chat(*templated(name), tools=TOOLS)
    history = chat.say([USER], "ls", "<|im_end|>", said("ls", count))
    new, _ = chat.suffix([*history, *results(count)])
    assert chat.whole([*history, *results(count)]).endswith("<|im_end|>" + new)
    assert new.count("<|im_start|>user") == 1
    chat.say([*history, *results(count)], "done", "<|im_end|>")
    check_exact(chat)


@pytest.mark.parametrize(
    ("stop", "appended", "begins"),
    [
        ("<|user|>", [observed("a")], "\na<|assistant|>"),
        ("<|observation|>", results(1), "\n<tool_response>\nfile 0"),
        ("<|observation|>", [observed("a")], "<|user|>\na<|assistant|>"),
    ],
)
def test_a_stop_token_that_is_the_next_header_is_not_doubled(stop, appended, begins):
    tokenizer, table = templated("glm4moe")
    stops = tokenizer.convert_tokens_to_ids(["<|user|>", "<|observation|>"])
    chat = Chat(tokenizer, table, tools=TOOLS, stop_ids=stops)
    history = chat.say([USER], "ls", stop, said("ls", 1))
    new, _ = chat.suffix([*history, *appended])
    assert new.startswith(begins)
    assert chat.whole([*history, *appended]).endswith(new)
    chat.say([*history, *appended], "done", stop)
    check_exact(chat)


def test_the_return_token_stands_for_the_end_token_of_history():
    real = real_tokenizer("gptoss")
    chat = Chat(real.tokenizer, real.token_bytes)
    sampled = "<|channel|>final<|message|>ls"
    history = [*chat.say([USER], sampled, "<|return|>", said("ls")), observed("a")]
    new, _ = chat.suffix(history)
    assert new.startswith("<|start|>user")
    assert "<|end|>" + new in chat.whole(history)
    chat.say(history, sampled, "<|return|>", said("ls"))
    check_exact(chat)


def test_a_harmony_tool_call_is_answered_behind_its_call_token():
    real = real_tokenizer("gptoss")
    chat = Chat(real.tokenizer, real.token_bytes, tools=TOOLS)
    assert real.tokenizer.convert_tokens_to_ids("<|call|>") in chat.session.stop_ids
    answer = said("", 1)
    history = chat.say([USER], "<|channel|>commentary to=functions.run", "<|call|>", answer)
    new, _ = chat.suffix([*history, *results(1)])
    assert new.startswith("<|start|>functions.run")
    assert chat.whole([*history, *results(1)]).endswith("<|call|>" + new)


@pytest.mark.parametrize("thinking", [True, False])
def test_qwen3_keeps_reasoning_that_its_template_would_prune(thinking):
    real = real_tokenizer("qwen3")
    chat = Chat(real.tokenizer, real.token_bytes, template_arguments={"enable_thinking": thinking})
    text = "<think>\nhm\n</think>\n\nls" if thinking else "ls"
    history = [USER]
    for i in range(3):
        history = [*chat.say(history, text, "<|im_end|>"), observed(f"file {i}")]
    chunk = chat.session.trial().chunks[0]
    assert real.token_bytes.text(chunk.tokens).count("<think>") == 3
    assert chat.whole(history).count("<think>") == (0 if thinking else 1)
    check_exact(chat)


def test_a_thought_opened_by_the_generation_prompt_is_closed():
    chat = Chat(*templated("qwen3_5_think"))
    history = [*chat.say([USER], "hm", None), observed("go on")]
    assert chat.suffix(history)[1] == "\n</think>\n\n<|im_end|>"


def test_half_a_character_on_qwen3_is_closed_and_stays():
    real = real_tokenizer("qwen3")
    chat = Chat(real.tokenizer, real.token_bytes)
    chat.turn([USER], [9284], said("\ufffd"), "length")
    chat.say([*chat.histories[0], observed("go on")], "ls", "<|im_end|>")
    assert 9284 in chat.session.trial().chunks[0].tokens
    check_exact(chat)


@pytest.mark.parametrize(
    ("name", "appended", "problem"),
    [
        ("deepseek_r1_distill", results(1), "depends on the history"),
        ("cohere2", [{"role": "system", "content": "s"}], "behind the assistant turn"),
        ("gemma3", results(2), "does not render"),
    ],
)
def test_a_template_whose_suffix_cannot_be_trusted_is_refused(name, appended, problem):
    chat = Chat(*templated(name))
    stop = chat.table.special_text[max(chat.session.stop_ids)]
    history = chat.say([USER], "ls", stop, said("ls", len(appended)))
    with pytest.raises(TemplateError, match=problem):
        chat.session.prompt([*history, *appended])
    chat.say([*history, observed("a")], "done", stop)
    check_exact(chat)


def test_a_second_opening_token_in_a_prompt_is_refused():
    real = real_tokenizer("llama3_1")
    session = Session(real.tokenizer, token_bytes=real.token_bytes)
    assert session.prompt([USER]).ids[:2].tolist().count(128000) == 1
    with pytest.raises(TemplateError, match="may stand at position 0 only"):
        session.prompt([{"role": "system", "content": "<|begin_of_text|>"}, USER])
