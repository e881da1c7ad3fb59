"""What a command writes is read whatever else reads from the same pipe."""

import os

from t1_sandbox._arena import command


def test_a_stream_with_nothing_to_read_is_still_open():
    stream, write = command._pipe(limit=4)

    assert not stream.read()
    assert stream.open
    os.write(write, b"abcdef")
    assert stream.read()
    assert (stream.data, stream.dropped, stream.open) == (b"abcd", 2, True)
    os.close(write)
    assert not stream.read()
    assert not stream.open
    os.close(stream.descriptor)


def test_a_discarded_pipe_with_nothing_to_read_is_kept_until_it_ends():
    stream, write = command._pipe(limit=4)
    discards = command.Discards()
    discards.add(stream)

    assert discards.read(stream.descriptor)
    os.write(write, b"abc")
    assert discards.read(stream.descriptor)
    assert stream.descriptor in discards
    os.close(write)
    assert not discards.read(stream.descriptor)
    assert stream.descriptor not in discards


def test_a_command_listens_to_its_pipes_until_they_end():
    request = {"report": False, "max_output_bytes": 4, "merge_stderr": False}
    started = command.Command(request, "/", reaper=None, discards=command.Discards())
    for stream, write in zip(started._streams, started._writes, strict=True):
        # a poll may report what another reader then takes
        assert started._read(stream.descriptor)
        os.write(write, b"abc")
        assert started._read(stream.descriptor)
        os.close(write)
        assert not started._read(stream.descriptor)
        os.close(stream.descriptor)
