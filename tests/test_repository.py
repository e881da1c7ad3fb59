"""What holds for the repository as a whole: its packages, its arrows, its documents."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import check_wheel

ROOT = Path(__file__).parents[1]
FOLDERS = sorted(path.parent for path in ROOT.glob("packages/*/pyproject.toml"))
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
MODULES = SETTINGS["tool"]["importlinter"]["root_packages"]

every_package = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


def python(code, *arguments, cwd=ROOT):
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_the_workspace_has_the_seven_packages_that_the_arrows_name():
    assert {folder.name.replace("-", "_") for folder in FOLDERS} == set(MODULES)
    assert len(FOLDERS) == 7


@every_package
def test_a_package_has_what_its_users_and_its_release_need(folder):
    member = check_wheel.Member.read(folder)
    assert member.project["name"] == folder.name
    version = member.project["version"]
    assert str(Version(version)) == version
    assert member.project["license"] == "Apache-2.0"
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert (folder / "src" / member.module / "py.typed").is_file()
    changelog = (folder / "CHANGELOG.md").read_text()
    assert "<!-- towncrier release notes start -->" in changelog
    fragments = list((folder / "changelog.d").glob("*.*.md"))
    # a release turns the fragments into the version's section
    assert fragments or re.search(rf"^## .*{re.escape(version)}", changelog, re.MULTILINE)
    assert all(fragment.read_text().strip() for fragment in fragments)


@every_package
def test_the_public_names_of_a_package_are_complete_and_sorted(folder):
    module = importlib.import_module(folder.name.replace("-", "_"))
    public = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    # constants first, then classes, then functions, as ruff sorts them
    expected = sorted(public, key=lambda name: (not name.isupper(), name.islower(), name))
    assert [name for name in module.__all__ if not name.startswith("_")] == expected


@every_package
def test_a_package_depends_on_a_range_of_its_siblings(folder):
    for dependency in check_wheel.Member.read(folder).project["dependencies"]:
        requirement = Requirement(dependency)
        if requirement.name.startswith("t1-"):
            sibling = check_wheel.Member.read(folder.parent / requirement.name)
            assert requirement.specifier.contains(sibling.project["version"])
            assert {part.operator for part in requirement.specifier} == {">=", "<"}


@every_package
def test_the_readme_of_a_package_says_how_to_install_and_use_it(folder):
    text = (folder / "README.md").read_text()
    assert text.startswith(f"# {folder.name}\n")
    assert f"pip install {folder.name}" in text
    assert "```python\n" in text


def test_everything_below_the_trainer_imports_without_torch():
    below = [module for module in MODULES if module != "t1_trainer"]
    assert len(below) == 6
    result = python(
        f"import sys, {', '.join(below)}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    )
    assert result.returncode == 0, result.stderr


def test_the_command_starts_without_torch():
    result = python("import sys, t1_trainer.cli; assert 'torch' not in sys.modules")
    assert result.returncode == 0, result.stderr


def lint_imports(tree):
    """The verdict of the repository's own import contracts on the packages below `tree`."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return python(code, "--config", ROOT / "pyproject.toml", "--no-cache", cwd=tree)


def made_packages(tree, **sources):
    """Packages with the names of ours and the given sources, empty where none is given."""
    for module in MODULES:
        (tree / module).mkdir()
        (tree / module / "__init__.py").write_text(sources.get(module, ""))
    return tree


def test_the_arrows_allow_what_the_architecture_allows(tmp_path):
    tree = made_packages(
        tmp_path,
        t1_eval="import t1_tito, t1_reward, t1_sandbox",
        t1_trainer="import t1_eval, t1_r3, t1_infra",
    )
    result = lint_imports(tree)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("t1_tito", "import t1_r3"),
        ("t1_reward", "import t1_sandbox"),
        ("t1_eval", "import t1_infra"),
        ("t1_infra", "import t1_trainer"),
    ],
    ids=["between-siblings", "reward-to-sandbox", "eval-to-infrastructure", "upwards"],
)
def test_a_forbidden_import_breaks_the_arrows(tmp_path, module, source):
    result = lint_imports(made_packages(tmp_path, **{module: source}))
    assert result.returncode == 1, result.stdout + result.stderr
    assert "BROKEN" in result.stdout


def test_the_packages_keep_to_the_arrows():
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    "name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
)
def test_the_links_of_a_document_lead_somewhere(name):
    for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text()):
        assert (ROOT / target).exists(), target


def test_slow_tests_do_not_run_unless_asked_for():
    options = SETTINGS["tool"]["pytest"]["addopts"]
    assert options[options.index("-m") + 1] == "not slow"
    assert '-m "slow or not slow"' in (ROOT / ".ci" / "nightly").read_text()
