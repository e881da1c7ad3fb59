"""A harness for the audit's tests: it re-spells, drops, cuts and goes back, at random."""

from random import Random

from hypothesis import strategies as st

from t1_tito import FinishReason, TokenBytes, Turn

PIECES = [b"a", b"b", b"c", b"ab", b"bc", b"abc", b" ", b"\n", b"\n\n", b"ca"]
PIECES += [None, None, None, b"", b"  "]
STOP, OPENER, THOUGHT = 10, 11, 12
TABLE = TokenBytes.from_tokens(PIECES, {STOP: "<stop>", OPENER: "<as>", THOUGHT: "<th>"})


def turn(prompt, completion, finish=FinishReason.STOP, logprobs=None, **options):
    values = [-0.5 - k for k in range(len(completion))] if logprobs is None else logprobs
    return Turn(prompt, completion, values, 0, 0, finish, **options)


def respelled(random, ids):
    """The ids with some stretches in other ids of the same bytes."""
    out = list(ids)
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(out) + 1)
        stretch = out[start : start + random.randint(1, 3)]
        if any(token in TABLE.special_text for token in stretch):
            continue
        text, spelled = TABLE.bytes_of(stretch), []
        while text:
            fitting = [i for i, piece in enumerate(PIECES) if piece and text.startswith(piece)]
            spelled.append(random.choice(fitting))
            text = text[len(PIECES[spelled[-1]]) :]
        out[start : start + len(stretch)] = spelled
    return out


def next_history(random, earlier, stream, scaffold, pool):
    """What a harness makes of T of the turn before, and what it adds."""
    seam = earlier.prompt_length
    without_scaffold = stream[: max(1, seam - len(scaffold))] + stream[seam:]
    change = random.choices(
        [
            lambda: stream,
            lambda: respelled(random, stream),
            lambda: stream[: random.randint(1, len(stream))],
            lambda: without_scaffold,
            lambda: stream[:-1] or stream,
            lambda: [random.choice(pool), *stream],
            lambda: respelled(random, without_scaffold),
        ],
        [6, 6, 2, 2, 2, 1, 1],
    )[0]
    return list(change()) + [random.choice(pool) for _ in range(random.randint(0, 4))]


def random_turns(random):
    scaffold = random.choice([[], [THOUGHT], [THOUGHT, 7]])
    every = list(range(len(PIECES)))
    pool = random.choice([every, [0, 1, 3, 6, STOP], [0, 1, 2, 3, 4, 5, STOP, 7]])
    turns, stream = [], []
    for _ in range(random.randint(1, 6)):
        history = [random.choice(pool) for _ in range(random.randint(1, 4))]
        if turns:
            history = next_history(random, turns[-1], stream, scaffold, pool)
        prompt = history + (scaffold if random.random() < 0.8 else [])
        completion = [random.choice(pool) for _ in range(random.randint(0, 5))]
        finish = FinishReason.LENGTH
        if random.random() < 0.6:
            completion.append(STOP)
            finish = FinishReason.STOP
        base = 0
        if turns and random.random() < 0.5:
            shared = 0
            while shared < min(len(prompt), len(stream)) and prompt[shared] == stream[shared]:
                shared += 1
            base = random.randint(0, shared)
        logprobs = [-random.random() for _ in completion]
        turns.append(turn(prompt[base:], completion, finish, logprobs, base_length=base))
        stream = prompt + completion
    return turns


def trials():
    """Turns of one trial; about half of the prompts change what came before."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_turns(Random(seed)))
