"""Optimizer state as safetensors: one tensor per parameter and slot, no pickle.

Keys are `<parameter index>.<slot>`, for example `3.exp_avg`. Hyper-parameters are not stored: they
come from the run's configuration, so that a resumed run cannot carry a stale rate.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from t1_trainer.errors import StorageError

__all__ = ["load_optimizer", "save_optimizer"]


def save_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Write the slots of every parameter that has any.

    Raises:
        StorageError: the file cannot be written.
    """
    state = optimizer.state_dict()["state"]
    tensors = {f"{i}.{slot}": value for i, slots in state.items() for slot, value in slots.items()}
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, str(path))
    except SafetensorError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from error


def load_optimizer(optimizer: torch.optim.Optimizer, path: Path) -> None:
    """Restore the slots; hyper-parameters stay the optimizer's own."""
    slots: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in load_file(str(path)).items():
        index, slot = name.split(".")
        slots.setdefault(int(index), {})[slot] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": slots, "param_groups": groups})
