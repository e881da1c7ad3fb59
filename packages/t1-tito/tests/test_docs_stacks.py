import ast
import importlib
import re
import sys
from pathlib import Path

import pytest
from real_tokenizers import real_tokenizer

FOLDER = Path(__file__).parents[1] / "docs" / "stacks"
PAGES = sorted(path.name for path in FOLDER.glob("*.md"))
ADAPTERS = {
    "own-loop.md": ["sglang", "vllm"],
    "harbor.md": ["harbor", "atif"],
    "slime.md": ["slime"],
    "miles.md": ["slime"],
    "verl.md": ["verl"],
    "skyrl.md": ["skyrl"],
    "prime-rl.md": ["prime_rl"],
    "trl.md": ["trl"],
}


def python_blocks(page):
    return re.findall(r"```python\n(.*?)```", (FOLDER / page).read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_every_python_block_runs_in_order(page):
    blocks = python_blocks(page)
    assert blocks
    scope = {}
    for block in blocks:
        exec(compile(block, page, "exec"), scope)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_needs_numpy_and_nothing_else(page):
    tree = ast.parse("\n".join(python_blocks(page)))
    named = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named += [
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    ]
    roots = {name.partition(".")[0] for name in named}
    assert roots <= {"numpy", "t1_tito"} | sys.stdlib_module_names


def test_a_block_whose_claim_is_false_fails():
    with pytest.raises(AssertionError):
        exec(python_blocks("slime.md")[0].replace("== 4", "== 5"), {})


def test_the_session_of_an_own_loop_runs_with_a_tokenizer_of_transformers():
    (block,) = [block for block in python_blocks("own-loop.md") if "Session(" in block]
    tokenizer = real_tokenizer("qwen3").tokenizer
    block = block.replace("tiny_tokenizer()", "real").replace(
        "tokenizer.stop_id", "tokenizer.eos_token_id"
    )
    scope = {"real": tokenizer}
    exec(compile(block, "own-loop.md", "exec"), scope)
    assert scope["session"].stop_ids >= {tokenizer.eos_token_id}


@pytest.mark.parametrize("page", ["own-loop.md", "slime.md", "verl.md", "skyrl.md", "trl.md"])
def test_a_page_shows_a_session_where_its_stack_samples(page):
    assert any("Session(" in block and ".record(" in block for block in python_blocks(page))


def test_every_stack_has_a_page_that_the_overview_links():
    overview = (FOLDER / "README.md").read_text("utf-8")
    assert set(re.findall(r"\]\((.*?\.md)\)", overview)) == set(PAGES) - {"README.md"}
    assert {name for names in ADAPTERS.values() for name in names} == set(
        importlib.import_module("t1_tito.adapters").__all__
    ) - {"Response", "Row", "response_start", "responses_of"}


@pytest.mark.parametrize("page", ADAPTERS)
def test_a_page_lists_all_that_its_adapters_lose_and_nothing_else(page):
    lost = [
        f"| {field} | {why} |"
        for name in ADAPTERS[page]
        for field, why in importlib.import_module(f"t1_tito.adapters.{name}").LOSSY
    ]
    text = (FOLDER / page).read_text("utf-8")
    rows = re.findall(r"^\| field \| why \|\n\|---\|---\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert "".join(rows).splitlines() == lost
