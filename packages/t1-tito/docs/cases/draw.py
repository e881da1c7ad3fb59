"""Draws the picture of a boundary for each page of this folder, from the trial that its code builds.

    python draw.py            writes PAGE.svg beside each PAGE.md
    python draw.py --check    exits with 1 if a picture is not what the page's code gives

A page's first Python block leaves `table`, `turns` and `trial`. Three rows are drawn from them: the
earlier turn, the prompt of the later one, and the stream that is trained.
"""

import re
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from t1_tito import Kind, TokenBytes, Trial, Turn

FOLDER = Path(__file__).parent
CHARACTER, HEIGHT, GAP, MARGIN, LABEL = 8, 30, 3, 14, 148
FILL = {
    Kind.PROMPT: "#dfe5ec",
    Kind.SAMPLED: "#8fd19e",
    Kind.OBSERVATION: "#f6dfa4",
    Kind.SHARED: "#e3d5ef",
    Kind.SYNTHETIC: "#f3c1c1",
}
LEGEND = {
    Kind.PROMPT: "prompt",
    Kind.SAMPLED: "sampled: loss",
    Kind.OBSERVATION: "added context",
    Kind.SHARED: "shared context",
}


def spelled(table: TokenBytes, token: int) -> str:
    """A token as the picture shows it: visible whitespace, special tokens by name."""
    text = table.text([token]).replace("\n", "⏎").replace(" ", "␣")
    return text if "\ufffd" not in text else table.bytes_of([token]).hex(" ")


def boxes(table: TokenBytes, ids: Sequence[int], fills: Sequence[str], top: int) -> tuple[str, int]:
    """One row of tokens; returns its drawing and where it ends."""
    drawn, left = [], LABEL
    for token, fill in zip(ids, fills, strict=True):
        text = spelled(table, int(token))
        width = CHARACTER * len(text) + 12
        drawn.append(
            f'<rect x="{left}" y="{top}" width="{width}" height="{HEIGHT}" rx="4" fill="{fill}" '
            f'stroke="#5b6470"/><text x="{left + width / 2:g}" y="{top + 20}" '
            f'text-anchor="middle">{escape(text)}</text>'
        )
        left += width + GAP
    return "\n".join(drawn), left


def rows(turns: Sequence[Turn], trial: Trial) -> list[tuple[str, list[int], list[str]]]:
    """Label, ids and colours of every row."""
    first, later = turns[-2], turns[-1]
    sampled = [FILL[Kind.PROMPT]] * len(first.prompt_ids) + [FILL[Kind.SAMPLED]] * len(
        first.completion_ids
    )
    drawn = [
        ("earlier turn", [*first.prompt_ids.tolist(), *first.completion_ids.tolist()], sampled),
        ("next prompt", later.prompt_ids.tolist(), ["#ffffff"] * len(later.prompt_ids)),
    ]
    for number, chunk in enumerate(trial.chunks):
        name = "trained stream" if len(trial.chunks) == 1 else f"trained chunk {number}"
        drawn.append((name, chunk.tokens.tolist(), [FILL[Kind(kind)] for kind in chunk.kind]))
    return drawn


def picture(table: TokenBytes, turns: Sequence[Turn], trial: Trial) -> str:
    """The boundary before the last turn as one SVG."""
    parts, top, right = [], MARGIN, 0
    for label, ids, fills in rows(turns, trial):
        parts.append(f'<text x="{MARGIN}" y="{top + 20}" fill="#333">{label}</text>')
        drawn, end = boxes(table, ids, fills, top)
        parts.append(drawn)
        top, right = top + HEIGHT + 14, max(right, end)
    left = MARGIN
    for kind, label in LEGEND.items():
        if not any(kind in chunk.kind for chunk in trial.chunks):
            continue
        parts.append(
            f'<rect x="{left}" y="{top + 4}" width="14" height="14" rx="3" fill="{FILL[kind]}" '
            f'stroke="#5b6470"/><text x="{left + 20}" y="{top + 16}" fill="#333">{label}</text>'
        )
        left += CHARACTER * len(label) + 44
    width, height = max(right, left) + MARGIN, top + 30
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="monospace" font-size="13">\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def page_picture(page: Path) -> str:
    """Runs the first Python block of a page and draws what it built."""
    block = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None, f"{page.name} has no Python block"
    built: dict[str, Any] = {}
    exec(compile(block[1], str(page), "exec"), built)  # noqa: S102 our own page
    return picture(built["table"], built["turns"], built["trial"])


def pages() -> list[Path]:
    """The pages that have a picture."""
    return [
        page for page in sorted(FOLDER.glob("*.md")) if f"({page.stem}.svg)" in page.read_text()
    ]


def main(arguments: Sequence[str]) -> int:
    """Writes or checks all pictures."""
    stale = []
    for page in pages():
        target, drawn = page.with_suffix(".svg"), page_picture(page)
        if "--check" not in arguments:
            target.write_text(drawn, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != drawn:
            stale.append(target.name)
    if stale:
        sys.stderr.write(f"not what the page's code gives: {', '.join(stale)}; run draw.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
