"""The generator's claims, checked in a real shell: outputs, assertions, habits, hostile trees."""

import dataclasses
import os
import shlex
import shutil
import zlib

import pytest

from t1_reward import (
    Cause,
    Stream,
    SynthesizedTask,
    build_demonstration,
    generate_task,
    read_report,
)
from t1_reward.synthesis import SKILLS, Split, Step
from t1_reward.synthesis.condition import absent, is_file, mode_is
from t1_reward.synthesis.draw import Draw
from t1_reward.synthesis.script import render_test

LOCALES = ("C", "C.UTF-8")
SAMPLE = [(split, seed) for split in Split for seed in range(30)]


def single(skill_id, split=Split.TRAIN):
    """Returns a task of one subgoal."""
    (skill,) = (skill for skill in SKILLS if skill.id == skill_id)
    subgoal = skill.draw(Draw(Stream("single", skill_id), split))
    return SynthesizedTask(f"single-{skill_id}", 0, split, (subgoal,))


def outcomes(shell, task):
    report, cause = read_report(shell.report(task.task.files["tests/test.sh"].decode()))
    assert cause is Cause.OK
    assert [assertion.id for assertion in report.assertions] == list(task.conditions)
    return [assertion.passed for assertion in report.assertions]


def perform(new_shell, task, steps, locale="C"):
    """Runs steps in the initial state; returns the shell and the steps as they really went."""
    shell = new_shell(locale)
    shell.unpack(task.task.environment_archive())
    return shell, [Step(step.command, *shell.run(step.command)) for step in steps]


def assert_predicted(steps, real):
    for step, seen in zip(steps, real, strict=True):
        assert step == seen


def ways_of(subgoal):
    yield "slip", (*subgoal.good[:-1], subgoal.slip)
    if subgoal.habit:
        yield "habit", subgoal.habit
    if subgoal.fix:
        yield "fix", subgoal.fix


@pytest.mark.parametrize(("split", "seed"), SAMPLE)
def test_the_reference_passes_everything_with_the_predicted_outputs(new_shell, split, seed):
    task = generate_task(seed, split)
    shell, real = perform(new_shell, task, (), LOCALES[seed % 2])
    assert not any(outcomes(shell, task))
    shell, real = perform(new_shell, task, task.reference, LOCALES[seed % 2])
    assert_predicted(task.reference, real)
    assert all(outcomes(shell, task))


@pytest.mark.parametrize(("split", "locale"), list(zip(Split, LOCALES, strict=True)))
@pytest.mark.parametrize("skill", [skill.id for skill in SKILLS])
def test_flawed_ways_print_what_is_predicted_and_fail_as_meant(new_shell, skill, split, locale):
    task = single(skill, split)
    (subgoal,) = task.subgoals
    for kind, steps in ways_of(subgoal):
        shell, real = perform(new_shell, task, steps, locale)
        assert_predicted(steps, real)
        passed = outcomes(shell, task)
        assert all(passed) is (kind == "fix")
        if kind == "habit":
            assert sum(passed) < len(passed) / 2
            assert passed.count(False) >= 2


@pytest.mark.parametrize("seed", range(20))
def test_a_flaw_in_one_subgoal_leaves_the_others_alone(new_shell, seed):
    task = generate_task(seed, "train")
    flawed = seed % len(task.subgoals)
    steps, expected = [], []
    for place, subgoal in enumerate(task.subgoals):
        way = dict(ways_of(subgoal))["slip"] if place == flawed else subgoal.good
        steps += way
        expected += [place != flawed] * len(subgoal.assertions)
    shell, real = perform(new_shell, task, steps)
    assert_predicted(steps, real)
    passed = outcomes(shell, task)
    assert all(got for got, other in zip(passed, expected, strict=True) if other)
    assert not all(passed)


@pytest.mark.parametrize("seed", range(15))
def test_whole_demonstrations_print_what_is_predicted(new_shell, seed):
    task = generate_task(seed, "train")
    steps = build_demonstration(task, Stream("demo", seed), 0.6, 0.5, 0.1)[:-1]
    _, real = perform(new_shell, task, steps)
    assert_predicted(steps, real)


def test_a_wrong_prediction_is_noticed(new_shell):
    task = single("read-mode")
    steps = [task.reference[0]._replace(output="644"), *task.reference[1:]]
    _, real = perform(new_shell, task, steps)
    with pytest.raises(AssertionError):
        assert_predicted(steps, real)


