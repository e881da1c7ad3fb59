"""Skills of the families configuration and logs: keys with values, lines and columns."""

from t1_reward.synthesis.condition import has_line, holds, is_file
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.skill import Draft, Step, skill
from t1_reward.synthesis.state import File

__all__ = ["count_lines", "cut_column", "read_key", "set_key", "top_line"]

_COLUMNS = 4


def _settings(draw: Draw) -> list[tuple[str, str]]:
    return [(draw.name(), draw.name()) for _ in range(draw.size(2, 3))]


def _lines(pairs: list[tuple[str, str]]) -> str:
    return "".join(f"{key}={value}\n" for key, value in pairs)


@skill("set-key", family="configuration", pieces=("set ", " to ", "sed -i s/", "=.*/"))
def set_key(draw: Draw) -> Draft:
    """Change one value of a file of settings."""
    path, value = draw.distinct_names(2)
    pairs = _settings(draw)
    key = draw.choice(pairs)[0]
    wanted = [(name, value if name == key else old) for name, old in pairs]
    return Draft(
        instruction=f"set {key} to {value} in {path}",
        state=(File(path, _lines(pairs)),),
        good=(Step(f"sed -i s/{key}=.*/{key}={value}/ {path}"),),
        slip=Step(f"sed -i s/{value}=.*/{value}={key}/ {path}"),
        assertions={
            "line": has_line(path, f"{key}={value}"),
            "content": holds(path, _lines(wanted)),
        },
    )


@skill("read-key", family="configuration", pieces=("put value", "grep "))
def read_key(draw: Draw) -> Draft:
    """Write down one value of a file of settings."""
    path, target = draw.distinct_names(2)
    pairs = _settings(draw)
    key, value = draw.choice(pairs)
    return Draft(
        instruction=f"put value of {key} from {path} in {target}",
        state=(File(path, _lines(pairs)),),
        good=(Step(f"grep {key} {path}", f"{key}={value}"), Step(f"echo {value} > {target}")),
        slip=Step(f"echo {key} > {target}"),
        assertions={"file": is_file(target), "value": holds(target, value)},
    )


@skill("count-lines", family="logs", pieces=("count lines with ", "grep -c "))
def count_lines(draw: Draw) -> Draft:
    """Count the lines with a word and write the number down."""
    path, target, word, other = draw.distinct_names(4)
    count = draw.number(2, 19)
    lines = draw.shuffled([word] * count + [other] * draw.size(1, 4))
    return Draft(
        instruction=f"count lines with {word} of {path} in {target}",
        state=(File(path, "\n".join(lines) + "\n"),),
        good=(Step(f"grep -c {word} {path}", str(count)), Step(f"echo {count} > {target}")),
        slip=Step(f"echo {word} > {target}"),
        assertions={"file": is_file(target), "count": holds(target, str(count))},
        values=(str(count),),
    )


@skill(
    "top-line",
    family="logs",
    pieces=("put most common line", "sort ", " | uniq -c | sort -rn | head -n 1", "      "),
)
def top_line(draw: Draw) -> Draft:
    """Find the most common line and write it down."""
    path, target, word, *others = draw.distinct_names(5)
    count = draw.number(3, 9)
    lines = [word] * count
    for other in others:
        lines += [other] * draw.size(1, count - 1)
    return Draft(
        instruction=f"put most common line of {path} in {target}",
        state=(File(path, "\n".join(draw.shuffled(lines)) + "\n"),),
        good=(
            # uniq right-aligns counts in seven columns
            Step(f"sort {path} | uniq -c | sort -rn | head -n 1", f"{count:7d} {word}"),
            Step(f"echo {word} > {target}"),
        ),
        slip=Step(f"echo {count} > {target}"),
        assertions={"file": is_file(target), "line": holds(target, word)},
        values=(str(count),),
    )


@skill("cut-column", family="logs", pieces=("put column ", "cut -d, -f"))
def cut_column(draw: Draw) -> Draft:
    """Take one column out of a table."""
    path, target = draw.distinct_names(2)
    column = draw.number(1, _COLUMNS)
    rows = [draw.distinct_names(_COLUMNS) for _ in range(2)]
    cells = [row[column - 1] for row in rows]
    return Draft(
        instruction=f"put column {column} of {path} in {target}",
        state=(File(path, "".join(",".join(row) + "\n" for row in rows)),),
        good=(Step(f"cut -d, -f{column} {path} > {target}"),),
        slip=Step(f"cut -d, -f{column} {path}", "\n".join(cells)),
        assertions={
            "first-cell": has_line(target, cells[0]),
            "content": holds(target, "\n".join(cells)),
        },
        values=(str(column),),
    )
