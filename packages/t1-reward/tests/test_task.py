import datetime as dt
import io
import os
import tarfile
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_reward import Task, TaskFormatError, TaskManifest, generate_task
from t1_reward.manifest import parse_manifest, render_manifest
from t1_reward.toml import dump

keys = st.text(min_size=1, max_size=8)
scalars = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.dates()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "sample"
    generate_task(1, "train").task.write(path)
    return path


@given(st.dictionaries(keys, values, max_size=4))
def test_toml_text_reads_back_as_the_document(document):
    assert tomllib.loads(dump(document)) == document


def test_toml_refuses_what_it_cannot_say():
    with pytest.raises(TypeError, match="no NoneType"):
        dump({"a": None})


def test_a_task_written_and_loaded_is_the_same_task(tmp_path):
    for seed in range(20):
        made = generate_task(seed, "heldout").task
        made.write(tmp_path / made.id)
        loaded = Task.load(tmp_path / made.id)
        assert loaded == made
        assert loaded.content_hash() == made.content_hash()
        assert loaded.environment_archive() == made.environment_archive()
        assert loaded.tests_archive() == made.tests_archive()


def test_what_a_task_says_of_itself_is_what_it_was_made_of():
    made = generate_task(7, "train")
    task = made.task
    assert task.name == "t1/train-000007"
    assert task.instruction == made.instruction
    assert (task.families, task.metadata.skills) == (made.families, made.skills)
    assert task.length == len(made.subgoals)
    assert task.metadata.split == "train"
    assert task.metadata.assertions == tuple(made.conditions)
    assert task.assertion_count == sum(len(s.assertions) for s in made.subgoals)
    assert (task.workdir, task.agent_timeout_s, task.verifier_timeout_s) == ("/app", 60.0, 10.0)
    assert made.reference[0].command in task.solution


def test_unknown_keys_and_files_are_kept(directory, tmp_path):
    extra = '[environment.healthcheck]\ncommand = "true"\n\n[[steps]]\nname = "one"\n'
    manifest = directory / "task.toml"
    manifest.write_text(
        manifest.read_text().replace("[environment]", "[environment]\ncpus = 2") + extra
    )
    (directory / "notes.txt").write_text("kept")
    task = Task.load(directory)
    document = tomllib.loads(manifest.read_text())
    assert tomllib.loads(render_manifest(task.manifest)) == document
    task.write(tmp_path / "copy")
    assert (tmp_path / "copy" / "notes.txt").read_text() == "kept"
    assert (tmp_path / "copy" / "task.toml").read_bytes() == manifest.read_bytes()


def test_a_date_in_task_toml_survives():
    text = "[metadata]\nwritten = 2024-05-01\n"
    manifest = parse_manifest(text, "task.toml")
    assert tomllib.loads(render_manifest(manifest))["metadata"]["written"] == dt.date(2024, 5, 1)


@pytest.mark.parametrize("name", ["task.toml", "instruction.md", "tests/test.sh"])
def test_a_missing_file_is_named_with_the_remedy(directory, name):
    (directory / name).unlink()
    with pytest.raises(TaskFormatError, match=rf"sample/{name}: missing; \w+"):
        Task.load(directory)


def test_a_missing_environment_is_named(directory):
    for file in (directory / "environment").iterdir():
        file.unlink()
    with pytest.raises(TaskFormatError, match="environment: missing"):
        Task.load(directory)


def test_an_environment_that_must_be_built_says_so(directory):
    (directory / "environment" / "app.tar").unlink()
    with pytest.raises(TaskFormatError, match=r"environment/app\.tar: missing.*Dockerfile"):
        Task.load(directory).environment_archive()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("timeout_sec = 60.0", 'timeout_sec = "soon"', r"field agent\.timeout_sec: .* got 'soon'"),
        ("timeout_sec = 10.0", "timeout_sec = -1", r"field verifier\.timeout_sec: .* got -1"),
        ('workdir = "/app"', 'workdir = "app"', r"field environment\.workdir: .* got 'app'"),
        ('split = "train"', 'split = "test"', r"field metadata\.split: .* got 'test'"),
        (
            "assertions = [",
            'assertions = ["a", "a", ',
            r"field metadata\.assertions: .* every id once",
        ),
        ("[agent]", "[agent", "not valid TOML"),
    ],
)
def test_a_wrong_field_is_named(directory, old, new, message):
    manifest = directory / "task.toml"
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))
    with pytest.raises(TaskFormatError, match=rf"sample/task\.toml: {message}"):
        Task.load(directory)


def test_a_symbolic_link_in_a_task_is_refused(directory):
    (directory / "tests" / "data").symlink_to("/etc/passwd")
    with pytest.raises(TaskFormatError, match="tests/data: expected a file or a directory"):
        Task.load(directory)


def test_a_special_file_in_a_task_is_refused(directory):
    os.mkfifo(directory / "tests" / "pipe")
    with pytest.raises(TaskFormatError, match=r"tests/pipe: expected a file .* the special file"):
        Task.load(directory)


def modes_in(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        return {member.name: member.mode for member in reader}


def test_scripts_are_executable_and_nothing_else_is(directory, tmp_path):
    (directory / "tests" / "data.txt").write_text("1")
    (directory / "tests" / "data.txt").chmod(0o777)
    (directory / "tests" / "test.sh").chmod(0o600)
    task = Task.load(directory)
    assert modes_in(task.tests_archive()) == {"test.sh": 0o755, "data.txt": 0o644}
    task.write(tmp_path / "copy")
    executable = {name for name in task.files if (tmp_path / "copy" / name).stat().st_mode & 0o111}
    assert executable == {"tests/test.sh", "solution/solve.sh"}


def test_tests_that_fit_in_no_archive_are_refused():
    files = {"tests/test.sh": b"", f"tests/{'x' * 101}": b""}
    with pytest.raises(TaskFormatError, match=r"long/tests/: path 'x{101}': .*too long; rename"):
        Task("long", files).tests_archive()


def test_text_that_is_not_utf_8_is_refused(directory):
    (directory / "instruction.md").write_bytes(b"\xff\xfe")
    with pytest.raises(TaskFormatError, match=r"sample/instruction\.md: expected UTF-8"):
        Task.load(directory)


def test_a_place_that_is_taken_or_absent_is_refused(directory, tmp_path):
    with pytest.raises(TaskFormatError, match="empty one"):
        generate_task(2, "train").task.write(directory)
    with pytest.raises(TaskFormatError, match="expected a task directory"):
        Task.load(tmp_path / "nowhere")


def test_the_hash_follows_every_file(directory):
    before = Task.load(directory).content_hash()
    for name in ("task.toml", "tests/test.sh", "environment/app.tar"):
        with (directory / name).open("ab") as file:
            file.write(b"\n")
        after = Task.load(directory).content_hash()
        assert after != before
        before = after
    assert Task("t", {"a": b"x"}).content_hash() != Task("t", {"b": b"x"}).content_hash()


def test_a_task_written_by_hand_has_defaults(tmp_path):
    task = Task.create("plain", instruction="do it", state=b"", test="echo 1..0")
    assert (task.name, task.length, task.families) == ("t1/plain", 0, ())
    assert (task.solution, task.assertion_count, task.workdir) == (None, 0, "/app")
    assert task.agent_timeout_s == task.verifier_timeout_s == 600.0
    counted = TaskManifest.model_validate({"metadata": {"assertion_count": 4}})
    task = Task.create("counted", instruction="do it", state=b"", test="", manifest=counted)
    assert (task.name, task.assertion_count) == ("counted", 4)
