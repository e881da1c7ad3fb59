"""Skills of the families links and finding: symbolic links, and files to be found and deleted."""

from t1_reward.synthesis.condition import absent, is_file, is_symlink, resolves_to
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.skill import NO_SUCH_FILE, Draft, Step, skill
from t1_reward.synthesis.state import File, Symlink

__all__ = ["delete_by_name", "delete_by_size", "delete_target", "make_symlink"]

_ALREADY_THERE = "': File exists"
_CANNOT_LINK = "ln: failed to create symbolic link '"
_CANNOT_REMOVE = "rm: cannot remove '"
# `find -size +4k` rounds sizes up to whole kibibytes. Over 4096 bytes is big: more than a directory
# itself occupies on common file systems, which would be found as well
_BIG_LINES = 1200
_SMALL_LINES = 2


def _cannot_remove(path: str) -> str:
    return f"{_CANNOT_REMOVE}{path}{NO_SUCH_FILE}"


@skill(
    "make-symlink", family="links", pieces=("link ", "ln -s ", "ln ", _CANNOT_LINK, _ALREADY_THERE)
)
def make_symlink(draw: Draw) -> Draft:
    """Make a symbolic link; the habit is to make a hard one."""
    target, link, text = draw.distinct_names(3)
    return Draft(
        instruction=f"link {link} to {target}",
        state=(File(target, f"{text}\n"),),
        good=(Step(f"ln -s {target} {link}"),),
        habit=(Step(f"ln {target} {link}"),),
        slip=Step(
            f"ln -s {link} {target}",
            f"{_CANNOT_LINK}{target}{_ALREADY_THERE}",
            1,
        ),
        assertions={"symlink": is_symlink(link), "target": resolves_to(link, target)},
    )


@skill("delete-target", family="links", pieces=("delete target of link ", "readlink ", "rm "))
def delete_target(draw: Draw) -> Draft:
    """Delete what a link points at; the habit is to delete the link."""
    link, target, text = draw.distinct_names(3)
    gone = absent(target)
    return Draft(
        instruction=f"delete target of link {link}",
        state=(File(target, f"{text}\n"), Symlink(link, target)),
        good=(Step(f"readlink {link}", target), Step(f"rm {target}")),
        habit=(Step(f"rm {link}"),),
        slip=Step(f"rm {link}"),
        assertions={"target-gone": gone, "link-kept": gone & is_symlink(link)},
    )


@skill(
    "delete-by-name",
    family="finding",
    pieces=("delete file ", "find . -name ", "rm ", "./", _CANNOT_REMOVE, NO_SUCH_FILE),
)
def delete_by_name(draw: Draw) -> Draft:
    """Delete a file that lies in one of two directories."""
    directory, path, other_directory, other, text, more = draw.distinct_names(6)
    gone = absent(f"{directory}/{path}")
    return Draft(
        instruction=f"delete file {path}",
        state=(
            File(f"{directory}/{path}", f"{text}\n"),
            File(f"{other_directory}/{other}", f"{more}\n"),
        ),
        good=(
            Step(f"find . -name {path}", f"./{directory}/{path}"),
            Step(f"rm ./{directory}/{path}"),
        ),
        slip=Step(f"rm {path}", _cannot_remove(path), 1),
        assertions={"gone": gone, "other-kept": gone & is_file(f"{other_directory}/{other}")},
    )


@skill(
    "delete-by-size",
    family="finding",
    pieces=("delete big file", "find ", " -size +4k", "rm ", _CANNOT_REMOVE, NO_SUCH_FILE),
)
def delete_by_size(draw: Draw) -> Draft:
    """Delete the one big file of a directory."""
    directory, text = draw.distinct_names(2)
    big, *small = draw.distinct_names(draw.size(2, 3))
    gone = absent(f"{directory}/{big}")
    kept = gone
    for name in small:
        kept &= is_file(f"{directory}/{name}")
    return Draft(
        instruction=f"delete big file of {directory}",
        state=(
            File(f"{directory}/{big}", f"{text}\n" * _BIG_LINES),
            *(File(f"{directory}/{name}", f"{text}\n" * _SMALL_LINES) for name in small),
        ),
        good=(
            Step(f"find {directory} -size +4k", f"{directory}/{big}"),
            Step(f"rm {directory}/{big}"),
        ),
        slip=Step(f"rm {big}", _cannot_remove(big), 1),
        assertions={"gone": gone, "others-kept": kept},
    )
