"""Skills of the families archives and processes: tar, and running a script."""

from t1_reward.synthesis.condition import archive_holds, holds, is_directory, is_file
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.skill import Draft, Step, skill
from t1_reward.synthesis.state import Archive, File

__all__ = ["pack_directory", "run_script", "unpack_archive"]


@skill("run-script", family="processes", pieces=("run ", " and save", "bash "))
def run_script(draw: Draw) -> Draft:
    """Run a script and keep its output."""
    script, target, word = draw.distinct_names(3)
    return Draft(
        instruction=f"run {script} and save in {target}",
        state=(File(script, f"echo {word}\n"),),
        good=(Step(f"bash {script} > {target}"),),
        slip=Step(f"bash {script}", word),
        assertions={"file": is_file(target), "content": holds(target, word)},
    )


@skill("pack-directory", family="archives", pieces=("pack ", " as ", ".tar", "tar cf "))
def pack_directory(draw: Draw) -> Draft:
    """Put a directory in an archive."""
    archive, directory, first, second, text, more = draw.distinct_names(6)
    return Draft(
        instruction=f"pack {directory} as {archive}.tar",
        state=(
            File(f"{directory}/{first}", f"{text}\n"),
            File(f"{directory}/{second}", f"{more}\n"),
        ),
        good=(Step(f"tar cf {archive}.tar {directory}"),),
        slip=Step(f"tar cf {directory}.tar {directory}"),
        assertions={
            "first-file": archive_holds(f"{archive}.tar", f"{directory}/{first}", text),
            "second-file": archive_holds(f"{archive}.tar", f"{directory}/{second}", more),
        },
    )


@skill("unpack-archive", family="archives", pieces=("unpack ", "mkdir ", "tar xf ", ".tar", " -C "))
def unpack_archive(draw: Draw) -> Draft:
    """Unpack an archive in a new directory."""
    archive, directory, first, second, text, more = draw.distinct_names(6)
    files = (File(first, f"{text}\n"), File(second, f"{more}\n"))
    return Draft(
        instruction=f"unpack {archive}.tar in {directory}",
        state=(Archive(f"{archive}.tar", files),),
        good=(Step(f"mkdir {directory}"), Step(f"tar xf {archive}.tar -C {directory}")),
        slip=Step(f"tar xf {archive}.tar"),
        assertions={
            "directory": is_directory(directory),
            "first-file": holds(f"{directory}/{first}", text),
            "second-file": holds(f"{directory}/{second}", more),
        },
    )
