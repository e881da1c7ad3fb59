"""What text would have made of sampled ids, and how the two sides are laid beside each other."""

import dataclasses

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from t1_trainer.fidelity import _span_gaps
from t1_trainer.policy import Tokenizer
from t1_trainer.policy.tokenizer import ASSISTANT, END, SPECIALS, TOOL, USER
from t1_trainer.retokenization import Retokenized, Retokenizer
from t1_trainer.samples import Sample

TOKENIZER = Tokenizer(("ab", "abc", "cd", "d", " é"))
RETOKENIZE = Retokenizer(TOKENIZER)
LENGTHS = [0] * len(SPECIALS) + [1] * 256 + [len(p.encode()) for p in TOKENIZER.pieces]

letters = st.sampled_from([*(TOKENIZER.encode(c)[0] for c in "abcd"), *range(261, 266)])
# specials inside a command, and single bytes that are no text
anything = st.one_of(letters, st.sampled_from([USER, TOOL, ASSISTANT, 0xC3 + 5, 0xFF + 5]))


def sample_of(completions: list[list[int]], make_samples) -> Sample:
    """A trial of these completions between fixed observations."""
    tokens, mask = [USER, *TOKENIZER.encode("do it"), END, ASSISTANT], [False] * 7
    mask = [False] * len(tokens)
    for number, completion in enumerate(completions):
        tokens += completion
        mask += [True] * len(completion)
        if number < len(completions) - 1:
            tokens += [TOOL, END, ASSISTANT]
            mask += [False] * 3
    return dataclasses.replace(
        make_samples(0, [3])[0],
        tokens=np.array(tokens, np.int32),
        loss_mask=np.array(mask),
        logprobs=np.where(mask, -1.0, 0.0).astype(np.float32),
        routed_experts=np.zeros((len(tokens) - 1, 3, 2), np.uint8),
    )


def spelled(ids, spans, span: int) -> bytes:
    table = [b""] * len(SPECIALS) + [bytes([b]) for b in range(256)]
    table += [piece.encode() for piece in TOKENIZER.pieces]
    table[END] = b"<end>"
    return b"".join(table[i] for i, s in zip(ids, spans, strict=True) if s == span)


def both_sides(sample: Sample, text: Retokenized) -> tuple[list[int], list[int]]:
    return (
        sample.tokens[sample.loss_mask].tolist(),
        text.sample.tokens[text.sample.loss_mask].tolist(),
    )


@given(st.lists(st.lists(letters, max_size=8).map(lambda ids: [*ids, END]), min_size=1, max_size=4))
def test_a_span_is_the_same_bytes_on_both_sides(make_samples, completions):
    sample = sample_of(completions, make_samples)
    text = RETOKENIZE(sample)
    sampled, rendered = both_sides(sample, text)
    for span in range(int(text.sampled_spans.max()) + 1):
        assert spelled(sampled, text.sampled_spans, span) == spelled(rendered, text.spans, span)
    assert (np.diff(text.sampled_spans) >= 0).all()
    assert set(text.sampled_spans) == set(text.spans) == set(range(text.spans.max() + 1))
    context, again = sample.tokens[~sample.loss_mask], text.sample.tokens[~text.sample.loss_mask]
    assert np.array_equal(context, again)


def test_laying_ids_beside_each_other_by_number_compares_other_bytes(make_samples):
    # the defect: a b | cd against the canonical abc | d
    completion = [TOKENIZER.encode("ab")[0], TOKENIZER.encode("cd")[0], END]
    sample = sample_of([completion], make_samples)
    sampled, rendered = both_sides(sample, RETOKENIZE(sample))
    assert TOKENIZER.decode(sampled) == TOKENIZER.decode(rendered) == "abcd"
    assert len(sampled) == len(rendered)
    by_number = range(len(sampled))
    assert spelled(sampled, by_number, 0) != spelled(rendered, by_number, 0)
    assert RETOKENIZE(sample).sampled_spans.tolist() == [0, 0, 1]


@given(st.lists(st.text("abcd é", max_size=8), min_size=1, max_size=4))
def test_canonical_commands_come_back_as_they_were(make_samples, commands):
    sample = sample_of([[*TOKENIZER.encode(c), END] for c in commands], make_samples)
    text = RETOKENIZE(sample)
    assert np.array_equal(text.sample.tokens, sample.tokens)
    assert np.array_equal(text.sample.loss_mask, sample.loss_mask)
    assert text.sampled_spans.tolist() == text.spans.tolist() == list(range(len(text.spans)))
    assert (text.drifted, text.completions) == (0, len(commands))


@given(
    st.lists(st.lists(anything, max_size=8).map(lambda ids: [*ids, END]), min_size=1, max_size=4),
    st.lists(anything, min_size=1, max_size=4),
)
def test_whatever_was_sampled_every_sampled_id_has_its_span(make_samples, completions, cut_short):
    sample = sample_of([*completions, cut_short], make_samples)
    text = RETOKENIZE(sample)
    sampled, rendered = both_sides(sample, text)
    assert len(text.sampled_spans) == len(sampled)
    assert len(text.spans) == len(rendered)
    assert (np.bincount(text.sampled_spans) > 0).all()
    assert text.spans[-1] == -1, "the stop id that text adds has no sampled counterpart"
    assert set(text.spans) <= {-1, *text.sampled_spans}
    gaps = _span_gaps(text, np.full(len(sampled), -1.0), np.full(len(rendered), -2.0))
    assert np.isfinite(gaps).all()


@given(st.lists(st.lists(letters, max_size=8).map(lambda ids: [*ids, END]), min_size=1, max_size=3))
def test_a_comparison_by_span_is_never_more_than_one_by_token(make_samples, completions):
    sample = sample_of(completions, make_samples)
    text = RETOKENIZE(sample)
    assume(text.drifted == 0)
    source = np.random.default_rng(0)
    ours, theirs = source.normal(size=(2, len(text.spans)))
    assert np.allclose(_span_gaps(text, theirs, ours), np.abs(ours - theirs))
    merged = dataclasses.replace(text, sampled_spans=text.sampled_spans // 2, spans=text.spans // 2)
    assert _span_gaps(merged, theirs, ours).sum() <= np.abs(ours - theirs).sum() + 1e-9


@pytest.mark.parametrize(
    ("completion", "spans"),
    [
        ([0xC3 + 5, 0x41 + 5, END], [0, 0, 1]),  # bytes that are no text: one span, then the stop
        ([TOOL, END], [0, 0]),  # a special is lost in text: its log-prob has to go somewhere
        ([TOOL, 0x61 + 5, USER, END], [0, 0, 0, 1]),
    ],
)
def test_what_text_cannot_hold_joins_its_neighbour(make_samples, completion, spans):
    text = RETOKENIZE(sample_of([completion], make_samples))
    assert text.sampled_spans.tolist() == spans
    assert text.drifted == 1


def test_nothing_of_the_text_nothing_of_the_gap(make_samples):
    sample = sample_of([[TOOL, TOOL]], make_samples)
    text = RETOKENIZE(sample)
    assert text.spans.tolist() == [-1]
    assert _span_gaps(text, np.array([-3.0, -4.0]), np.array([-9.0])).tolist() == [0, 0]
