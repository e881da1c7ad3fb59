"""Policy directories: `config.json`, `model.safetensors`, `tokenizer.json`.

Weights are read into a freshly built model strictly: a missing, extra or wrongly shaped tensor is
an error, never a partial load. Optimizer state is not part of a policy directory.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from t1_trainer.errors import PolicyFormatError, StorageError
from t1_trainer.policy.config import MoEConfig
from t1_trainer.policy.model import MoEModel
from t1_trainer.policy.tokenizer import Tokenizer

__all__ = ["PolicyFiles", "load_policy", "load_weights", "save_policy", "save_weights"]

_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class PolicyFiles:
    """A loaded policy directory."""

    model: MoEModel
    tokenizer: Tokenizer


def save_weights(model: MoEModel, directory: Path) -> None:
    """Write `config.json` and `model.safetensors`.

    Raises:
        StorageError: one of them cannot be written.
    """
    state = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(model.config.to_json(), indent=2) + "\n")
        save_file(state, str(directory / _WEIGHTS), metadata={"format": "pt"})
    except SafetensorError as error:
        raise StorageError(f"{directory / _WEIGHTS}: cannot be written: {error}") from error
    except OSError as error:
        raise StorageError(error.errno, error.strerror, str(directory)) from error


def load_weights(directory: Path, *, value_head: bool = False) -> MoEModel:
    """Build the model of `config.json` and load its weights.

    Raises:
        PolicyFormatError: a file is missing or unreadable, or tensors do not match the config.
    """
    config = _read_config(directory)
    try:
        state = load_file(str(directory / _WEIGHTS))
    except (OSError, SafetensorError) as error:
        raise PolicyFormatError(f"{directory / _WEIGHTS}: cannot be read: {error}") from error
    model = MoEModel(config, value_head=value_head)
    try:
        model.load_state_dict(state, strict=True)
    except RuntimeError as error:
        raise PolicyFormatError(f"policy directory {directory}: {error}") from error
    return model


def _read_config(directory: Path) -> MoEConfig:
    path = directory / "config.json"
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PolicyFormatError(f"{path}: cannot be read: {error}") from error
    try:
        return MoEConfig.from_json(content)
    except PolicyFormatError as error:
        raise PolicyFormatError(f"policy directory {directory}: {error}") from error


def save_policy(policy: PolicyFiles, directory: Path) -> None:
    """Write all three files."""
    save_weights(policy.model, directory)
    policy.tokenizer.save(directory / "tokenizer.json")


def load_policy(directory: Path) -> PolicyFiles:
    """Read all three files and check that vocabulary sizes agree.

    Raises:
        PolicyFormatError: as `load_weights`, or the tokenizer has another number of ids.
    """
    tokenizer = Tokenizer.load(directory / "tokenizer.json")
    model = load_weights(directory)
    if len(tokenizer) != model.config.vocab_size:
        raise PolicyFormatError(
            f"policy directory {directory}: tokenizer.json has {len(tokenizer)} ids, "
            f"config.json says vocab_size {model.config.vocab_size}"
        )
    return PolicyFiles(model, tokenizer)
