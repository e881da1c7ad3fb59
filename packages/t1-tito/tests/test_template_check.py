import pytest
from chat_templates import templated, text_templates
from real_tokenizers import real_tokenizer

from t1_tito.chat_tokenizer import ChatTemplate
from t1_tito.suffix_locality import SuffixLocality
from t1_tito.template_check import check_template
from t1_tito.template_report import Outcome, TemplateProperty
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
    assert lines[-1] == "closed prefix is restored by: no known template argument"


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


def test_locality_is_lost_when_a_template_counts_turns():
    template = ChatTemplate(Faulty(lambda text, messages, opened: text + f"[{len(messages)}]"))
    with pytest.raises(ValueError, match="depends on the history before it"):
        SuffixLocality(template).require(("user",))


def test_every_text_template_is_checked_without_an_error():
    for name in text_templates()[::16]:
        assert report_of(name).cells
