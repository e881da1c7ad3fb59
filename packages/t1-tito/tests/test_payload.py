import dataclasses

import numpy as np
import pytest
from hypothesis import given

from t1_tito import PayloadError, assemble, gather
from t1_tito.testing import conversations


def labels(turns):
    """One row per token that names its own turn and index."""
    return [
        np.stack([np.full(one.length, number), np.arange(one.length)], axis=1)
        for number, one in enumerate(turns)
    ]


@given(conversations())
def test_rows_follow_their_tokens(turns):
    for chunk in assemble(turns).chunks:
        rows = gather(chunk, labels(turns))
        assert np.array_equal(rows[:, 0], chunk.source_turn)
        assert np.array_equal(rows[:, 1], chunk.source_index)


@given(conversations())
def test_token_ids_gathered_as_a_payload_reproduce_the_tokens(turns):
    for chunk in assemble(turns).chunks:
        assert np.array_equal(gather(chunk, [one.ids for one in turns]), chunk.tokens)


@given(conversations(max_turns=1))
def test_a_short_payload_is_named_by_position_or_filled(turns):
    (chunk,) = assemble(turns).chunks
    short = [rows[:-1] for rows in labels(turns)]
    with pytest.raises(PayloadError, match="pass fill=") as caught:
        gather(chunk, short)
    assert (caught.value.turn, caught.value.position) == (0, len(chunk) - 1)
    filled = gather(chunk, short, fill=-1)
    assert filled[-1].tolist() == [-1, -1]
    assert np.array_equal(filled[:-1], short[0])


@given(conversations(max_turns=3, splits=False))
def test_payloads_must_exist_and_agree(turns):
    (chunk,) = assemble(turns).chunks
    last = int(chunk.source_turn[-1])
    with pytest.raises(PayloadError, match="missing"):
        gather(chunk, labels(turns)[:last])
    mixed = labels(turns)
    mixed.append(mixed[0].astype(np.float32))
    two = dataclasses.replace(chunk, source_turn=np.r_[chunk.source_turn[:-1], len(turns)])
    if len(chunk) > 1:
        with pytest.raises(PayloadError, match="as in turn 0"):
            gather(two, mixed)
