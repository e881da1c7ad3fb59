import copy

import pytest
from chat_templates import templated, text_templates
from real_tokenizers import real_tokenizer

from t1_tito import template_arguments
from t1_tito.chat_tokenizer import ChatTemplate
from t1_tito.suffix_locality import SuffixLocality
from t1_tito.template_arguments import candidate_arguments
from t1_tito.template_check import check_template
from t1_tito.template_report import Outcome, TemplateProperty, TemplateReport
from t1_tito.tiny import TinyTokenizer, tiny_tokenizer

CLOSED, GENERATION, LOCALITY, BOS = TemplateProperty
USER = (("user",),)
ALL = (("user",), ("tool",), ("tool", "tool"))


def report_of(name, groups=USER, **arguments):
    return check_template(templated(name)[0], groups=groups, template_arguments=arguments)


def failing(report, kind, level="text"):
    """Settings (group, reasoning) of failing cells."""
    return {
        (cell.group, cell.reasoning)
        for cell in report.failures
        if cell.property is kind and cell.level == level
    }


def test_the_tiny_template_has_every_property():
    report = check_template(tiny_tokenizer())
    assert not report.failures
    assert all(report.holds(kind) for kind in (CLOSED, GENERATION, LOCALITY))
    assert report.proven
    assert not report.restored_by


@pytest.mark.parametrize("name", ["qwen2_5", "qwen3_instruct_2507", "llama3", "gemma3", "cohere"])
def test_templates_that_keep_history_pass(name):
    assert not report_of(name).failures


@pytest.mark.parametrize(
    ("name", "closed", "generation"),
    [
        ("qwen3", {("user", False), ("user", True)}, set()),
        ("glm4moe", {("user", True)}, set()),
        ("glm4moe_training", {("user", True)}, set()),
        ("qwen3_5_think", {("user", False), ("user", True)}, set()),
        ("nemotron_3_nano", {("user", True)}, {("opening", False), ("user", False)}),
        ("qwen3_5_nothink_training", set(), {("opening", True), ("user", True)}),
        (
            "deepseekv3",
            set(),
            {(group, thought) for group in ("opening", "user") for thought in (False, True)},
        ),
    ],
)
def test_templates_that_rewrite_history_fail_where_they_do(name, closed, generation):
    report = report_of(name)
    assert {at for at in failing(report, CLOSED) if at[0] != "tool"} == closed
    assert {at for at in failing(report, GENERATION) if at[0] != "tool"} == generation
    assert report.holds(LOCALITY)


@pytest.mark.parametrize(
    ("name", "restoring"),
    [
        ("qwen3", ()),
        ("qwen3_6", ({"preserve_thinking": True},)),
        ("nemotron_3_nano", ({"truncate_history_thinking": False},)),
    ],
)
def test_a_known_argument_that_restores_the_closed_prefix_is_named_and_does(name, restoring):
    report = report_of(name)
    assert report.restored_by[CLOSED] == restoring
    for arguments in restoring:
        assert report_of(name, **arguments).holds(CLOSED)


def test_a_generation_prompt_can_be_a_prefix_as_text_and_not_as_ids():
    report = report_of("qwen3_8")
    assert failing(report, GENERATION, "text") == set()
    assert ("user", False) in failing(report, GENERATION, "ids")
    assert ("user", True) not in failing(report, GENERATION, "ids")


def test_a_failure_shows_where_and_both_renderings():
    cell = next(cell for cell in report_of("qwen3").failures if cell.property is CLOSED)
    assert cell.position is not None
    assert "<think>" in cell.detail
    assert f"from text position {cell.position} on" in cell.detail


def test_tool_results_appended_to_qwen3_keep_its_reasoning_in_place():
    report = report_of("qwen3", ALL)
    assert ("tool", True) not in failing(report, CLOSED)
    assert ("tool", False) in failing(report, CLOSED)


def test_a_hoisted_system_message_is_no_suffix():
    report = report_of("cohere2", (("system",),))
    assert not report.holds(LOCALITY)
    assert "does not render them all" in str(report)


