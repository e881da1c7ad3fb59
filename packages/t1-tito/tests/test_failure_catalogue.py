"""Failures that were seen in training stacks, each with the ids of a real tokenizer that show it.

A trial here is what a harness does that owns text: it renders messages by the real chat template and
encodes the whole conversation for every turn. Where the ladder as printed is wrong, the test shows
that too, so that it is known to be able to fail.
"""

import numpy as np
import pytest
from real_tokenizers import real_tokenizer

from t1_tito import (
    Assembler,
    BoundaryCase,
    Kind,
    Policy,
    Reason,
    Turn,
    TurnError,
    assemble,
)

QWEN_STOP = 151645
NEWLINE = 198
PAPER = Policy(ladder="paper")


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **fields):
    return {"role": "assistant", "content": text, **fields}


def qwen():
    return real_tokenizer("qwen3")


def prompt_of(*messages, **arguments):
    return qwen().render(list(messages), add_generation_prompt=True, **arguments)


def turn_of(prompt, completion, finish="stop", **fields):
    logprobs = -np.arange(1, len(completion) + 1, dtype=np.float32)
    return Turn(prompt, completion, logprobs, 0, 0, finish, **fields)


def two_turns(completion, said, finish="stop", policy=None, **arguments):
    """The boundary behind `completion`, of which history says `said`, and the trial."""
    first = turn_of(prompt_of(user("go"), **arguments), completion, finish)
    second = turn_of(
        prompt_of(user("go"), assistant(said), user("on"), **arguments), [10562, QWEN_STOP]
    )
    trial = assemble([first, second], qwen().token_bytes, policy=policy or Policy())
    # whatever happens at the boundary, each sampled token is trained once and as it was sampled
    if policy is None:
        assert sampled_ids(trial) == [*completion, 10562, QWEN_STOP]
    return trial.boundaries[0], trial


def sampled_ids(trial):
    return [token for chunk in trial.chunks for token in chunk.tokens[chunk.loss_mask].tolist()]


def text_of(chunk):
    return qwen().token_bytes.text(chunk.tokens)


# ---- spelled in other ids ----


def test_a_split_that_the_tokenizer_would_not_choose_is_kept():
    sampled = [562, NEWLINE, NEWLINE, 10438, QWEN_STOP]
    assert qwen().encode("ok\n\ndone") == [562, 271, 10438]
    boundary, trial = two_turns(sampled, "ok\n\ndone")
    assert boundary.case is BoundaryCase.RETOKENIZED
    assert boundary.drifted == 2
    (chunk,) = trial.chunks
    assert 271 not in chunk.tokens
    assert text_of(chunk).count("ok\n\ndone<|im_end|>") == 1


@pytest.mark.parametrize("name", ["qwen3", "llama3_1"])
def test_a_completion_sampled_letter_by_letter_is_kept_whatever_the_tokenizer(name):
    real = real_tokenizer(name)
    stop = real.tokenizer.eos_token_id
    letters = [token for letter in "the commands" for token in real.encode(letter)]
    prompt = real.render([user("go")], add_generation_prompt=True)
    later = real.render(
        [user("go"), assistant("the commands"), user("on")], add_generation_prompt=True
    )
    turns = [turn_of(prompt, [*letters, stop]), turn_of(later, [stop])]
    trial = assemble(turns, real.token_bytes)
    assert trial.boundaries[0].case is BoundaryCase.RETOKENIZED
    assert sampled_ids(trial) == [*letters, stop, stop]
    assert real.token_bytes.bytes_of(trial.chunks[0].tokens[:-1]) == real.token_bytes.bytes_of(
        later
    )


def test_drift_at_the_end_of_a_completion_does_not_pass_for_a_dropped_tail():
    sampled = [53122, 316, 545, QWEN_STOP]
    assert qwen().encode(" Pantomime") == [393, 30002, 545]
    boundary, trial = two_turns(sampled, " Pantomime")
    assert boundary.case is BoundaryCase.RETOKENIZED
    assert (boundary.scaffold_dropped, boundary.tail_dropped) == (0, 0)
    assert text_of(trial.chunks[0]).count(" Pantomime") == 1


