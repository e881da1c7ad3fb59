"""The public surface, and the README."""

import re
from pathlib import Path
from types import ModuleType

import t1_eval

README = Path(__file__).parents[1] / "README.md"


def test_the_public_names_are_listed_sorted_and_complete():
    public = {
        name
        for name, value in vars(t1_eval).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert set(t1_eval.__all__) == public
    # classes before functions
    assert t1_eval.__all__ == sorted(public, key=lambda name: (name.islower(), name))


def test_every_error_is_ours_and_a_built_in_one():
    errors = [getattr(t1_eval, name) for name in t1_eval.__all__]
    errors = [e for e in errors if isinstance(e, type) and issubclass(e, Exception)]
    assert len(errors) == 4
    for error in errors:
        assert error is t1_eval.EvalError or (
            issubclass(error, t1_eval.EvalError) and issubclass(error, RuntimeError | ValueError)
        )


def test_every_python_block_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)


def test_the_readme_names_everything_public():
    text = README.read_text("utf-8")
    assert [name for name in t1_eval.__all__ if f"`{name}" not in text] == []
