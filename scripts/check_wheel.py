"""Test packages as their users get them: alone, from their wheels, in fresh environments.

    uv run scripts/check_wheel.py t1-tito t1-r3

Every member of the workspace is built, and the contents of its wheel are checked:

    files of the wheel = files of src + metadata with the licence

Each named package is then tested at both ends of what it allows: direct dependencies at their lowest
versions on the oldest Python of its `requires-python`, and everything at its highest on the Python of
`.python-version`. An environment holds the wheel, its dependencies, its `test` group and nothing else;
siblings are the wheels built here. The tests run from a copy outside the repository, with the
repository's `conftest.py` and its Hypothesis profiles beside them. What a package is for stays
unknown here: all is read from its `pyproject.toml`.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# `uv run` tells its children where uv itself is; a shim on PATH may answer in some folders only
UV = os.environ.get("UV", "uv")


class WheelError(Exception):
    """A wheel does not hold what its user needs, or an environment for it cannot be made."""


@dataclass(frozen=True)
class Member:
    """A package of the workspace.

    Attributes:
        folder: where its `pyproject.toml` is.
        project: the `[project]` table.
    """

    folder: Path
    project: dict[str, Any]

    @classmethod
    def read(cls, folder: Path) -> "Member":
        """Reads the member in a folder."""
        content = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
        return cls(folder, content["project"])

    @property
    def module(self) -> str:
        """The import name."""
        return self.project["name"].replace("-", "_")

    @property
    def oldest_python(self) -> str:
        """The lower bound of `requires-python`, such as "3.11"."""
        # which patch release of it is installed is the machine's
        return ".".join(self.project["requires-python"].removeprefix(">=").split(".")[:2])

    def wheel(self, dist: Path) -> Path:
        """The wheel of the current version below `dist`."""
        return dist / f"{self.module}-{self.project['version']}-py3-none-any.whl"


def run(*command: str | Path, cwd: Path, **environment: str) -> None:
    """Runs a command; raises `CalledProcessError` if it fails."""
    subprocess.run(command, cwd=cwd, env=os.environ | environment, check=True)


def members(root: Path) -> list[Member]:
    """All packages of the workspace, sorted by folder."""
    return [Member.read(path.parent) for path in sorted(root.glob("packages/*/pyproject.toml"))]


def check_contents(member: Member, wheel: Path) -> None:
    """Compares a wheel with the package's sources.

    Raises:
        WheelError: a file is missing or does not belong there.
    """
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if not name.endswith("/")}
    metadata = f"{member.module}-{member.project['version']}.dist-info"
    wanted = {f"{member.module}/py.typed", f"{metadata}/licenses/LICENSE"}
    source = member.folder / "src"
    for path in source.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            wanted.add(path.relative_to(source).as_posix())
    missing = sorted(wanted - found)
    foreign = sorted(name for name in found - wanted if not name.startswith(f"{metadata}/"))
    if missing or foreign:
        raise WheelError(
            f"{wheel.name}: missing {missing}, not from src {foreign}; "
            "see the build backend's settings in its pyproject.toml"
        )


def build(root: Path, dist: Path) -> None:
    """Builds every member into `dist` as a stranger would, and checks what is in the wheels."""
    run(UV, "build", "--quiet", "--all-packages", "--no-sources", "--out-dir", dist, cwd=root)
    for member in members(root):
        check_contents(member, member.wheel(dist))


def interpreter(version: str) -> Path:
    """The Python of a version, such as "3.11".

    Raises:
        WheelError: there is none on this machine.
    """
    # PYENV_VERSION: shims of pyenv answer only for the versions selected, here by .python-version
    found = subprocess.run(
        [UV, "python", "find", "--no-project", "--system", version],
        cwd=ROOT,
        env=os.environ | {"PYENV_VERSION": version},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        raise WheelError(f"Python {version} is needed and was not found: {found.stderr.strip()}")
    return Path(found.stdout.strip())


def make_environment(member: Member, resolution: str, python: Path, dist: Path, path: Path) -> None:
    """Makes an environment at `path` with the wheel of a package and what its tests need."""
    run(UV, "venv", "--quiet", "--python", python, path, cwd=ROOT)
    siblings = path / "siblings.txt"
    wheels = [
        (other.project["name"], other.wheel(dist)) for other in members(member.folder.parents[1])
    ]
    siblings.write_text("".join(f"{name} @ {wheel.as_uri()}\n" for name, wheel in wheels))
    project, pins = member.folder / "pyproject.toml", path / "pins.txt"
    # the project file, since the lowest versions are sought only for requirements named in a file;
    # a fresh output file, since pins that stand in it would be kept
    arguments = ["--group", f"{project}:test", "--resolution", resolution, "--output-file", pins]
    arguments += ["--python", path, "--no-sources", "--constraints", siblings]
    run(UV, "pip", "compile", "--quiet", project, *arguments, cwd=ROOT)
    wheel = member.wheel(dist)
    run(UV, "pip", "install", "--quiet", "--python", path, "-r", pins, wheel, cwd=ROOT)
    run(UV, "pip", "check", "--quiet", "--python", path, cwd=ROOT)


def check_alone(member: Member, resolution: str, python_version: str, dist: Path) -> None:
    """Imports a package, asks its commands for help and runs its tests, from its wheel alone."""
    print(f"\n{member.project['name']}: {resolution} versions, Python {python_version}", flush=True)
    with tempfile.TemporaryDirectory(prefix="t1-wheel-") as folder:
        place = Path(folder)
        environment, copy = place / "environment", place / member.project["name"]
        make_environment(member, resolution, interpreter(python_version), dist, environment)
        # the examples of its documents are among the tests
        for part in ("tests", "docs"):
            if (member.folder / part).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(member.folder / part, copy / part, ignore=ignored)
        shutil.copy(member.folder / "README.md", copy)
        shutil.copy(ROOT / "conftest.py", copy)  # the profiles of Hypothesis are the same
        python = environment / "bin" / "python"
        run(python, "-I", "-c", f"import {member.module}", cwd=copy)
        for command in member.project.get("scripts", {}):
            run(environment / "bin" / command, "--help", cwd=copy)
        settings = ["-c", ROOT / "pyproject.toml", "--rootdir", copy, "-p", "no:cacheprovider"]
        run(python, "-I", "-m", "pytest", "-q", "tests", *settings, cwd=copy)


def main(names: Sequence[str]) -> int:
    """Checks the named packages; returns the exit code."""
    known = {member.project["name"]: member for member in members(ROOT)}
    unknown = sorted(set(names) - set(known))
    if not names or unknown:
        print(f"expected names of packages out of {', '.join(known)}; got {unknown or 'none'}")
        return 2
    newest = (ROOT / ".python-version").read_text().strip()
    try:
        with tempfile.TemporaryDirectory(prefix="t1-dist-") as dist:
            build(ROOT, Path(dist))
            for member in (known[name] for name in names):
                check_alone(member, "lowest-direct", member.oldest_python, Path(dist))
                check_alone(member, "highest", newest, Path(dist))
    except (WheelError, subprocess.CalledProcessError) as error:
        print(f"check_wheel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
