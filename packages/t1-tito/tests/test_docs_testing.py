"""The page on testing runs as it is printed."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "testing.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run_all(blocks):
    scope = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, "testing.md", "exec"), scope)


def test_every_python_block_runs_in_order():
    assert len(BLOCKS) >= 6
    run_all(BLOCKS)


def test_a_block_whose_claim_is_false_fails():
    late = BLOCKS[0].replace("[0.0] * len(new) + logprobs", "logprobs + [0.0] * len(new)")
    assert late != BLOCKS[0]
    with pytest.raises(AssertionError):
        run_all([late, BLOCKS[1]])


def test_every_option_of_the_plugin_is_on_the_page():
    plugin = Path(find_spec("_t1_tito_pytest").origin)
    options = set(re.findall(r'"(--tito-\w+)"', plugin.read_text("utf-8")))
    assert options
    assert options == set(re.findall(r"`(--tito-\w+)=", PAGE))