def test_the_printed_ladder_says_the_end_of_a_completion_twice():
    boundary, trial = two_turns([53122, 316, 545, QWEN_STOP], " Pantomime", policy=PAPER)
    assert boundary.case is BoundaryCase.NORMALIZED
    assert boundary.tail_dropped == 4
    assert text_of(trial.chunks[0]).count(" Pantomime") == 2


def test_a_token_across_the_start_of_a_completion_splits():
    # the generation prompt ends with a line break, which history merges with two of the completion
    assert prompt_of(user("go"))[-1] == NEWLINE
    assert qwen().encode("\n\n\n") == [1406]
    boundary, trial = two_turns([271, 7975, QWEN_STOP], "\n\nfoo")
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.STRADDLING_TOKEN)
    assert 1406 not in trial.chunks[0].tokens


def test_a_token_across_the_end_of_a_completion_splits():
    assert qwen().encode("abcd") + qwen().encode("ef") != qwen().encode("abcdef")
    completion = qwen().encode("abcd")
    first = turn_of(prompt_of(user("go")), completion, "length")
    later = prompt_of(user("go")) + qwen().encode("abcdef")
    trial = assemble([first, turn_of(later, [QWEN_STOP])], qwen().token_bytes)
    boundary = trial.boundaries[0]
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.STRADDLING_TOKEN)
    assert sampled_ids(trial) == [*completion, QWEN_STOP]


def test_a_few_drifted_tokens_cost_no_other_token_its_loss():
    long = qwen().encode("".join(f"step {number}: done\n" for number in range(2000)))
    short = [token for letter in "the answer is 7" for token in qwen().encode(letter)]
    history = [user("go"), assistant(qwen().token_bytes.text(long))]
    turns = [
        turn_of(prompt_of(user("go")), [*long, QWEN_STOP]),
        turn_of(prompt_of(*history, user("on")), [*short, QWEN_STOP]),
        turn_of(
            prompt_of(*history, user("on"), assistant("the answer is 7"), user("on")), [QWEN_STOP]
        ),
    ]
    trial = assemble(turns, qwen().token_bytes)
    cases = [boundary.case for boundary in trial.boundaries]
    assert cases == [BoundaryCase.STRICT, BoundaryCase.RETOKENIZED]
    assert trial.boundaries[1].drifted <= len(short)
    assert sampled_ids(trial) == [*long, QWEN_STOP, *short, QWEN_STOP, QWEN_STOP]


# ---- the template drops or adds ----


def test_reasoning_that_the_template_prunes_splits():
    sampled = [*qwen().encode("<think>\nlet me look\n</think>\n\nA"), QWEN_STOP]
    boundary, trial = two_turns(sampled, "<think>\nlet me look\n</think>\n\nA")
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.PRUNED)
    assert len(trial.chunks) == 2
    assert trial.chunks[1].kind[0] == Kind.SHARED


def test_an_empty_thought_in_the_generation_prompt_is_scaffold():
    boundary, trial = two_turns([562, QWEN_STOP], "ok", enable_thinking=False)
    assert boundary.case is BoundaryCase.NORMALIZED
    assert (boundary.scaffold_dropped, boundary.tail_dropped) == (4, 0)
    (chunk,) = trial.chunks
    prompt = prompt_of(user("go"), enable_thinking=False)
    assert prompt[-4:] == [151667, 271, 151668, 271]
    # the completion stands behind the prompt that it was sampled under
    assert chunk.tokens[: len(prompt)].tolist() == prompt
    assert np.flatnonzero(chunk.loss_mask)[0] == len(prompt)


