"""Skills of the families permissions, text and trees: modes, lines, copying and moving."""

from t1_reward.synthesis.condition import (
    absent,
    first_line,
    holds,
    is_directory,
    last_line,
    mode_is,
)
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.skill import NO_SUCH_FILE, Draft, Step, skill
from t1_reward.synthesis.state import File

__all__ = ["append_line", "copy_tree", "move_tree", "read_mode", "set_mode", "sort_numbers"]

_NEEDS_FLAG = "cp: -r not specified; omitting directory '"
_CANNOT_COPY = "cp: cannot stat '"


@skill("set-mode", family="permissions", pieces=("set mode ", "chmod "))
def set_mode(draw: Draw) -> Draft:
    """Give a file the mode that is asked for."""
    path, text = draw.distinct_names(2)
    mode, other = draw.two_modes()
    done = mode_is(path, mode)
    return Draft(
        instruction=f"set mode {mode} on {path}",
        state=(File(path, f"{text}\n"),),
        good=(Step(f"chmod {mode} {path}"),),
        slip=Step(f"chmod {other} {path}"),
        assertions={"mode": done, "content-kept": done & holds(path, text)},
        values=(mode,),
    )


@skill("read-mode", family="permissions", pieces=("put mode", "stat -c %a "))
def read_mode(draw: Draw) -> Draft:
    """Write down a file's mode; the habit is to assume the usual one without looking."""
    path, target, text = draw.distinct_names(3)
    mode = draw.mode()
    return Draft(
        instruction=f"put mode of {path} in {target}",
        state=(File(path, f"{text}\n", int(mode, 8)),),
        good=(Step(f"stat -c %a {path}", mode), Step(f"echo {mode} > {target}")),
        habit=(Step(f"echo 644 > {target}"),),
        slip=Step(f"echo {path} > {target}"),
        # the second one also asks that the file's mode is left alone
        assertions={
            "value": holds(target, mode),
            "mode-kept": holds(target, mode) & mode_is(path, mode),
        },
        values=(mode,),
    )


@skill("append-line", family="text", pieces=("append ",))
def append_line(draw: Draw) -> Draft:
    """Add a line at the end of a file."""
    path, old, new = draw.distinct_names(3)
    return Draft(
        instruction=f"append {new} to {path}",
        state=(File(path, f"{old}\n"),),
        good=(Step(f"echo {new} >> {path}"),),
        slip=Step(f"echo {new} > {path}"),
        assertions={"last-line": last_line(path, new), "content": holds(path, f"{old}\n{new}")},
    )


@skill("sort-numbers", family="text", pieces=("sort numbers", "sort -n "))
def sort_numbers(draw: Draw) -> Draft:
    """Sort numbers of different lengths; the habit is to sort them as text."""
    path, target = draw.distinct_names(2)
    # one digit first, more digits later: as text, the one-digit number comes last
    numbers = draw.numbers(2, 9, 1) + draw.numbers(10, 19, draw.size(1, 2))
    numbers += draw.numbers(100, 139, 1)
    ordered = "\n".join(str(number) for number in sorted(numbers))
    lines = [str(number) for number in draw.shuffled(numbers)]
    return Draft(
        instruction=f"sort numbers of {path} into {target}",
        state=(File(path, "\n".join(lines) + "\n"),),
        good=(Step(f"sort -n {path} > {target}"),),
        habit=(Step(f"sort {path} > {target}"),),
        slip=Step(f"sort -n {path}", ordered),
        assertions={
            "smallest-first": first_line(target, str(min(numbers))),
            "largest-last": last_line(target, str(max(numbers))),
            "content": holds(target, ordered),
        },
        values=tuple(lines),
    )


@skill(
    "copy-tree",
    family="trees",
    pieces=("copy tree ", "cp -r ", "cp ", _NEEDS_FLAG, _CANNOT_COPY, NO_SUCH_FILE),
)
def copy_tree(draw: Draw) -> Draft:
    """Copy a directory; the habit is to forget that this needs a flag."""
    source, target, first, second, text, more = draw.distinct_names(6)
    refused = Step(f"cp {source} {target}", f"{_NEEDS_FLAG}{source}'", 1)
    done = Step(f"cp -r {source} {target}")
    return Draft(
        instruction=f"copy tree {source} to {target}",
        state=(File(f"{source}/{first}", f"{text}\n"), File(f"{source}/{second}", f"{more}\n")),
        good=(done,),
        habit=(refused,),
        fix=(refused, done),
        slip=Step(f"cp -r {target} {source}", f"{_CANNOT_COPY}{target}{NO_SUCH_FILE}", 1),
        assertions={
            "directory": is_directory(target),
            "first-file": holds(f"{target}/{first}", text),
            "second-file": holds(f"{target}/{second}", more),
        },
    )


@skill("move-tree", family="trees", pieces=("move tree ", "mv "))
def move_tree(draw: Draw) -> Draft:
    """Move a directory into a new one."""
    source, target, name, text = draw.distinct_names(4)
    return Draft(
        instruction=f"move tree {source} into {target}",
        state=(File(f"{source}/{name}", f"{text}\n"),),
        good=(Step(f"mkdir {target}"), Step(f"mv {source} {target}")),
        slip=Step(f"mv {target} {source}"),
        assertions={
            "directory": is_directory(f"{target}/{source}"),
            "file": holds(f"{target}/{source}/{name}", text),
            "source-gone": absent(source),
        },
    )
