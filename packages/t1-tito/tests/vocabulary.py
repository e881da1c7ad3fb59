"""A vocabulary small enough to read, with more than one spelling of most texts."""

from hypothesis import strategies as st

from t1_tito import FinishReason, TokenBytes, Turn

PIECES = [
    b"a", b"b", b"c", b"d", b"ab", b"cd", b"abc", b"bc", b"cdx", b"x", b" ", b"\n", b"\n\n",
    b"\xf0\x9f", b"\xab\xa0", b"\xef\xbf\xbd", b"e", b"\xcc\x81", b"\xc3\xa9", b"<", b"end>",
]  # fmt: skip
NAMES = [
    "a",
    "b",
    "c",
    "d",
    "ab",
    "cd",
    "abc",
    "bc",
    "cdx",
    "x",
    "space",
    "nl",
    "nlnl",
    "half",
    "rest",
    "fffd",
    "e",
    "acute",
    "eacute",
    "lt",
    "endgt",
]
SPECIAL = {21: "<end>", 22: "<user>", 23: "<assistant>", 24: "<think>", 25: "</think>"}

TABLE = TokenBytes.from_tokens(PIECES + [None] * len(SPECIAL), SPECIAL)
_IDS = {name: i for i, name in enumerate(NAMES)} | {
    text.strip("<>/") if "/" not in text else "nothink": i for i, text in SPECIAL.items()
}


def ids(text):
    """Ids by name: ids("user a b end")."""
    return [_IDS[name] for name in text.split()]


def turn(prompt, completion, *, base_length=0, finish=FinishReason.STOP, version=0, received=None):
    """A turn by names, with a log-probability that tells every sampled position."""
    sampled = ids(completion)
    logprobs = [-1.0 - i for i in range(len(sampled))]
    received = version if received is None else received
    return Turn(ids(prompt), sampled, logprobs, version, received, finish, base_length=base_length)


# ids 0..8 spell ordinary text, 9 and 10 are special; no token is empty, which would leave the
# edges of a span ambiguous
_PIECES = [b"a", b"b", b"ab", b"ba", b"aab", b" ", b"  ", b"\n", b"a "]
SMALL = TokenBytes.from_tokens([*_PIECES, None, None], {9: "<end>", 10: "<x>"})
_PAIRS = {(0, 1): 2, (1, 0): 3, (0, 2): 4, (5, 5): 6, (0, 5): 8}
_TOKENS = st.lists(st.integers(0, 10), max_size=5)


def respelled(tokens, draw):
    """The tokens with some neighbours merged and some tokens cut, as `draw` likes."""
    whole = {merged: pair for pair, merged in _PAIRS.items()}
    result = []
    for token in tokens:
        if result and (result[-1], token) in _PAIRS and draw(st.booleans()):
            result[-1] = _PAIRS[result[-1], token]
        elif token in whole and draw(st.booleans()):
            result += whole[token]
        else:
            result.append(token)
    return result


@st.composite
def harness_turns(draw):
    """Turns of a harness that drops scaffold and tail, respells, cuts and changes what it likes."""
    scaffold = draw(st.lists(st.integers(0, 10), min_size=1, max_size=4))
    prompt = draw(_TOKENS) + scaffold
    turns, before = [], None
    for _ in range(draw(st.integers(2, 4))):
        if before is not None:
            earlier, sampled = before
            kept = earlier[: len(earlier) - draw(st.integers(0, len(scaffold)))]
            said = sampled[: len(sampled) - draw(st.integers(0, min(3, len(sampled))))]
            if draw(st.booleans()):
                said = respelled(said, draw)
            prompt = kept + said
            if draw(st.integers(0, 9)) == 0:
                prompt = respelled(prompt, draw)[: draw(st.integers(1, 12))]
            prompt = prompt + draw(_TOKENS) + scaffold
        completion = draw(_TOKENS)
        base = 0
        if before is not None:
            whole = before[0] + before[1]
            shared = next(
                (
                    j
                    for j, pair in enumerate(zip(whole, prompt, strict=False))
                    if len(set(pair)) == 2
                ),
                min(len(whole), len(prompt)),
            )
            base = draw(st.sampled_from([0, shared, draw(st.integers(0, shared))]))
        logprobs = [-0.5] * len(completion)
        turns.append(Turn(prompt[base:], completion, logprobs, 0, 0, "length", base_length=base))
        before = prompt, completion
    return turns