def test_a_stop_token_that_history_writes_otherwise_is_tail():
    real = real_tokenizer("gptoss")
    end, returned = real.encode("<|end|>"), real.encode("<|return|>")
    prompt = real.render([user("go")], add_generation_prompt=True)
    later = real.render([user("go"), assistant("ok"), user("on")], add_generation_prompt=True)
    sampled = [*real.encode("<|channel|>final<|message|>ok"), *returned]
    trial = assemble([turn_of(prompt, sampled), turn_of(later, returned)], real.token_bytes)
    boundary = trial.boundaries[0]
    assert (boundary.case, boundary.reason) == (BoundaryCase.NORMALIZED, Reason.TAIL)
    assert (boundary.scaffold_dropped, boundary.tail_dropped) == (0, 1)
    assert later[boundary.context_start : boundary.context_start + 1] == end
    assert sampled_ids(trial) == [*sampled, *returned]


def test_the_separator_behind_a_stop_token_enters_once_and_without_loss():
    boundary, trial = two_turns([562, QWEN_STOP], "ok")
    assert boundary.case is BoundaryCase.STRICT
    (chunk,) = trial.chunks
    behind = np.flatnonzero(chunk.tokens == QWEN_STOP)[1] + 1
    assert chunk.tokens[behind : behind + 2].tolist() == [NEWLINE, 151644]
    assert not chunk.loss_mask[behind]


@pytest.mark.parametrize(
    ("opener", "case", "tail"),
    [("<|fim_prefix|>", BoundaryCase.STRICT, 0), ("<|fim_middle|>", BoundaryCase.NORMALIZED, 1)],
)
def test_a_stop_token_that_opens_the_next_message_stands_once(opener, case, tail):
    # some models stop at the header of the message that they expect next
    header, next_header = qwen().encode("<|fim_prefix|>"), qwen().encode(opener)
    prompt, said = qwen().encode("<|im_start|>hello"), qwen().encode(" world")
    later = [*prompt, *said, *next_header, *qwen().encode("seen<|im_start|>")]
    turns = [turn_of(prompt, [*said, *header]), turn_of(later, [*said, *header])]
    trial = assemble(turns, qwen().token_bytes, stop_ids=header)
    assert (trial.boundaries[0].case, trial.boundaries[0].tail_dropped) == (case, tail)
    (chunk,) = trial.chunks
    behind = chunk.tokens.tolist().index(header[0]) + 1
    assert qwen().token_bytes.text(chunk.tokens[behind:]).count("seen") == 1
    assert (chunk.tokens[behind] == next_header[0]) == (tail == 1)
    # the last turn has no later prompt, and keeps its stop token
    assert chunk.tokens[-1] == header[0]


def test_a_tool_call_that_comes_back_with_other_spaces_splits():
    call = '<tool_call>\n{"name":"f","arguments":{"x":1}}\n</tool_call>'
    sampled = [*qwen().encode(call), QWEN_STOP]
    history = assistant(
        "", tool_calls=[{"type": "function", "function": {"name": "f", "arguments": {"x": 1}}}]
    )
    later = prompt_of(user("go"), history, {"role": "tool", "content": "7"})
    assert '{"name": "f", "arguments": {"x": 1}}' in qwen().token_bytes.text(later)
    turns = [turn_of(prompt_of(user("go")), sampled), turn_of(later, [QWEN_STOP])]
    trial = assemble(turns, qwen().token_bytes)
    boundary = trial.boundaries[0]
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.TEXT_CHANGED)
    assert sampled_ids(trial) == [*sampled, QWEN_STOP]


def test_white_space_that_a_parser_strips_is_a_change_of_text():
    sampled = [*qwen().encode("<answer>\n7\n\n</answer>"), QWEN_STOP]
    boundary, _ = two_turns(sampled, "<answer>7</answer>")
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.TEXT_CHANGED)


# ---- text is not bytes ----


def test_half_a_character_is_not_the_replacement_character():
    assert qwen().encode("🫠") == [9284, 104, 254]
    for kept in (1, 2):
        boundary, trial = two_turns([87, *[9284, 104, 254][:kept]], "x\ufffd", finish="length")
        assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.PARTIAL_CHARACTER)
        assert 5691 not in trial.chunks[0].tokens


