import re
from pathlib import Path

import t1_reward

README = Path(__file__).parent.parent / "README.md"


def test_the_python_blocks_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert blocks
    namespace = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)


def test_the_readme_names_everything_public():
    text = README.read_text(encoding="utf-8")
    missing = [
        name for name in t1_reward.__all__ if f"`{name}" not in text and f"{name}(" not in text
    ]
    assert missing == []
