"""The wheel check: it accepts what is whole and finds what is missing, foreign or undeclared."""

import subprocess
import zipfile

import pytest

import check_wheel
from check_wheel import Member, WheelError

PYPROJECT = """
[build-system]
requires = ["uv_build>=0.11,<0.15"]
build-backend = "uv_build"

[project]
name = "t1-demo"
version = "0.1.0"
license-files = ["LICENSE"]
requires-python = ">=3.12"
dependencies = [{dependencies}]

[dependency-groups]
test = ["pytest>=9", "pytest-timeout>=2.4", "hypothesis>=6.150"]
"""
FILES = {
    "t1_demo/__init__.py": "",
    "t1_demo/py.typed": "",
    "t1_demo/data/weights.bin": "w",
    "t1_demo-0.1.0.dist-info/licenses/LICENSE": "",
    "t1_demo-0.1.0.dist-info/METADATA": "",
}


def workspace(root, *, init="", dependencies=""):
    """A workspace with one small package; returns the package."""
    folder = root / "packages" / "t1-demo"
    for name in ("src/t1_demo/data", "src/t1_demo/__pycache__", "tests"):
        (folder / name).mkdir(parents=True)
    (folder / "pyproject.toml").write_text(PYPROJECT.format(dependencies=dependencies))
    (folder / "LICENSE").write_text("")
    (folder / "README.md").write_text("# t1-demo\n")
    (folder / "src/t1_demo/__init__.py").write_text(init)
    (folder / "src/t1_demo/py.typed").write_text("")
    (folder / "src/t1_demo/data/weights.bin").write_text("w")
    (folder / "src/t1_demo/__pycache__/__init__.pyc").write_text("")
    (folder / "tests/test_demo.py").write_text("import t1_demo\ndef test_it(): assert t1_demo\n")
    (root / ".python-version").write_text("3.12\n")
    (root / "pyproject.toml").write_text(
        '[project]\nname = "demo-workspace"\nversion = "0"\nrequires-python = ">=3.12"\n'
        '[tool.uv]\npackage = false\n[tool.uv.workspace]\nmembers = ["packages/*"]\n'
    )
    return Member.read(folder)


def wheel(folder, names):
    path = folder / "t1_demo-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, FILES.get(name, ""))
    return path


def test_a_whole_wheel_passes(tmp_path):
    check_wheel.check_contents(workspace(tmp_path), wheel(tmp_path, FILES))


@pytest.mark.parametrize("name", [name for name in FILES if "METADATA" not in name])
def test_a_file_that_is_missing_from_a_wheel_is_named(tmp_path, name):
    member = workspace(tmp_path)
    with pytest.raises(WheelError, match=name):
        check_wheel.check_contents(member, wheel(tmp_path, FILES.keys() - {name}))


@pytest.mark.parametrize("name", ["tests/test_demo.py", "t1_demo/leftover.py", "t1_other/a.py"])
def test_a_file_that_does_not_belong_into_a_wheel_is_named(tmp_path, name):
    member = workspace(tmp_path)
    with pytest.raises(WheelError, match=name):
        check_wheel.check_contents(member, wheel(tmp_path, [*FILES, name]))


def test_a_package_without_py_typed_is_found_even_if_its_source_lacks_it(tmp_path):
    member = workspace(tmp_path)
    (member.folder / "src/t1_demo/py.typed").unlink()
    with pytest.raises(WheelError, match=r"t1_demo/py\.typed"):
        check_wheel.check_contents(member, wheel(tmp_path, FILES.keys() - {"t1_demo/py.typed"}))


def test_a_python_that_is_not_there_is_an_error_that_names_it():
    with pytest.raises(WheelError, match=r"Python 3\.99 is needed"):
        check_wheel.interpreter("3.99")


def test_an_unknown_name_is_a_usage_error_that_lists_the_known_ones(capsys):
    assert check_wheel.main(["t1-titto"]) == 2
    assert check_wheel.main([]) == 2
    output = capsys.readouterr().out
    assert "t1-titto" in output
    assert "t1-tito" in output


@pytest.mark.slow
def test_the_lowest_versions_are_the_floors_of_the_project_file(tmp_path):
    member = workspace(tmp_path, dependencies='"iniconfig>=2.0"')
    check_wheel.build(tmp_path, tmp_path / "dist")
    for resolution, is_floor in (("lowest-direct", True), ("highest", False)):
        place = tmp_path / resolution
        python = check_wheel.interpreter("3.12")
        check_wheel.make_environment(member, resolution, python, tmp_path / "dist", place)
        pins = (place / "pins.txt").read_text().splitlines()
        assert ("iniconfig==2.0.0" in pins) is is_floor


@pytest.mark.slow
def test_a_dependency_that_is_used_but_not_declared_is_found(tmp_path):
    declared, forgotten = tmp_path / "declared", tmp_path / "forgotten"
    for root, dependencies in ((declared, '"numpy>=2.1"'), (forgotten, "")):
        workspace(root, init="import numpy\n", dependencies=dependencies)
        check_wheel.build(root, root / "dist")
    check_wheel.check_alone(
        Member.read(declared / "packages/t1-demo"), "highest", "3.12", declared / "dist"
    )
    with pytest.raises(subprocess.CalledProcessError, match="import t1_demo"):
        check_wheel.check_alone(
            Member.read(forgotten / "packages/t1-demo"), "highest", "3.12", forgotten / "dist"
        )


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "examples"), [("fast", 40), ("thorough", 2000)])
def test_the_hypothesis_profiles_of_the_repository_apply(tmp_path, monkeypatch, profile, examples):
    member = workspace(tmp_path)
    (member.folder / "tests/test_demo.py").write_text(
        "from hypothesis import settings\n"
        f"def test_it(): assert (settings().max_examples, settings().deadline) == ({examples}, None)\n"
    )
    check_wheel.build(tmp_path, tmp_path / "dist")
    monkeypatch.setenv("T1_HYPOTHESIS", profile)
    check_wheel.check_alone(member, "highest", "3.12", tmp_path / "dist")


@pytest.mark.slow
def test_a_failing_test_fails_the_check(tmp_path):
    member = workspace(tmp_path)
    (member.folder / "tests/test_demo.py").write_text("def test_it(): raise ValueError\n")
    check_wheel.build(tmp_path, tmp_path / "dist")
    with pytest.raises(subprocess.CalledProcessError, match="pytest"):
        check_wheel.check_alone(member, "highest", "3.12", tmp_path / "dist")


@pytest.mark.slow
def test_tests_that_need_the_repository_around_them_fail_the_check(tmp_path):
    member = workspace(tmp_path)
    (member.folder / "tests/test_demo.py").write_text(
        "from pathlib import Path\n"
        "def test_it(): assert (Path(__file__).parents[3] / 'pyproject.toml').is_file()\n"
    )
    check_wheel.build(tmp_path, tmp_path / "dist")
    with pytest.raises(subprocess.CalledProcessError, match="pytest"):
        check_wheel.check_alone(member, "highest", "3.12", tmp_path / "dist")
