import re
from pathlib import Path
from types import ModuleType

import t1_tito


def test_the_public_names_are_listed_sorted_and_complete():
    public = [
        name
        for name, value in vars(t1_tito).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    assert t1_tito.__all__ == sorted(public)


def test_every_python_block_of_the_readme_runs():
    readme = Path(__file__).parents[1] / "README.md"
    blocks = re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(readme), "exec"), {})