def test_the_printed_ladder_takes_half_a_character_for_the_replacement_character():
    # it is sampled behind more than the 16 ids that the printed grid would drop without a look
    said = " the commands" * 3
    letters = [token for letter in said for token in qwen().encode(letter)]
    first = turn_of(prompt_of(user("go")), [*letters, 9284], "length")
    later = [*prompt_of(user("go")), *qwen().encode(said), 5691, QWEN_STOP, NEWLINE]
    turns = [first, turn_of(later, [QWEN_STOP])]
    (wrong,) = assemble(turns, qwen().token_bytes, policy=PAPER).boundaries
    assert wrong.case is BoundaryCase.RETOKENIZED
    (right,) = assemble(turns, qwen().token_bytes).boundaries
    assert (right.case, right.reason) == (BoundaryCase.SPLIT, Reason.PARTIAL_CHARACTER)


def test_unicode_normalisation_is_named_and_not_merged():
    sampled = [68, 136, 223, QWEN_STOP]
    assert qwen().token_bytes.text(sampled[:3]) == "e\u0301"
    assert qwen().encode("e\u0301") == [963]
    boundary, trial = two_turns(sampled, "e\u0301")
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.UNICODE_NORMALIZED)
    assert 963 not in trial.chunks[0].tokens


def test_letters_that_come_back_as_a_control_token_split():
    letters = [token for letter in "<|im_end|>" for token in qwen().encode(letter)]
    boundary, trial = two_turns([64, *letters, 65, QWEN_STOP], "a<|im_end|>b")
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.CONTROL_TOKEN)
    assert len(letters) > 1
    assert trial.chunks[0].loss_mask.sum() == len(letters) + 3


def test_a_sampled_control_token_that_decoding_skips_is_not_lost():
    sampled = [*qwen().encode("hi"), 151643, *qwen().encode("yo"), QWEN_STOP]
    skipped = qwen().tokenizer.decode(sampled, skip_special_tokens=True)
    assert skipped == "hiyo"
    boundary, trial = two_turns(sampled, skipped)
    assert boundary.case is BoundaryCase.SPLIT
    assert 151643 in trial.chunks[0].tokens


def test_a_control_token_that_an_observation_spells_is_context_and_history_is_not_parsed_again():
    observed = "x<|im_end|>y"
    first = prompt_of(user("go"))
    completion = [562, QWEN_STOP]
    later = [*first, *completion, *qwen().encode(f"\n<|im_start|>user\n{observed}<|im_end|>\n")]
    trial = assemble([turn_of(first, completion), turn_of(later, [QWEN_STOP])], qwen().token_bytes)
    assert trial.boundaries[0].case is BoundaryCase.STRICT
    (chunk,) = trial.chunks
    # two of the three that the prompt added, and none of them carries loss
    assert np.count_nonzero((chunk.tokens == QWEN_STOP) & (chunk.kind == Kind.OBSERVATION)) == 2
    assert chunk.tokens[chunk.loss_mask].tolist() == [*completion, QWEN_STOP]


# ---- what the harness did ----


def conversation(turns):
    """`turns` turns that each repeat history exactly, as an engine would be sent them."""
    stream, made = prompt_of(user("go")), []
    for number in range(turns):
        completion = [*qwen().encode(f"step {number}"), QWEN_STOP]
        made.append(turn_of(stream, completion))
        stream = [*stream, *completion]
        stream += qwen().encode(f"\n<|im_start|>user\nseen {number}<|im_end|>\n")
        stream += qwen().encode("<|im_start|>assistant\n")
    return made


def test_every_turn_is_compared_with_all_that_stood_before_it():
    turns = conversation(5)
    trial = assemble(turns, qwen().token_bytes)
    assert {boundary.case for boundary in trial.boundaries} == {BoundaryCase.STRICT}
    (chunk,) = trial.chunks
    last = [*turns[-1].prompt_ids.tolist(), *turns[-1].completion_ids.tolist()]
    assert chunk.tokens.tolist() == last
    # and so for each beginning of the trial
    for count in range(1, 5):
        (shorter,) = assemble(turns[:count], qwen().token_bytes).chunks
        size = shorter.tokens.size
        assert shorter.tokens.tolist() == chunk.tokens[:size].tolist()
        assert shorter.loss_mask.tolist() == chunk.loss_mask[:size].tolist()


