import hashlib
import re
from collections import Counter
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_reward import Stream, SynthesisError, build_demonstration, generate_task, vocabulary_pieces
from t1_reward.synthesis import (
    GENERATOR_VERSION,
    LENGTH_WEIGHTS,
    RESERVED_PAIRS,
    SKILLS,
    Split,
    habit_skills,
    split_of_name,
    split_of_number,
)
from t1_reward.synthesis.catalogue import has_reserved_pair
from t1_reward.synthesis.draw import MODES, SYLLABLES, Draw

COUNT = 600
# as many as a run has
POOL_SIZES = {Split.TRAIN: 3072, Split.HELDOUT: 256}
RESERVED_IDS = {frozenset((first.id, second.id)) for first, second in RESERVED_PAIRS}


@pytest.fixture(scope="module")
def tasks():
    return {split: [generate_task(seed, split) for seed in range(COUNT)] for split in Split}


@pytest.fixture(scope="module")
def pool_sized():
    return {
        split: [generate_task(seed, split) for seed in range(size)]
        for split, size in POOL_SIZES.items()
    }


def words_of(task):
    """All runs of letters in whatever the task shows or holds that are spelled in syllables."""
    text = task.instruction
    for subgoal in task.subgoals:
        for step in (*subgoal.good, *subgoal.habit, *subgoal.fix, subgoal.slip):
            text += f" {step.command} {step.output}"
        for condition in subgoal.assertions.values():
            text += " " + condition.shell
    # a commit's id is no name, though its digits may spell one
    text = re.sub("[0-9a-f]{40}", "", text)
    return {word for word in re.findall("[a-z]+", text) if is_spelled(word)} - LANGUAGE


def is_spelled(word):
    parts = {word[place : place + 2] for place in range(0, len(word), 2)}
    return len(word) in {4, 6} and parts <= set(SYLLABLES)


LANGUAGE = {
    word for skill in SKILLS for piece in skill.pieces for word in re.findall("[a-z]+", piece)
} | {"remove"}


def compositions_of(tasks):
    """The skills of each task of two or more subgoals, as a multiset."""
    return {tuple(sorted(task.skills)) for task in tasks if len(task.skills) > 1}


def values_of(tasks):
    return {
        (subgoal.family, value)
        for task in tasks
        for subgoal in task.subgoals
        for value in subgoal.values
    }


def assert_disjoint(train, heldout):
    for of in (
        lambda tasks: set().union(*map(words_of, tasks)),
        values_of,
        compositions_of,
        lambda tasks: {task.instruction for task in tasks},
    ):
        left, right = of(train), of(heldout)
        assert left
        assert right
        assert not left & right, left & right


def test_the_splits_share_no_name_value_composition_or_task(tasks):
    assert_disjoint(tasks[Split.TRAIN], tasks[Split.HELDOUT])


def test_a_task_in_the_wrong_split_is_noticed(tasks):
    for place in range(2):
        planted = tasks[Split.HELDOUT][place]
        with pytest.raises(AssertionError):
            assert_disjoint([*tasks[Split.TRAIN], planted], tasks[Split.HELDOUT])


def test_every_name_lies_on_its_side_of_the_hash(tasks):
    for split, made in tasks.items():
        names = set().union(*map(words_of, made))
        assert len(names) > 1000
        assert {split_of_name(name) for name in names} == {split}


def reserved_in(skills):
    """The reserved pairs among the skills, in any order and at any distance."""
    return RESERVED_IDS & {frozenset(pair) for pair in combinations(skills, 2)}


def assert_reserved_pairs_divide(train, heldout):
    assert not [task.skills for task in train if reserved_in(task.skills)]
    composed = [task for task in heldout if len(task.skills) > 1]
    assert len(composed) > len(heldout) / 2
    assert all(reserved_in(task.skills) for task in composed)
    assert not compositions_of(train) & compositions_of(heldout)


def test_no_collection_of_skills_occurs_in_both_splits(pool_sized):
    assert_reserved_pairs_divide(pool_sized[Split.TRAIN], pool_sized[Split.HELDOUT])


def test_a_composition_in_another_order_on_the_other_side_is_noticed(pool_sized):
    train, heldout = pool_sized[Split.TRAIN], pool_sized[Split.HELDOUT]
    planted = next(task for task in heldout if len(task.skills) > 2)
    turned = type(planted)(planted.id, planted.seed, planted.split, planted.subgoals[::-1])
    with pytest.raises(AssertionError):
        assert_reserved_pairs_divide([*train, turned], heldout)
    harmless = next(task for task in train if len(task.skills) > 1)
    with pytest.raises(AssertionError):
        assert_reserved_pairs_divide(train, [*heldout, harmless])