def test_roles_that_a_template_refuses_are_no_failures():
    report = report_of("gemma3", (("tool", "tool"),))
    refused = [cell for cell in report.cells if cell.outcome is Outcome.REFUSED]
    assert refused
    assert not [cell for cell in report.failures if cell.group == "tool+tool"]
    assert not report.holds(LOCALITY)
    assert not report.proven


class Refusing(TinyTokenizer):
    """The tiny tokenizer with a template that refuses all messages with these roles."""

    def __init__(self, *roles):
        tiny = tiny_tokenizer()
        super().__init__(tiny.pieces, tiny.ranks, tiny.added)
        object.__setattr__(self, "roles", roles)

    bos_token_id = 0

    def apply_chat_template(self, conversation, **arguments):
        if any(message["role"] in self.roles for message in conversation):
            raise KeyError("nope")
        return super().apply_chat_template(conversation, **arguments)


def test_a_template_that_refuses_everything_proves_nothing():
    report = check_template(Refusing("user"))
    assert {cell.outcome for cell in report.cells} == {Outcome.REFUSED}
    assert not report.failures
    assert not report.proven
    assert report.unseen == (CLOSED, GENERATION, LOCALITY, BOS)
    lines = str(report).splitlines()
    (reason,) = (line for line in lines if "nope" in line)
    assert reason.startswith("refused (user, system, conversation, default encode, tool,")
    assert reason.endswith("): KeyError: 'nope'")
    assert [line for line in lines if "is not shown" in line] == [
        f"{kind} is not shown: the template refused every probe" for kind in TemplateProperty
    ]


def test_a_template_that_refuses_some_roles_is_proven_for_the_others():
    report = check_template(Refusing("tool"))
    assert report.proven
    assert not report.unseen
    # with tools, a user's line is tried behind rounds of tools, too
    reason = "refused (user, tool, tool+tool, tool+user, system): KeyError: 'nope'"
    assert reason in str(report).splitlines()


def test_a_report_without_cells_proves_nothing():
    assert not TemplateReport({}, (), {}).proven


def test_a_default_encoding_that_doubles_the_opening_token_is_found():
    report = check_template(real_tokenizer("llama3_1").tokenizer, groups=USER)
    (plain, tools) = (cell for cell in report.failures if cell.property is BOS)
    assert (plain.group, plain.position) == ("default encode", 1)
    assert tools.tools


def test_real_qwen3_fails_as_its_template_does_on_a_small_vocabulary():
    real = check_template(real_tokenizer("qwen3").tokenizer, groups=USER)
    assert failing(real, CLOSED) == failing(report_of("qwen3"), CLOSED)


def test_the_report_reads_as_a_table():
    lines = str(report_of("qwen3")).splitlines()
    assert lines[1].split() == [
        *["property", "appended", "level", "plain", "reasoning"],
        *["plain,", "tools", "reasoning,", "tools"],
    ]
    row = next(line for line in lines if line.startswith("closed prefix") and " user " in line)
    assert row.split()[-4:] == ["FAIL"] * 4
    assert lines[-1] == "closed prefix is restored by: no template argument that was tried"


class Faulty(TinyTokenizer):
    """The tiny tokenizer with a fault in its template."""

    def __init__(self, fault):
        tiny = tiny_tokenizer()
        super().__init__(tiny.pieces, tiny.ranks, tiny.added)
        object.__setattr__(self, "fault", fault)

    def apply_chat_template(self, conversation, **arguments):
        text = super().apply_chat_template(conversation, **arguments)
        return self.fault(text, conversation, arguments["add_generation_prompt"])


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (CLOSED, lambda text, messages, opened: text.replace("First", str(len(messages)))),
        (GENERATION, lambda text, messages, opened: text + "<think>\n" * opened),
        (LOCALITY, lambda text, messages, opened: text + f"[{len(messages)}]"),
    ],
)
def test_each_property_fails_on_a_planted_fault(kind, fault):
    report = check_template(Faulty(fault), groups=USER)
    assert not report.holds(kind)
    # what changes the end of a text or an earlier message breaks its neighbours' properties, too
    untouched = {CLOSED: [LOCALITY], GENERATION: [CLOSED, LOCALITY], LOCALITY: []}[kind]
    assert all(report.holds(other) for other in untouched)


