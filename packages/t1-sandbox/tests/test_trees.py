"""The digest notices every change to a tree, and no archive reaches outside."""

import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_sandbox._arena import trees

_CHANGES = {
    "a byte": lambda root: (root / "d/f").write_bytes(b"1\0345"),
    "a mode": lambda root: (root / "d/f").chmod(0o755),
    "a name": lambda root: (root / "d/f").rename(root / "d/g"),
    "an addition": lambda root: (root / "new").touch(),
    "a removal": lambda root: (root / "d/f").unlink(),
    "an empty directory": lambda root: (root / "e").mkdir(),
    "a link": lambda root: ((root / "l").unlink(), (root / "l").symlink_to("d/other")),
    "moved bytes": lambda root: ((root / "d/f").write_bytes(b"1"), (root / "d/g").write_bytes(b"2345")),
}  # fmt: skip


def _tree(root, tar_files):
    trees.extract(tar_files, root)
    (root / "l").symlink_to("d/f")
    return root


@pytest.mark.parametrize("change", _CHANGES)
def test_the_digest_notices(tmp_path, tar, change):
    root = _tree(tmp_path / "t", tar({"d/f": b"12345"}))
    before = trees.digest(root)
    assert trees.digest(root) == before

    _CHANGES[change](root)

    assert trees.digest(root) != before


def test_equal_trees_have_equal_digests(tmp_path, tar):
    archive = tar({"b": b"1", "a/c": b"2"})

    assert trees.digest(_tree(tmp_path / "1", archive)) == trees.digest(
        _tree(tmp_path / "2", archive)
    )


@given(sizes=st.lists(st.integers(0, 10_000), max_size=8))
def test_the_size_asked_for_is_never_too_small(tar, sizes):
    files = {f"d{number}/f": bytes(size) for number, size in enumerate(sizes)}
    total, inodes = trees.unpacked_size(tar(files))

    assert total >= sum(-(-size // 4096) * 4096 for size in sizes)
    assert inodes >= 1 + 2 * len(sizes)


@pytest.mark.parametrize(
    ("kind", "name", "target"),
    [
        (tarfile.SYMTYPE, "link", "/etc/passwd"),
        (tarfile.SYMTYPE, "link", "../../outside"),
        (tarfile.LNKTYPE, "link", "../outside"),
        (tarfile.CHRTYPE, "device", ""),
        (tarfile.REGTYPE, "../outside", ""),
    ],
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path, kind, name, target):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, target
        archive.addfile(member)

    with pytest.raises(tarfile.TarError):
        trees.extract(buffer.getvalue(), tmp_path / "t")
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_set_uid_bits_are_stripped_and_times_and_inner_links_kept(tmp_path):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        program = tarfile.TarInfo("bin/program")
        program.mode = 0o6775
        program.mtime = 1_000_000_000
        archive.addfile(program)
        link = tarfile.TarInfo("run")
        link.type, link.linkname = tarfile.SYMTYPE, "bin/program"
        archive.addfile(link)
    trees.extract(buffer.getvalue(), tmp_path)

    assert (tmp_path / "bin/program").stat().st_mode & 0o7777 == 0o775
    assert (tmp_path / "bin/program").stat().st_mtime == 1_000_000_000
    assert (tmp_path / "run").readlink().as_posix() == "bin/program"