@given(st.lists(st.sampled_from(SKILLS), min_size=2, max_size=5), st.data())
def test_the_side_of_a_composition_does_not_depend_on_its_order(skills, data):
    side = has_reserved_pair(skills)
    assert side is bool(reserved_in([skill.id for skill in skills]))
    assert has_reserved_pair(data.draw(st.permutations(skills))) is side


def test_the_reserved_pairs_form_one_cycle_through_all_skills():
    ids = {skill.id for skill in SKILLS}
    assert len(RESERVED_IDS) == len(RESERVED_PAIRS) == len(ids)
    assert all(len(pair) == 2 for pair in RESERVED_IDS)
    following = {first.id: second.id for first, second in RESERVED_PAIRS}
    seen, place = set(), SKILLS[0].id
    while place not in seen:
        seen.add(place)
        place = following[place]
    assert seen == ids


@pytest.mark.parametrize("length", [2, 3])
def test_both_sides_of_the_reserved_pairs_have_all_skills_equally_often(length):
    for side in (False, True):
        skills = [
            made for made in product(SKILLS, repeat=length) if has_reserved_pair(made) is side
        ]
        counts = Counter(skill.id for made in skills for skill in made)
        assert counts.keys() == {skill.id for skill in SKILLS}
        assert len(set(counts.values())) == 1


def test_skills_have_the_same_weights_in_both_splits(tasks, pool_sized):
    for made in (pool_sized[Split.TRAIN], tasks[Split.HELDOUT]):
        counts = Counter(skill for task in made for skill in task.skills)
        expected = counts.total() / len(SKILLS)
        assert all(abs(counts[skill.id] - expected) < 4 * expected**0.5 for skill in SKILLS)


def test_all_skills_and_families_occur_in_both_splits(tasks):
    assert len(SKILLS) == len({skill.id for skill in SKILLS}) == 21
    assert len({skill.family for skill in SKILLS}) == 10
    for made in tasks.values():
        assert {name for task in made for name in task.skills} == {skill.id for skill in SKILLS}


def test_lengths_have_the_same_weights_in_both_splits(tasks):
    for made in tasks.values():
        counts = Counter(len(task.subgoals) for task in made)
        for length, weight in enumerate(LENGTH_WEIGHTS, start=1):
            expected = COUNT * weight / sum(LENGTH_WEIGHTS)
            assert abs(counts[length] - expected) < 4 * expected**0.5 + 1


def test_a_seed_and_a_split_determine_the_task():
    for split in Split:
        assert generate_task(5, split) == generate_task(5, split.value)
        assert generate_task(5, split) != generate_task(6, split)


def test_the_generator_has_not_moved():
    # a change here changes every pool: raise GENERATOR_VERSION with it
    assert GENERATOR_VERSION == 2
    # all skills occur in them
    pinned = {
        "train": "5e3043420d5590a89f1e3550d497cdfb983b2cef30d09fd8814cbc5b85fe772a",
        "heldout": "af1aec2b92f75af55e41820d76f643ef1526ce66e3b32b92da26a1dbe1faef38",
    }
    for split, expected in pinned.items():
        digest = hashlib.sha256()
        for seed in range(40):
            digest.update(generate_task(seed, split).task.content_hash().encode())
        assert digest.hexdigest() == expected


def test_an_unknown_split_is_refused():
    with pytest.raises(SynthesisError, match="split: expected one of train, heldout, got 'test'"):
        generate_task(0, "test")


def test_tasks_have_two_to_twenty_assertions_and_subgoals_at_least_two(tasks):
    for made in tasks.values():
        for task in made:
            assert 2 <= len(task.conditions) <= 20
            assert all(len(subgoal.assertions) >= 2 for subgoal in task.subgoals)


def test_five_skills_are_habits_and_one_has_a_repair(tasks):
    subgoals = [subgoal for task in tasks[Split.TRAIN] for subgoal in task.subgoals]
    assert {s.skill for s in subgoals if s.habit} == {
        "copy-tree",
        "delete-target",
        "make-symlink",
        "read-mode",
        "sort-numbers",
    }
    assert {s.skill for s in subgoals if s.fix} == {"copy-tree"}


@pytest.mark.parametrize("split", Split)
def test_no_name_of_a_draw_is_part_of_another(split):
    draw = Draw(Stream("names", split.value), split)
    names = draw.distinct_names(60)
    for one in names:
        assert not any(one in other for other in names if other is not one)
        assert not any(one in piece for skill in SKILLS for piece in skill.pieces)