def test_a_call_that_merges_with_the_opener_fails_as_ids():
    def spaced(text, messages, opened):
        return text.replace("assistant\n<tool_call>", "assistant\n\n<tool_call>")

    report = check_template(Faulty(spaced), groups=ALL)
    assert failing(report, GENERATION, "text") == set()
    assert failing(report, GENERATION, "ids") >= {("tool", False), ("tool+tool", False)}


PRUNING = """
{%- macro block(role, text) -%}<|im_start|>{{ role }}
{{ text }}<|im_end|>
{% endmacro -%}
{%- if bos_token and keep_sources is defined and keep_thinking == 3 %}{% break %}{% endif -%}
{%- for message in messages -%}
{%- set thought = message.reasoning_content -%}
{%- if thought and (keep_thinking or loop.last) -%}
{% generation %}{{- block(message.role, '<think>' ~ thought ~ '</think>' ~ message.content) -}}
{% endgeneration %}
{%- else -%}{{- block(message.role, message.content) -}}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- block('assistant', style).split('\n')[0] ~ '\n' -}}{%- endif -%}
"""


def test_an_argument_that_only_this_template_knows_is_found():
    tokenizer = copy.deepcopy(templated("qwen3")[0])
    tokenizer.chat_template = PRUNING.replace("{% break %}", "")
    report = check_template(tokenizer, groups=USER)
    assert ("user", True) in failing(report, CLOSED) | failing(report, GENERATION)
    assert report.restored_by[CLOSED] == ({"keep_thinking": True},)
    assert check_template(tokenizer, groups=USER, template_arguments={"keep_thinking": True}).holds(
        CLOSED
    )


def arguments_of(template):
    tokenizer = copy.deepcopy(templated("qwen3")[0])
    tokenizer.chat_template = template
    return list(candidate_arguments(ChatTemplate(tokenizer)))


@pytest.mark.parametrize(
    ("template", "names"),
    [
        (PRUNING, ["keep_sources", "keep_thinking"]),
        (
            "{% if one and not two.field %}{{ 'x' if three == 3 }}{% endif %}",
            ["one", "three", "two"],
        ),
        ("{% if tools or add_generation_prompt or bos_token %}{% endif %}{{ printed }}", []),
        ("{% for m in messages %}{% if m and loop.first %}{% endif %}{% endfor %}", []),
        ("{% if messages %}{% set own = 1 %}{% endif %}{% if own %}{% endif %}", []),
        ("{% if own is not defined %}{% set own = 1 %}{% endif %}", ["own"]),
        ("{% set own = own | default(true) %}", ["own"]),
        ("{% macro f(own) %}{% if own %}{% endif %}{% endmacro %}", []),
    ],
)
def test_switches_are_names_that_a_caller_may_give_and_the_renderer_does_not(template, names):
    assert arguments_of(template) == [{name: on} for name in names for on in (True, False)]


def test_a_known_argument_is_tried_with_the_other_value_too():
    assert arguments_of("{% if enable_thinking or clear_thinking %}{% endif %}") == [
        {"clear_thinking": False},
        {"enable_thinking": True},
        {"enable_thinking": False},
        {"clear_thinking": True},
    ]


def test_of_a_template_that_cannot_be_read_known_arguments_are_tried():
    assert arguments_of("{% own_tag %}{% if x and drop_thinking %}") == [{"drop_thinking": False}]
    assert list(candidate_arguments(ChatTemplate(Refusing()))) == []


def test_without_jinja_known_arguments_are_tried(monkeypatch):
    monkeypatch.setattr(template_arguments, "find_spec", lambda name: None)
    assert arguments_of("{% if x and drop_thinking %}{% endif %}") == [{"drop_thinking": False}]


def test_locality_is_lost_when_a_template_counts_turns():
    template = ChatTemplate(Faulty(lambda text, messages, opened: text + f"[{len(messages)}]"))
    with pytest.raises(ValueError, match="depends on the history before it"):
        SuffixLocality(template).require(("user",))


def test_every_text_template_is_checked_without_an_error():
    for name in text_templates()[::16]:
        assert report_of(name).cells
