"""The pages of the cases: their code runs, and their pictures show what it builds."""

import importlib.util
import re
from pathlib import Path

import pytest

from t1_tito import Reason

FOLDER = Path(__file__).parents[1] / "docs" / "cases"
PAGES = sorted(page.name for page in FOLDER.glob("*.md") if page.name != "README.md")


def drawing():
    spec = importlib.util.spec_from_file_location("draw", FOLDER / "draw.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_is_a_page_and_a_picture_for_every_case():
    assert PAGES == ["normalized.md", "retokenized.md", "split.md", "strict.md"]
    assert sorted(page.name for page in drawing().pages()) == PAGES
    assert all(f"({name})" in (FOLDER / "README.md").read_text() for name in PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_of_a_page_runs(name):
    blocks = re.findall(r"```python\n(.*?)```", (FOLDER / name).read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), {})


@pytest.mark.parametrize("name", PAGES)
def test_a_picture_shows_what_its_page_builds(name):
    committed = (FOLDER / name).with_suffix(".svg").read_text()
    assert committed == drawing().page_picture(FOLDER / name)


def test_the_reasons_of_a_split_are_all_explained():
    text = (FOLDER / "split.md").read_text()
    others = {"extends", "scaffold", "tail", "scaffold_and_tail", "same_bytes"}
    assert {f"`{reason}`" in text for reason in set(Reason) - others} == {True}
