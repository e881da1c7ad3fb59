"""Weights as they travel to replicas, and the digest that tells whether they arrived.

Weights are either one bytes-like object or arrays by name. The digest covers names, dtypes,
shapes and content, so equal digests mean equal weights. Iteration order of the names does not
enter.
"""

import hashlib
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Weights: TypeAlias = bytes | bytearray | memoryview | Mapping[str, npt.NDArray[Any]]


def weights_digest(weights: Weights) -> str:
    """SHA-256 of weights, as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    if not isinstance(weights, Mapping):
        digest.update(b"bytes\0")
        digest.update(weights)
        return digest.hexdigest()
    digest.update(b"arrays\0")
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name])
        # repr quotes the name, so that no name can imitate the fields after it
        digest.update(f"{name!r} {array.dtype!r} {weights[name].shape}\0".encode())
        digest.update(array.reshape(-1).view(np.uint8))
    return digest.hexdigest()