def test_an_assertion_that_is_true_from_the_start_is_noticed(new_shell):
    task = single("append-line")
    (subgoal,) = task.subgoals
    planted = {**subgoal.assertions, "content": is_file(subgoal.state[0].path)}
    task = dataclasses.replace(task, subgoals=(dataclasses.replace(subgoal, assertions=planted),))
    shell, _ = perform(new_shell, task, ())
    assert any(outcomes(shell, task))


def test_other_right_ways_pass_too(new_shell):
    for skill, rewrite in {
        "make-symlink": lambda command: command.replace("ln -s ", "ln -s $PWD/"),
        "add-branch": lambda command: f"{command}; git -C {command.split()[2]} pack-refs --all",
        "pack-directory": lambda command: "tar cf {2} ./{3}".format(*command.split()),
        "append-line": lambda command: command.replace("echo", "printf %s"),
    }.items():
        task = single(skill)
        shell, _ = perform(new_shell, task, [Step(rewrite(task.reference[0].command))])
        assert all(outcomes(shell, task)), skill


NEAR_MISSES = [
    ("append-line", "{good}; head -c 5000 /dev/zero | tr '\\0' x >> {last}"),
    ("run-script", "{good}; printf '\\0more' >> {last}"),
    ("copy-tree", "ln -s {first} {last}"),
    ("pack-directory", "{good}; gzip {first}; mv {first}.gz {first}"),
    ("pack-directory", "for f in {last}/*; do echo junk >> $f; done; {good}"),
    ("pack-directory", "for f in {last}/*; do printf %s .$(cat $f) > $f; done; {good}"),
    # names and texts in another file's text, as `tar -v` would list them
    (
        "pack-directory",
        "(echo x; for f in {last}/*; do echo $f; cat $f; done) > fake; tar cf {first} fake",
    ),
    ("add-branch", "git -C {first} checkout -q -b {last}"),
    # packed where it should be and then moved: the packed line is stale
    (
        "add-branch",
        "{good}; git -C {first} pack-refs --all; {commit}; git -C {first} branch -f {last}",
    ),
]
COMMIT = "git -C {first} -c user.name=n -c user.email=e commit -q --allow-empty -m more"


@pytest.mark.parametrize(("skill", "command"), NEAR_MISSES)
def test_near_misses_do_not_pass(new_shell, skill, command):
    task = single(skill)
    good = task.reference[0].command
    words = good.split()
    commit = COMMIT.format(first=words[2])
    line = command.format(good=good, first=words[2], last=words[-1], commit=commit)
    shell, _ = perform(new_shell, task, [Step(line)])
    assert not all(outcomes(shell, task))


# what meets an assertion's goal in letter and not in spirit; the clause that stands against it
SHORTCUTS = {
    ("set-mode", "content-kept"): "{all}; : > {last}",
    ("read-mode", "mode-kept"): "{all}; chmod 755 {source}",
    ("delete-by-name", "other-kept"): "rm */*",
    ("delete-by-size", "others-kept"): "rm */*",
    ("delete-target", "link-kept"): "{all}; rm {source}",
    ("read-commit", "last-only"): "mkdir $(git -C */.git/.. log --format=%s)",
    ("copy-tree", "directory"): "ln -s {source} {last}",
    ("sort-numbers", "smallest-first"): "sort -rn {source} > {last}",
    ("make-symlink", "target"): "rm {source}; ln -s /etc/passwd {source}; ln -s {source} {last}",
    ("run-script", "file"): "ln -s /etc/passwd {last}",
}


@pytest.mark.parametrize(("skill", "label"), SHORTCUTS)
def test_a_shortcut_fails_the_assertion_that_stands_against_it(new_shell, skill, label):
    task = single(skill)
    commands = [step.command for step in task.reference]
    roots = {entry.path.split("/")[0] for entry in task.subgoals[0].state}
    source = next((word for word in commands[0].split() if word in roots), "")
    last = commands[-1].split()[-1]
    line = SHORTCUTS[skill, label].format(all="; ".join(commands), source=source, last=last)
    shell, _ = perform(new_shell, task, [Step(line)])
    passed = dict(zip(task.conditions, outcomes(shell, task), strict=True))
    assert passed[f"1-{skill}-{label}"] is False


def met(shell, condition):
    report, _ = read_report(shell.report(render_test({"it": condition})))
    return "it" in report.passed


