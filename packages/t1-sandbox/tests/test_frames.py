"""The wire format refuses what is out of bounds and loses nothing."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_sandbox import frames

_headers = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()))


@given(header=_headers, payload=st.binary(max_size=2000))
def test_a_frame_arrives_as_it_was_sent(header, payload):
    left, right = socket.socketpair()
    with left, right:
        frames.send(left, header, payload)
        frame = frames.receive(right)

    assert (frame.header, frame.payload, frame.descriptors) == (header, payload, [])


@given(payload=st.binary(max_size=50), cut=st.integers(1, 60))
def test_a_frame_cut_short_is_an_error_and_a_clean_end_is_not(payload, cut):
    whole = frames.encode({"a": 1}, len(payload)) + payload
    left, right = socket.socketpair()
    with left, right:
        left.sendall(whole[: min(cut, len(whole) - 1)])
        left.shutdown(socket.SHUT_WR)
        with pytest.raises(ConnectionError):
            frames.receive(right)
        assert frames.receive(right) is None


@pytest.mark.parametrize("prefix", [b"\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\2\xff\xff\xff\xff{}"])
def test_lengths_out_of_bounds_are_refused_before_reading(prefix):
    left, right = socket.socketpair()
    with left, right:
        left.sendall(prefix)
        with pytest.raises(ValueError, match="expected at most"):
            frames.receive(right)


def test_a_header_that_is_not_an_object_is_refused():
    with pytest.raises(ValueError, match="JSON object"):
        frames.decode_header(b"[]")


@given(parts=st.lists(st.binary(max_size=9)))
def test_split_is_the_inverse_of_join(parts):
    assert frames.split(b"".join(parts), [len(part) for part in parts]) == parts


@pytest.mark.parametrize("sizes", [[1], [4], [5, -2]])
def test_sizes_that_do_not_add_up_are_refused(sizes):
    with pytest.raises(ValueError, match="parts of"):
        frames.split(b"abc", sizes)


def test_descriptors_that_arrive_are_not_inherited_by_commands():
    left, right = socket.socketpair()
    with left, right:
        socket.send_fds(left, [b"x"], [left.fileno()])
        _, (descriptor,) = frames.receive_descriptors(right, 1)
    with socket.socket(fileno=descriptor) as received:
        assert not received.get_inheritable()
