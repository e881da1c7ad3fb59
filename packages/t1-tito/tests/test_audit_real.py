"""The audit on a real tokenizer and its chat template: what it says where stacks go wrong."""

import pytest
from audit_trials import turn
from real_tokenizers import real_tokenizer

from t1_tito import FinishReason, Policy, assemble
from t1_tito.audit import audit

STOP = 151645


@pytest.fixture(scope="module")
def qwen():
    return real_tokenizer("qwen3")


def rendered(qwen, *messages, generation_prompt=True):
    roles = ["user", "assistant"] * len(messages)
    conversation = [{"role": r, "content": m} for r, m in zip(roles, messages, strict=False)]
    return qwen.render(conversation, add_generation_prompt=generation_prompt)


def test_a_word_that_the_printed_ladder_says_twice_is_shown(qwen):
    # " Pantomime" as it was sampled; encoding the text again gives other ids
    sampled = [53122, 316, 545, STOP]
    assert qwen.token_bytes.text(sampled) == " Pantomime<|im_end|>"
    first = rendered(qwen, "say it")
    again = "\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\n"
    later = [*first, *qwen.encode(f" Pantomime<|im_end|>{again}")]
    turns = [turn(first, sampled), turn(later, qwen.encode("no<|im_end|>"))]
    proven = assemble(turns, qwen.token_bytes)
    report = audit(proven, turns, token_bytes=qwen.token_bytes)
    assert report.ok
    assert (len(proven.chunks), report.context_drift) == (1, 2)

    printed = assemble(turns, qwen.token_bytes, policy=Policy(ladder="paper"))
    report = audit(printed, turns, token_bytes=qwen.token_bytes)
    assert [f.kind.value for f in report.findings] == ["bytes"]
    assert "omime<|im_end|>⟧ Pantomime<|im_end|>" in report.findings[0].window


def test_a_half_emoji_that_decodes_alike_is_shown(qwen):
    first = rendered(qwen, "smile")
    later = [*first, *qwen.encode("\ufffd<|im_end|>\n<|im_start|>assistant\n")]
    turns = [turn(first, [9284], FinishReason.LENGTH), turn(later, [STOP])]
    ladder = Policy(ladder="paper", max_tail=0, max_scaffold=0)
    fault = assemble(turns, qwen.token_bytes, policy=ladder)
    assert len(fault.chunks) == 1
    report = audit(fault, turns, token_bytes=qwen.token_bytes)
    assert [(f.kind.value, f.turn) for f in report.findings] == [("bytes", 1)]


def test_a_reply_that_was_cut_and_not_recorded_is_shown(qwen):
    opener = qwen.encode("<|im_start|>assistant\n")
    first = rendered(qwen, "list the files")
    # the cut reply is in the history by its text alone; the prompt still extends the first turn
    said = qwen.encode("ls -la<|im_end|>")
    cut = qwen.encode(
        "\n<|im_start|>user\nok<|im_end|>\n<|im_start|>assistant\nfind / -name x<|im_end|>"
        "\n<|im_start|>user\nyour reply was too long<|im_end|>\n<|im_start|>assistant\n"
    )
    turns = [turn(first, said), turn([*first, *said, *cut], qwen.encode("pwd<|im_end|>"))]
    trial = assemble(turns, qwen.token_bytes)
    assert [boundary.reason.value for boundary in trial.boundaries] == ["extends"]
    report = audit(trial, turns, token_bytes=qwen.token_bytes, assistant_opener=opener)
    (finding,) = report.findings
    assert (finding.kind.value, finding.turn) == ("unrecorded", 1)
    assert "⟦find / -name x⟧<|im_end|>" in finding.window


def test_reasoning_that_the_template_prunes_splits_and_stays_recorded(qwen):
    opener = qwen.encode("<|im_start|>assistant\n")
    first = rendered(qwen, "add")
    said = qwen.encode("<think>\nhard\n</think>\n\nfour<|im_end|>")
    later = rendered(qwen, "add", "<think>\nhard\n</think>\n\nfour", "sure?")
    turns = [turn(first, said), turn(later, qwen.encode("yes<|im_end|>"))]
    trial = assemble(turns, qwen.token_bytes)
    report = audit(trial, turns, token_bytes=qwen.token_bytes, assistant_opener=opener)
    assert report.ok, str(report)
    assert (len(trial.chunks), report.conditioning_exact) == (2, 1)
    assert "<think>" in report.worst[0].stream_window
    assert "⟦four" in report.worst[0].prompt_window