def test_a_rollback_opens_a_chunk_and_leaves_the_earlier_one_as_it_was():
    turns = conversation(4)
    assembler = Assembler(qwen().token_bytes)
    for turn in turns:
        assembler.add(turn)
    (before,) = assembler.chunks
    again = turn_of(turns[1].prompt_ids, [*qwen().encode("instead"), QWEN_STOP])
    boundary = assembler.add(again)
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.ROLLBACK)
    after, fresh = assembler.finish().chunks
    assert after.tokens.tolist() == before.tokens.tolist()
    assert after.loss_mask.tolist() == before.loss_mask.tolist()
    # turn 0 is context now, and trained where it was sampled
    assert fresh.tokens.tolist() == [*again.prompt_ids.tolist(), *again.completion_ids.tolist()]
    assert fresh.loss_mask.sum() == again.completion_ids.size


def test_a_compaction_opens_a_chunk_and_every_sampled_token_is_trained_once():
    turns = conversation(4)
    compacted = turn_of(
        prompt_of(user("summary: we took four steps")), [*qwen().encode("on"), QWEN_STOP]
    )
    trial = assemble([*turns, compacted], qwen().token_bytes)
    boundary = trial.boundaries[-1]
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.COMPACTION)
    assert len(trial.chunks) == 2
    said = [token for turn in [*turns, compacted] for token in turn.completion_ids.tolist()]
    assert sampled_ids(trial) == said


def test_a_truncated_turn_that_history_cuts_short_is_named():
    sampled = qwen().encode("let me think about the comm")
    boundary, _ = two_turns(sampled, "let me think about", finish="length")
    assert (boundary.case, boundary.reason) == (BoundaryCase.SPLIT, Reason.TRUNCATED_TURN)


def test_what_closes_a_truncated_turn_carries_no_loss():
    first = turn_of(prompt_of(user("go")), qwen().encode("<think>\nlet me"), "length")
    closing = qwen().encode("\n</think>\n\n<|im_end|>")
    rest = qwen().encode("\n<|im_start|>user\non<|im_end|>\n<|im_start|>assistant\n")
    second = turn_of(
        [*closing, *rest],
        [562, QWEN_STOP],
        base_length=first.length,
        synthetic_length=len(closing),
    )
    trial = assemble([first, second], qwen().token_bytes, stop_ids={QWEN_STOP})
    assert trial.boundaries[0].case is BoundaryCase.STRICT
    (chunk,) = trial.chunks
    made_up = chunk.kind == Kind.SYNTHETIC
    assert chunk.tokens[made_up].tolist() == closing
    assert not chunk.loss_mask[made_up].any()
    assert not chunk.logprobs[made_up].any()


# ---- what the engine left out ----


def test_a_stop_token_that_the_engine_hides_is_an_error_that_names_turn_and_position():
    turns = conversation(3)
    hidden = turn_of(turns[1].prompt_ids, turns[1].completion_ids[:-1])
    assembler = Assembler(qwen().token_bytes, stop_ids={QWEN_STOP})
    assembler.add(turns[0])
    with pytest.raises(TurnError, match=r"turn 1, completion_ids\[\d+\]: .*stop token"):
        assembler.add(hidden)
    # the trial goes on from the last good turn
    assembler.add(turns[1])
    assert assembler.turn_count == 2


def test_log_probabilities_of_another_length_are_refused_turn_by_turn():
    for logprobs in ([], [-1.0], [-1.0, -1.0, -1.0], [-1.0, None]):
        with pytest.raises(TurnError, match="logprobs"):
            Turn(prompt_of(user("go")), [562, QWEN_STOP], logprobs, 0, 0, "stop")


def test_ids_of_another_tokenizer_are_refused():
    foreign = turn_of(prompt_of(user("go")), [199_999, QWEN_STOP])
    with pytest.raises(TurnError, match=r"turn 0, completion_ids\[0\]: id 199999"):
        assemble([foreign], qwen().token_bytes)
