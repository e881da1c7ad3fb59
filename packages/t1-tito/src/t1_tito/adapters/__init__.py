"""Adapters: from what engines and harnesses record to turns, from trials to what trainers read.

    in    sglang, vllm        replies of an engine        -> Turn
          harbor, atif        records of a harness        -> list of Turn
    out   slime (also miles), verl, skyrl, prime_rl, trl  <- Trial; and back to `Row`

Records are read by field name, from mappings and from objects with attributes alike, and written as
plain mappings of lists. No framework is imported. Every module lists what its format cannot hold as
LOSSY. A record that lacks a field or contradicts itself raises `AdapterError`, with the turn, the
field and the lengths; nothing is padded, cut or guessed.
"""

from . import atif, harbor, prime_rl, sglang, skyrl, slime, trl, verl, vllm
from .rows import Response, Row, response_start, responses_of

__all__ = [
    "Response",
    "Row",
    "atif",
    "harbor",
    "prime_rl",
    "response_start",
    "responses_of",
    "sglang",
    "skyrl",
    "slime",
    "trl",
    "verl",
    "vllm",
]
