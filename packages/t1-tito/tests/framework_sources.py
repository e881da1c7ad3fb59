"""Classes and functions of training frameworks, taken from their wheels without importing those.

    definitions("verl", "agent_loop.py", ["AgentLoopMetrics", "AgentLoopOutput"], {...})

verl, SkyRL and TRL import torch, ray and more where they define a sample. Here the named definitions
are cut out of the file, by its syntax tree, and run with what they need; what they check is thus the
framework's own word. The wheels are pinned, as real tokenizers are.
"""

import ast
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import patch

from real_tokenizers import PACKAGES, Package, package_folder

PACKAGES |= {
    "verl": Package(
        "pypi",
        "verl",
        "0.9.1",
        ("verl/experimental/agent_loop/agent_loop.py",),
        "3d3743b325058a4785c840904b1aad1f6ef5e0f890c8b6d6a9632932018c3581",
    ),
    "skyrl": Package(
        "pypi",
        "skyrl",
        "0.3.0",
        ("skyrl/train/generators/base.py", "skyrl/train/utils/trainer_utils.py"),
        "7ea5d64da5c05d2975705cf0737486f5a97d0c6413e76dec0dd3d0e12742045a",
    ),
    "trl_async_grpo": Package(
        "pypi",
        "trl",
        "1.16.0",
        ("trl/experimental/async_grpo/async_rollout_worker.py",),
        "c75ca65845ec3c17b54b8cc9bd5a63944e520d0721a2b4ec8df55c55f3e6ab91",
    ),
    "harbor": Package(
        "pypi",
        "harbor",
        "0.26.0",
        ("harbor/models/trajectories/*.py",),
        "f71d07adca5f4239d080e41f45e32b2d9530d90cd534ff5b6bf5ec6c7c1923d3",
    ),
}


def definitions(
    package: str, file: str, names: Sequence[str], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the named definitions at the top of a file, with what is given, and return them."""
    tree = ast.parse((package_folder(package) / file).read_text(encoding="utf-8"))
    wanted = [node for node in tree.body if getattr(node, "name", None) in names]
    assert len(wanted) == len(names), f"{package}: {file} defines not all of {names}"
    module = ModuleType(f"{package}_definitions")
    module.__dict__.update(given)
    sys.modules[module.__name__] = module  # dataclasses and pydantic look their module up
    exec(compile(ast.Module([*wanted], []), file, "exec"), module.__dict__)
    return {name: module.__dict__[name] for name in names}


@cache
def harbor_trajectory_class() -> Any:
    """The class of an ATIF document, from harbor's trajectory models without the rest of harbor."""
    folder = str(package_folder("harbor"))
    names = ("harbor", "harbor.models", "harbor.models.trajectories")
    modules = {name: ModuleType(name) for name in names}
    for module in modules.values():
        module.__path__ = [folder]
    # gone again afterwards: others in this process may want harbor itself; and the cache holds what
    # was fetched, nothing else
    with patch.dict(sys.modules, modules), patch.object(sys, "dont_write_bytecode", True):
        return import_module("harbor.models.trajectories.trajectory").Trajectory
