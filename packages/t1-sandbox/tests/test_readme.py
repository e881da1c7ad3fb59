"""The README's python blocks run, and what they print is what it says."""

import contextlib
import io
import re
from pathlib import Path

_README = (Path(__file__).parents[1] / "README.md").read_text()
_BLOCKS = re.findall(r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?", _README, re.DOTALL)


def test_there_are_blocks():
    assert len(_BLOCKS) >= 2


def test_the_blocks_run_and_print_what_the_readme_says():
    for source, expected in _BLOCKS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(source, "README.md", "exec"), {})
        assert printed.getvalue() == expected
