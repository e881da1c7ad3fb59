import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_reward.archive import Node, pack

names = st.text("abcxyz", min_size=1, max_size=5)
# a path whose parts alternate in case can never be another one's parent
paths = st.builds(lambda parent, name: f"{parent.upper()}/{name}", names, names) | names
trees = st.dictionaries(paths, st.tuples(st.binary(max_size=1500), st.sampled_from([0o644, 0o755])))


@given(trees)
def test_an_archive_holds_the_tree(tree):
    archive = pack(Node(path, data, mode) for path, (data, mode) in tree.items())
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        found = {
            member.name: (reader.extractfile(member).read(), member.mode)
            for member in reader
            if member.isfile()
        }
    assert found == tree


@given(trees)
def test_the_bytes_depend_on_the_tree_alone(tree):
    nodes = [Node(path, data, mode) for path, (data, mode) in tree.items()]
    assert pack(nodes) == pack(reversed(nodes))


def test_links_and_parents_are_members():
    archive = pack([Node("a/b/c", b"x"), Node("l", link="a/b")])
    with tarfile.open(fileobj=io.BytesIO(archive)) as reader:
        members = {member.name: member for member in reader}
    assert list(members) == ["a", "a/b", "a/b/c", "l"]
    assert members["a/b"].isdir()
    assert members["l"].linkname == "a/b"
    assert {(m.uid, m.gid, m.mtime) for m in members.values()} == {(1000, 1000, 1_700_000_000)}


@pytest.mark.parametrize("path", ["/a", "../a", "a/../../b", "a//b", "a/", "", ".", "./a"])
def test_a_path_outside_the_tree_is_refused(path):
    with pytest.raises(ValueError, match="relative path"):
        pack([Node(path)])


def test_a_path_given_twice_or_too_long_is_refused():
    with pytest.raises(ValueError, match="twice"):
        pack([Node("a"), Node("a", b"other")])
    with pytest.raises(
        ValueError, match=r"'a{101}': does not fit in a tar archive: name is too long"
    ):
        pack([Node("a" * 101)])
    with pytest.raises(ValueError, match=r"'a': does not fit .* linkname is too long"):
        pack([Node("a", link="b" * 101)])
    with pytest.raises(ValueError, match="does not fit in a tar archive"):
        pack([Node("\udc80")])


def test_a_long_path_keeps_its_place():
    path = "d" * 100 + "/" + "e" * 50 + "/" + "f" * 100
    with tarfile.open(fileobj=io.BytesIO(pack([Node(path, b"x")]))) as reader:
        assert reader.getnames()[-1] == path
