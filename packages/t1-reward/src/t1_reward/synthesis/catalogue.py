"""The one table of skills, and the pairs of skills that only held-out tasks contain.

The reserved pairs are unordered and form a single cycle through all skills: each skill has two
partners that training never puts into one task with it, so each takes part in compositions that
training has never seen. Whether a task holds a reserved pair depends on which skills it consists of
and not on their order, so no collection of skills occurs on both sides.
"""

from collections.abc import Iterable
from itertools import combinations

from t1_reward.stream import Stream
from t1_reward.synthesis.draw import Draw, Split
from t1_reward.synthesis.skill import Skill
from t1_reward.synthesis.skills.archives import pack_directory, run_script, unpack_archive
from t1_reward.synthesis.skills.files import (
    append_line,
    copy_tree,
    move_tree,
    read_mode,
    set_mode,
    sort_numbers,
)
from t1_reward.synthesis.skills.links import (
    delete_by_name,
    delete_by_size,
    delete_target,
    make_symlink,
)
from t1_reward.synthesis.skills.records import (
    count_lines,
    cut_column,
    read_key,
    set_key,
    top_line,
)
from t1_reward.synthesis.skills.repositories import add_branch, read_commit, restore_file

__all__ = ["RESERVED_PAIRS", "SKILLS", "habit_skills", "has_reserved_pair"]

SKILLS: tuple[Skill, ...] = (
    set_mode,
    read_mode,
    run_script,
    pack_directory,
    unpack_archive,
    read_commit,
    add_branch,
    restore_file,
    set_key,
    read_key,
    count_lines,
    top_line,
    cut_column,
    make_symlink,
    delete_target,
    delete_by_name,
    delete_by_size,
    copy_tree,
    move_tree,
    append_line,
    sort_numbers,
)

# coprime to the number of skills, or the pairs would fall apart into several cycles
_STRIDE = 8

RESERVED_PAIRS: tuple[tuple[Skill, Skill], ...] = tuple(
    (skill, SKILLS[(place + _STRIDE) % len(SKILLS)]) for place, skill in enumerate(SKILLS)
)

_RESERVED_IDS = frozenset(frozenset((first.id, second.id)) for first, second in RESERVED_PAIRS)


def has_reserved_pair(skills: Iterable[Skill]) -> bool:
    """Returns whether any two of the skills, wherever they stand, are a reserved pair."""
    pairs = combinations((skill.id for skill in skills), 2)
    return any(frozenset(pair) in _RESERVED_IDS for pair in pairs)


def habit_skills() -> tuple[str, ...]:
    """Returns the ids of the skills that are often done wrongly in one way, in catalogue order.

    Whether a skill has a habit does not depend on what is drawn, so one drawing of each says it.
    """
    draw = Draw(Stream("t1-reward/habits/1"), Split.TRAIN)
    return tuple(skill.id for skill in SKILLS if skill.draw(draw).habit)