def test_no_mode_is_what_a_new_file_has_anyway(tasks):
    for made in tasks.values():
        modes = {value for family, value in values_of(made) if family == "permissions"}
        assert len(modes) > 50
        assert modes <= set(MODES)
    assert "644" not in MODES
    assert all(int(mode[0]) & 4 for mode in MODES)


def test_numbers_belong_to_one_split():
    for split in Split:
        draw = Draw(Stream("numbers"), split)
        assert all(split_of_number(draw.number(1, 4)) is split for _ in range(50))


def encode(text):
    """Greedy longest match over the pieces and single characters."""
    pieces = set(vocabulary_pieces())
    longest = max(map(len, pieces))
    tokens, place = [], 0
    while place < len(text):
        size = next(n for n in range(longest, 0, -1) if n == 1 or text[place : place + n] in pieces)
        tokens.append(text[place : place + size])
        place += size
    return tokens


def test_commands_and_outputs_are_short_in_pieces(tasks):
    for task in tasks[Split.TRAIN][:200]:
        for subgoal in task.subgoals:
            for step in (*subgoal.good, *subgoal.habit, *subgoal.fix, subgoal.slip):
                assert len(encode(step.command)) <= 17
                assert len(encode(step.output)) <= 12
                assert len(step.output.split()) <= 10


def test_letters_never_stand_alone_in_instructions_and_commands(tasks):
    for made in tasks.values():
        for task in made[:100]:
            for text in (task.instruction, *(step.command for step in task.reference)):
                assert not any(len(token) == 1 and token.isalpha() for token in encode(text))


def test_no_piece_is_listed_twice():
    pieces = vocabulary_pieces()
    assert len(pieces) == len(set(pieces))
    assert all(len(piece) > 1 for piece in pieces)


def test_a_demonstration_without_flaws_is_the_reference(tasks):
    for task in tasks[Split.TRAIN][:50]:
        steps = build_demonstration(task, Stream("d"), 0.0, 0.0, 0.0)
        assert tuple(steps[:-1]) == task.reference
        assert steps[-1] == ("exit", None, 0)


def test_habits_and_repairs_appear_at_their_rates(tasks):
    counts = Counter()
    stream = Stream("rates")
    for task in tasks[Split.TRAIN]:
        for subgoal in task.subgoals:
            if subgoal.fix:
                alone = type(task)(task.id, task.seed, task.split, (subgoal,))
                for _ in range(40):
                    steps = tuple(build_demonstration(alone, stream, 0.6, 0.0, 0.1))[:-1]
                    counts[(subgoal.habit, subgoal.fix, subgoal.good).index(steps)] += 1
    total = counts.total()
    assert total > 2000
    for place, rate in enumerate((0.6, 0.1, 0.3)):
        assert abs(counts[place] / total - rate) < 0.04


def test_sabotage_leaves_out_stops_short_or_slips(tasks):
    stream = Stream("sabotage")
    kinds = Counter()
    for task in tasks[Split.TRAIN]:
        for subgoal in task.subgoals:
            alone = type(task)(task.id, task.seed, task.split, (subgoal,))
            steps = tuple(build_demonstration(alone, stream, 0.0, 1.0, 0.0))[:-1]
            ways = ((), subgoal.good[:-1], (*subgoal.good[:-1], subgoal.slip))
            assert steps in ways
            kinds[len(subgoal.good), ways.index(steps)] += 1
    assert abs(kinds[2, 0] / sum(kinds[2, place] for place in range(3)) - 0.5) < 0.08
    assert abs(kinds[2, 1] / sum(kinds[2, place] for place in range(3)) - 0.25) < 0.08
    assert kinds[1, 2] > kinds[2, 2] / 2


def test_a_habit_is_sabotaged_by_leaving_it_out_only(tasks):
    stream = Stream("habits")
    for task in tasks[Split.TRAIN]:
        for subgoal in task.subgoals:
            if subgoal.habit:
                alone = type(task)(task.id, task.seed, task.split, (subgoal,))
                steps = tuple(build_demonstration(alone, stream, 1.0, 1.0, 0.0))[:-1]
                assert steps in ((), subgoal.habit)


def test_the_habits_listed_are_those_the_generator_draws(tasks):
    seen = {skill.id: set() for skill in SKILLS}
    for subgoal in (s for made in tasks.values() for task in made for s in task.subgoals):
        seen[subgoal.skill].add(bool(subgoal.habit))
    # a skill has a habit always or never
    assert all(len(kinds) == 1 for kinds in seen.values())
    assert list(habit_skills()) == [skill.id for skill in SKILLS if seen[skill.id] == {True}]
    assert "make-symlink" in habit_skills()
