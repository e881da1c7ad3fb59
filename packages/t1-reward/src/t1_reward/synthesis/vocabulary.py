"""The pieces of the task language, for a tokenizer with one token per piece.

Instructions, commands and outputs of generated tasks are concatenations of syllables, phrases and
command heads, with single bytes (digits, `=`, newlines) between them. With greedy longest match over
these pieces and the 256 bytes, a command takes at most seventeen tokens.
"""

from t1_reward.synthesis.catalogue import SKILLS
from t1_reward.synthesis.draw import SYLLABLES

__all__ = ["vocabulary_pieces"]

_CONNECTIVES = ("; ", " in ", " to ", " of ", " on ", " into ", " from ", " and ", " > ", " >> ")
_SHELL = (
    "echo ",
    "cat ",
    "ls",
    "exit",
    "[rc ",
    "Is a directory",
    "644",
)


def vocabulary_pieces() -> tuple[str, ...]:
    """Returns all pieces, without repetition, syllables first."""
    phrases = (piece for skill in SKILLS for piece in skill.pieces)
    return tuple(dict.fromkeys((*SYLLABLES, *_CONNECTIVES, *_SHELL, *phrases)))
