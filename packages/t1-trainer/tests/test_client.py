"""The trainer's side of the rollout process: its death is one clear error, whenever it comes."""

import os
import socket
import time
from multiprocessing.connection import Connection

import pytest

from t1_trainer.errors import RolloutFailed
from t1_trainer.publish import publish_actor
from t1_trainer.rollout.client import RolloutClient
from t1_trainer.rollout.messages import Discard

pytestmark = pytest.mark.timeout(60)  # the defect is a wait without end


@pytest.fixture
def dead(tmp_path):
    """A client whose process was killed before it answered anything."""
    client = RolloutClient(None, tmp_path / "rollout.log")
    os.kill(client.pid, 9)
    yield client
    client.close()


def test_every_caller_after_the_death_is_told(dead):
    with pytest.raises(RolloutFailed, match="ended with signal SIGKILL"):
        dead.wait()
    for _ in range(2):
        with pytest.raises(RolloutFailed, match="ended with signal SIGKILL"):
            dead.call(Discard())


def test_an_answer_is_timed_when_it_arrives_and_not_when_it_is_read(dead):
    began = time.monotonic()
    with pytest.raises(RolloutFailed):
        dead.wait()
    dead._reader.join()
    seen = time.monotonic()
    # nobody looks for a while
    while time.monotonic() < seen + 0.05:
        pass
    with pytest.raises(RolloutFailed):
        dead.call(Discard())
    sent, arrived = dead.answered
    assert began < sent
    assert arrived < seen + 0.05


def test_publishing_to_a_dead_process_fails(dead, make_model):
    with pytest.raises(RolloutFailed):
        dead.wait()
    with pytest.raises(RolloutFailed, match="ended with signal SIGKILL"):
        publish_actor(dead, make_model(), 1)


def test_a_death_inside_a_message_is_told_too(dead):
    with pytest.raises(RolloutFailed):
        dead.wait()
    dead._reader.join()
    dead._answers.get()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall((100).to_bytes(4, "big") + b"only this")
    dead._connection.close()
    dead._connection = Connection(ours.detach())
    dead._read()
    with pytest.raises(RolloutFailed, match="ended with signal SIGKILL"):
        dead.call(Discard())
