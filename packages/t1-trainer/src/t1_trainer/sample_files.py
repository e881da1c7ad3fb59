"""Samples on disk: one safetensors file per batch, arrays concatenated, the rest as JSON metadata.

    tokens int32 [N]   loss_mask uint8 [N]   logprobs float32 [N]
    routed_experts uint8 [N - B, L, K]       lengths int64 [B] (tokens per sample)

Writing and reading back gives equal samples; nothing is pickled.
"""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from t1_trainer.errors import StorageError
from t1_trainer.samples import Sample

__all__ = ["load_samples", "save_samples"]

_ARRAYS = ("tokens", "loss_mask", "logprobs", "routed_experts")


def save_samples(path: Path, samples: Sequence[Sample]) -> None:
    """Write a batch; at least one sample.

    Raises:
        StorageError: it cannot be written.
    """
    arrays = {name: np.concatenate([getattr(s, name) for s in samples]) for name in _ARRAYS}
    arrays["loss_mask"] = arrays["loss_mask"].astype(np.uint8)
    arrays["lengths"] = np.array([len(s.tokens) for s in samples])
    facts = [
        {f.name: getattr(s, f.name) for f in dataclasses.fields(s) if f.name not in _ARRAYS}
        for s in samples
    ]
    temporary = path.with_name(path.name + ".tmp")
    try:
        save_file(arrays, str(temporary), {"schema_version": "1", "samples": json.dumps(facts)})
        temporary.replace(path)
    except OSError as error:
        raise StorageError(error.errno, error.strerror, str(path)) from error
    except SafetensorError as error:
        # safetensors reports a full disk as an error of its own
        raise StorageError(f"{path}: cannot write samples: {error}") from error


def load_samples(path: Path) -> tuple[Sample, ...]:
    """Read a batch that `save_samples` wrote."""
    with safe_open(str(path), "np") as file:
        facts: list[dict[str, Any]] = json.loads(file.metadata()["samples"])
        lengths = file.get_tensor("lengths")
        ends = np.cumsum(lengths)[:-1]
        parts = {
            name: np.split(file.get_tensor(name), ends)
            for name in _ARRAYS
            if name != "routed_experts"
        }
        rows = np.split(file.get_tensor("routed_experts"), np.cumsum(lengths - 1)[:-1])
    samples: list[Sample] = []
    for i, fact in enumerate(facts):
        fields: dict[str, Any] = {
            **fact,
            "families": tuple(fact["families"]),
            **{name: part[i] for name, part in parts.items()},
            "loss_mask": parts["loss_mask"][i].astype(bool),
            "routed_experts": rows[i],
        }
        samples.append(Sample(**fields))
    return tuple(samples)
