"""Seeded generation of real shell tasks, demonstrations and vocabulary.

    generate_task(seed, split) -> SynthesizedTask
    build_demonstration(task, random, ...) -> steps with predicted outputs
    vocabulary_pieces() -> the pieces of the task language

Training and held-out tasks share single skills and nothing else: no name, no value, no composition.
A composition is the collection of a task's skills, two or more, in any order; every held-out one
holds a pair of skills that no training task combines (`RESERVED_PAIRS`).
"""

from t1_reward.synthesis.catalogue import RESERVED_PAIRS, SKILLS, habit_skills
from t1_reward.synthesis.compose import (
    GENERATOR_VERSION,
    LENGTH_WEIGHTS,
    SynthesizedTask,
    generate_task,
)
from t1_reward.synthesis.demonstration import EXIT, UniformSource, build_demonstration
from t1_reward.synthesis.draw import Split, split_of_name, split_of_number
from t1_reward.synthesis.skill import Skill, Step, Subgoal
from t1_reward.synthesis.vocabulary import vocabulary_pieces

__all__ = [
    "EXIT",
    "GENERATOR_VERSION",
    "LENGTH_WEIGHTS",
    "RESERVED_PAIRS",
    "SKILLS",
    "Skill",
    "Split",
    "Step",
    "Subgoal",
    "SynthesizedTask",
    "UniformSource",
    "build_demonstration",
    "generate_task",
    "habit_skills",
    "split_of_name",
    "split_of_number",
    "vocabulary_pieces",
]
