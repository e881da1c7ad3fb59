import pytest

from t1_tito import FinishReason, Turn, TurnError, retokenization_drift


def encode(text):
    """Longest match over the pieces a, b and ab, as ids 0, 1 and 2."""
    ids = []
    while text:
        piece = "ab" if text.startswith("ab") else text[0]
        ids.append(["a", "b", "ab"].index(piece))
        text = text[len(piece) :]
    return ids


def decode(ids):
    return "".join(["a", "b", "ab"][token] for token in ids)


def turn(completion):
    return Turn([0], completion, [-1.0] * len(completion), 0, 0, FinishReason.STOP)


def test_a_completion_sampled_in_other_pieces_than_encoding_gives_is_counted():
    report = retokenization_drift([turn([2]), turn([0, 1]), turn([1, 0])], encode, decode)
    assert (report.turns, report.drifted) == (3, (1,))
    assert report.share == pytest.approx(1 / 3)


def test_no_turn_is_an_error():
    with pytest.raises(TurnError):
        retokenization_drift([], encode, decode)
