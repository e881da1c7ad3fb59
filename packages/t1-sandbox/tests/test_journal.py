"""The journal survives a crash at every byte, and says what may still hold something."""

import resource
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from t1_sandbox import Event, Journal, JournalError, read_journal

_entries = st.lists(st.tuples(st.sampled_from(list(Event)), st.text(), st.text()), max_size=6)


def _write(path, entries):
    journal = Journal(path)
    for event, key, detail in entries:
        journal.record(event, key, detail)
    journal.close()
    journal.close()
    return journal.records


@given(entries=_entries, more=_entries, place=st.integers(0, 2**16))
def test_a_journal_cut_at_any_byte_loses_at_most_its_last_line(entries, more, place):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "journal.jsonl")
        records = _write(path, entries)
        whole = path.read_bytes()
        cut = place % (len(whole) + 1)  # records have the time in them: lengths vary
        path.write_bytes(whole[:cut])
        complete = whole[:cut].count(b"\n")

        contents = read_journal(path)
        assert list(contents.records) == records[:complete]
        assert contents.torn == whole[:cut].rpartition(b"\n")[2]

        added = _write(path, more)
        assert list(read_journal(path).records) == records[:complete] + added
        assert read_journal(path).torn == b""


def test_a_damaged_complete_line_is_an_error_with_its_number(tmp_path):
    path = tmp_path / "journal.jsonl"
    _write(path, [(Event.INTENT, "a", ""), (Event.CREATED, "a", "")])
    lines = path.read_bytes().splitlines()
    for damage in (b'{"key": "a"}', lines[0][:-1], b"7", lines[0].replace(b"INTENT", b"HOPE"),
                   lines[0].replace(b'version": 1', b'version": 2')):  # fmt: skip
        path.write_bytes(b"\n".join([damage, lines[1], b""]))
        with pytest.raises(JournalError, match=r"journal.jsonl:1: not a journal record"):
            read_journal(path)


def test_unfinished_leases_are_those_that_may_still_hold_something(tmp_path):
    path = tmp_path / "journal.jsonl"
    steps = {
        "intended": ["INTENT"],
        "created": ["INTENT", "CREATED"],
        "deleting": ["INTENT", "CREATED", "DELETING"],
        "stuck": ["INTENT", "CREATED", "DELETING", "FAILED"],
        "deleted": ["INTENT", "CREATED", "DELETING", "DELETED"],
        "retried": ["INTENT", "CREATED", "DELETING", "FAILED", "DELETED"],
        "refused": ["INTENT", "FAILED"],
        "again": ["INTENT", "CREATED", "DELETING", "DELETED", "INTENT"],
    }
    _write(path, [(Event(step), key, "") for key, events in steps.items() for step in events])

    unfinished = ["intended", "created", "deleting", "stuck", "again"]
    assert read_journal(path).unfinished() == unfinished


def test_a_record_that_only_half_fits_is_taken_back(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.record(Event.INTENT, "a")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # the kernel then writes what fits, as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, hard))
    try:
        with pytest.raises(OSError, match="No space left") as refused:
            journal.record(Event.CREATED, "a")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert refused.value.filename == str(path), "which of all the files is full"
    assert path.read_bytes() == before
    journal.record(Event.DELETING, "a")
    journal.close()
    assert list(read_journal(path).records) == journal.records
    assert [record.event for record in journal.records] == [Event.INTENT, Event.DELETING]


def test_without_a_path_records_are_kept_in_memory():
    journal = Journal()
    journal.record(Event.INTENT, "a")

    assert [record.key for record in journal.records] == ["a"]