def test_a_mode_is_that_of_a_regular_file_reached_without_a_link(new_shell):
    shell = new_shell()
    shell.run(
        "mkdir -m 750 home; touch home/file; chmod 750 home/file; ln -s home way; ln -s x link"
    )
    assert met(shell, mode_is("home/file", "750"))
    assert not met(shell, mode_is("home/file", "644"))
    assert not met(shell, mode_is("home", "750"))
    assert not met(shell, mode_is("way/file", "750"))
    # what stat says of a link
    assert not met(shell, mode_is("link", "777"))


def test_nothing_is_absent_where_a_dangling_link_is(new_shell):
    shell = new_shell()
    shell.run("touch file; ln -s nowhere link")
    assert met(shell, absent("nothing"))
    assert not met(shell, absent("file"))
    assert not met(shell, absent("link"))


def plant_fifo(path):
    os.mkfifo(path)


def plant_zero(path):
    path.symlink_to("/dev/zero")


def plant_directory(path):
    path.mkdir()


def plant_kernel_file(path):
    path.symlink_to("/proc/kmsg")


def plant_sparse(path):
    with path.open("wb") as file:
        file.truncate(8 << 30)


CONTENT = {"holds", "has_line", "first_line", "last_line", "archive_holds"}


def files_read_by(condition):
    """The files whose contents a condition looks at."""
    for function, path, *rest in map(shlex.split, condition.shell.split(" && ")):
        if function in CONTENT:
            yield path
        elif function == "on_branch":
            yield f"{path}/.git/HEAD"
        elif function == "branch_at":
            yield f"{path}/.git/refs/heads/{rest[0]}"


BOMB = zlib.compress(bytes(1 << 24), 9, wbits=31)


def plant_bomb(path):
    path.write_bytes(BOMB)


@pytest.mark.parametrize(
    "plant", [plant_fifo, plant_zero, plant_directory, plant_kernel_file, plant_sparse, plant_bomb]
)
def test_a_hostile_tree_neither_hangs_nor_passes(new_shell, plant):
    looked = 0
    for skill in SKILLS:
        task = single(skill.id)
        shell, _ = perform(new_shell, task, task.reference)
        assert all(outcomes(shell, task))
        for path in sorted(shell.directory.rglob("*")):
            if path.parent.parent.name == "objects" or path.is_dir() or path.is_symlink():
                continue
            kept = path.with_name("kept")
            path.rename(kept)
            plant(path)
            after = outcomes(shell, task)
            name = path.relative_to(shell.directory).as_posix()
            for condition, passed in zip(task.conditions.values(), after, strict=True):
                if name in files_read_by(condition):
                    assert not passed, condition
                    looked += 1
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
            kept.rename(path)
        shutil.rmtree(shell.directory)
    assert looked > len(SKILLS)


def test_planted_contents_fail_the_assertions_that_look_at_them(new_shell):
    task = single("run-script")
    target = task.reference[0].command.split()[-1]
    for plant in (plant_fifo, plant_zero, plant_directory, plant_kernel_file, plant_sparse):
        shell, _ = perform(new_shell, task, ())
        plant(shell.directory / target)
        assert not outcomes(shell, task)[-1]


def test_git_finds_the_written_repositories_sound(new_shell):
    for skill in ("read-commit", "add-branch", "restore-file"):
        task = single(skill)
        shell, _ = perform(new_shell, task, ())
        name = task.subgoals[0].state[0].path
        assert shell.run(f"git -C {name} fsck --strict") == ("", 0)
        changed = len(task.subgoals[0].state[0].changed)
        status, code = shell.run(f"git -C {name} status --porcelain")
        assert (len(status.splitlines()), code) == (changed, 0)


def test_the_solution_script_solves_the_task(new_shell):
    for seed in range(5):
        task = generate_task(seed, "heldout")
        shell, _ = perform(new_shell, task, ())
        _, code = shell.run(task.task.solution)
        assert code == 0
        assert all(outcomes(shell, task))


def test_under_plain_harbor_the_script_writes_files_instead(new_shell, tmp_path):
    logs = tmp_path / "verifier"
    logs.mkdir()
    task = generate_task(3, "train")
    script = task.task.files["tests/test.sh"].decode().replace("/logs/verifier", str(logs))
    for steps, reward in (((), "0\n"), (task.reference, "1\n")):
        shell, _ = perform(new_shell, task, steps)
        shell.run(f"unset T1_REPORT_FD\n{script}")
        assert (logs / "reward.txt").read_text() == reward
        report, cause = read_report((logs / "report.tap").read_bytes())
        assert cause is Cause.OK
        assert len(report.passed) == (len(task.conditions) if steps else 0)
