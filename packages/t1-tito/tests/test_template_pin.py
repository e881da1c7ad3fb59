import copy
import json

import pytest
from chat_templates import templated
from real_tokenizers import real_tokenizer, trl_template
from tokenizers.normalizers import NFC

from t1_tito import TemplateError, template_pin
from t1_tito.session import Session
from t1_tito.template_pin import TemplatePin, pin_template
from t1_tito.tiny import tiny_tokenizer

TINY = tiny_tokenizer()


def test_a_pin_survives_json_and_verifies():
    pin = pin_template(TINY)
    again = TemplatePin.from_json(pin.to_json())
    assert again == pin
    again.verify(TINY)


def test_a_pin_of_real_qwen3_holds_what_was_measured():
    real = real_tokenizer("qwen3")
    pin = pin_template(real.tokenizer, token_bytes=real.token_bytes)
    assert pin.opener_ids == pin.history_opener_ids == (151644, 77091, 198)
    assert pin.closing_ids == (151645, 198)
    assert pin.special_ids["<|im_end|>"] == 151645
    assert ("tool", "tool") in pin.groups
    TemplatePin.from_json(pin.to_json()).verify(real.tokenizer, token_bytes=real.token_bytes)


def test_an_opener_that_history_shortens_is_pinned_both_ways():
    # without thinking, the generation prompt ends in an empty thought that history leaves out
    real = real_tokenizer("qwen3")
    arguments = {"enable_thinking": False}
    pin = pin_template(real.tokenizer, template_arguments=arguments, token_bytes=real.token_bytes)
    assert pin.history_opener_ids == (151644, 77091, 198)
    assert pin.opener_ids == (151644, 77091, 198, 151667, 271, 151668, 271)


def changed_template(tokenizer):
    tokenizer.chat_template = trl_template("qwen3_training")


def changed_normaliser(tokenizer):
    tokenizer.backend_tokenizer.normalizer = NFC()


def changed_special_token(tokenizer):
    tokenizer.add_special_tokens({"extra_special_tokens": ["<|new|>"]})


def test_a_changed_template_and_a_changed_tokenizer_are_named():
    tokenizer = copy.deepcopy(templated("qwen3")[0])
    pin = pin_template(tokenizer)
    changed_template(tokenizer)
    with pytest.raises(TemplateError, match=r"template_sha256 changed: was '[0-9a-f]{64}', is"):
        pin.verify(tokenizer)
    tokenizer = copy.deepcopy(templated("qwen3")[0])
    changed_special_token(tokenizer)
    with pytest.raises(TemplateError, match="tokenizer_sha256 changed"):
        pin.verify(tokenizer)


def test_padding_and_truncation_do_not_change_a_tokenizer():
    tokenizer = copy.deepcopy(templated("qwen3")[0])
    pin = pin_template(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(128)
    pin.verify(tokenizer)


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("opener_ids", [1, 2], r"opener_ids changed: was \(1, 2\), is \(657,"),
        ("closing_ids", [658], r"closing_ids changed: was \(658,\), is \(658, 10\)"),
        ("special_ids", {"<|im_end|>": 3}, "special_ids changed: '<|im_end|>' was 3, is 658"),
        ("tokenizer_sha256", "0", "tokenizer_sha256 changed: was '0', is"),
    ],
)
def test_each_field_that_changed_is_named_with_both_values(field, value, says):
    content = json.loads(pin_template(TINY).to_json())
    pin = TemplatePin.from_json(json.dumps({**content, field: value}))
    with pytest.raises(TemplateError) as raised:
        pin.verify(TINY)
    assert raised.match(says.replace("|", r"\|"))


def test_a_pin_refuses_a_template_that_it_would_not_hold_for():
    with pytest.raises(TemplateError, match="tool"):
        pin_template(templated("deepseek_r1_distill")[0])
    assert pin_template(templated("deepseek_r1_distill")[0], groups=[("user",)]).groups


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no", "not a template pin"),
        ("{}", "schema_version"),
        ('{"schema_version": 1, "groups": []}', "not a template pin: TypeError"),
        ("[]", "not a template pin"),
    ],
)
def test_a_file_that_is_no_pin_is_refused(text, says):
    with pytest.raises(TemplateError, match=says):
        TemplatePin.from_json(text)


def test_a_pin_of_a_later_schema_is_refused():
    content = json.loads(pin_template(TINY).to_json())
    with pytest.raises(TemplateError, match="schema_version 2 is not 1"):
        TemplatePin.from_json(json.dumps({**content, "schema_version": 2}))


def test_a_session_takes_a_pin_instead_of_trying_the_template_again():
    pin = pin_template(TINY, token_bytes=TINY.token_bytes)
    session = Session(TINY, token_bytes=TINY.token_bytes, pin=pin)
    assert session._locality.groups == set(pin.groups)


def test_a_session_refuses_a_pin_for_other_template_arguments():
    tokenizer, table = templated("qwen3")
    pin = pin_template(tokenizer, template_arguments={"enable_thinking": False}, token_bytes=table)
    with pytest.raises(TemplateError, match="template_arguments changed"):
        Session(tokenizer, token_bytes=table, pin=pin)
    Session(tokenizer, token_bytes=table, pin=pin, template_arguments={"enable_thinking": False})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (changed_template, "template_sha256"),
        (changed_special_token, "special_ids"),
        (changed_normaliser, "tokenizer_sha256"),
    ],
)
def test_a_session_refuses_a_pin_of_a_template_or_tokenizer_that_changed(change, field):
    tokenizer = copy.deepcopy(templated("qwen3")[0])
    pin = pin_template(tokenizer)
    change(tokenizer)
    with pytest.raises(TemplateError, match=f"{field} changed"):
        Session(tokenizer, pin=pin)


def test_a_token_that_is_added_between_two_sessions_is_seen():
    tokenizer, table = copy.deepcopy(templated("qwen3")[0]), templated("qwen3")[1]
    pin = pin_template(tokenizer)
    Session(tokenizer, token_bytes=table, pin=pin)
    tokenizer.add_tokens(["plain"])
    with pytest.raises(TemplateError, match="tokenizer_sha256 changed"):
        Session(tokenizer, token_bytes=table, pin=pin)


def test_a_session_refuses_a_pin_of_a_tokenizer_that_shows_its_byte_table_only():
    content = json.loads(pin_template(TINY).to_json())
    pin = TemplatePin.from_json(json.dumps({**content, "tokenizer_sha256": "0"}))
    with pytest.raises(TemplateError, match="tokenizer_sha256 changed"):
        Session(TINY, pin=pin)


def test_sessions_read_a_pinned_tokenizer_once(monkeypatch):
    tokenizer, table = templated("qwen3")
    pin = pin_template(tokenizer, token_bytes=table)
    Session(tokenizer, token_bytes=table, pin=pin)
    monkeypatch.setattr(template_pin, "_tokenizer_digest", None)
    Session(tokenizer, token_bytes=table, pin=pin)
