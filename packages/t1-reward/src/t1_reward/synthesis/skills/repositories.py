"""Skills of the family repositories: reading, branching and restoring with git."""

from t1_reward.synthesis.condition import absent, branch_at, holds, is_directory, on_branch
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.repository import Commit, Repository
from t1_reward.synthesis.skill import Draft, Step, skill

__all__ = ["add_branch", "read_commit", "restore_file"]


@skill(
    "read-commit",
    family="repositories",
    pieces=("make folder named by last commit", "git -C ", " log -1 --format=%s", "mkdir "),
)
def read_commit(draw: Draw) -> Draft:
    """Make a directory whose name stands in the history."""
    repository, first, last, name, text, more = draw.distinct_names(6)
    history = (Commit(first, {name: f"{text}\n"}), Commit(last, {name: f"{more}\n"}))
    done = is_directory(last)
    return Draft(
        instruction=f"make folder named by last commit of {repository}",
        state=(Repository(repository, history),),
        good=(Step(f"git -C {repository} log -1 --format=%s", last), Step(f"mkdir {last}")),
        slip=Step(f"mkdir {repository}/{last}"),
        # naming a folder after every commit is no answer
        assertions={"folder": done, "last-only": done & absent(first)},
    )


@skill("add-branch", family="repositories", pieces=("add branch ", "git -C ", " branch "))
def add_branch(draw: Draw) -> Draft:
    """Add a branch without switching to it."""
    path, branch, subject, name, text = draw.distinct_names(5)
    repository = Repository(path, (Commit(subject, {name: f"{text}\n"}),))
    exists = branch_at(path, branch, repository.head)
    return Draft(
        instruction=f"add branch {branch} in {path}",
        state=(repository,),
        good=(Step(f"git -C {path} branch {branch}"),),
        slip=Step(f"git -C {path} branch {path}"),
        assertions={"branch": exists, "not-switched": exists & on_branch(path, "main")},
    )


@skill(
    "restore-file",
    family="repositories",
    pieces=(
        "restore ",
        "git -C ",
        " checkout ",
        "Updated 1 path from the index",
        "Updated 2 paths from the index",
    ),
)
def restore_file(draw: Draw) -> Draft:
    """Undo the local change of one file and leave the other one alone."""
    repository, subject, path, other, text, more, changed, edited = draw.distinct_names(8)
    history = (Commit(subject, {path: f"{text}\n", other: f"{more}\n"}),)
    local = {path: f"{changed}\n", other: f"{edited}\n"}
    restored = holds(f"{repository}/{path}", text)
    return Draft(
        instruction=f"restore {path} of {repository}",
        state=(Repository(repository, history, local),),
        good=(Step(f"git -C {repository} checkout {path}", "Updated 1 path from the index"),),
        slip=Step(f"git -C {repository} checkout .", "Updated 2 paths from the index"),
        assertions={
            "restored": restored,
            "other-kept": restored & holds(f"{repository}/{other}", edited),
        },
    )
