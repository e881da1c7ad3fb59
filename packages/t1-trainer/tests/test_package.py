"""The package as a whole: exported names, errors, README and the arrows between modules."""

import hashlib
import importlib
import json
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import t1_trainer
from t1_trainer import errors
from t1_trainer.config_files import load_config

README = Path(__file__).parents[1] / "README.md"
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(t1_trainer.__path__, "t1_trainer.")
)


def test_every_module_lists_public_names_that_exist():
    for name in MODULES:
        module = importlib.import_module(name)
        assert module.__doc__, name
        for public in getattr(module, "__all__", []):
            assert hasattr(module, public), f"{name}.{public}"


def test_every_module_lists_its_names_sorted():
    for name in MODULES:
        listed = getattr(importlib.import_module(name), "__all__", [])
        # constants first, then classes, then functions, as ruff sorts them
        kinds = [(0 if n.isupper() else 1 if n[0].isupper() else 2, n) for n in listed]
        assert kinds == sorted(kinds), name


def test_every_error_refines_a_built_in_and_has_an_exit_code():
    assert errors.__doc__ is not None
    for name in errors.__all__:
        error = getattr(errors, name)
        assert name in errors.__doc__
        assert error.exit_code in (2, 3)
        if error is not errors.TrainerError:
            assert issubclass(error, (ValueError, RuntimeError, OSError))
            assert issubclass(error, ValueError) == (error.exit_code == 2)


def test_the_configuration_imports_without_torch():
    program = "import sys, t1_trainer.config_files; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_python_block_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {})


def test_the_readme_names_every_verb_and_error():
    text = README.read_text()
    for verb in ("train", "resume", "eval", "warm-start", "fidelity"):
        assert f"`t1 {verb}" in text
    missing = [name for name in errors.__all__ if f"`{name}" not in text]
    assert missing == []


def test_the_readme_describes_the_preset_that_is_shipped():
    text, config = README.read_text(), load_config([])
    assert (
        f"{config.steps} steps of {config.rollout.batch_size} trials out of "
        f"{config.launched_trials} launched"
    ) in text
    assert f"{config.pool.train_tasks} generated training tasks" in text


def test_the_shipped_weights_are_those_of_their_origin():
    shipped = Path(t1_trainer.__file__).parent / "data" / "mini"
    hashes = json.loads((shipped / "origin.json").read_text())["sha256"]
    assert hashes == {
        name: hashlib.sha256((shipped / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("actor", "critic")
    }
