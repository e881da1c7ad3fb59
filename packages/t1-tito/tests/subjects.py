"""Subjects for conformance runs: what stacks do to turns, in miniature."""

from t1_tito import Turn, assemble


def own(turns, token_bytes):
    return assemble([Turn(**turn) for turn in turns], token_bytes)


def per_turn(turns):
    """One sample per turn."""
    return [sample(turn["prompt_ids"], turn["completion_ids"], turn["logprobs"]) for turn in turns]


def strict_merge(turns):
    """Goes on with a sample while the prompt repeats every id, else opens one."""
    samples = []
    for turn in turns:
        last = samples[-1] if samples else None
        prompt = turn["prompt_ids"]
        if last is None or prompt[: len(last["tokens"])] != last["tokens"]:
            samples.append(sample(prompt, turn["completion_ids"], turn["logprobs"]))
            continue
        added = sample(prompt[len(last["tokens"]) :], turn["completion_ids"], turn["logprobs"])
        samples[-1] = {name: last[name] + added[name] for name in last}
    return samples


def reencoding(turns):
    """Trains the last prompt's own spelling of every completion."""
    merged = strict_merge(turns)
    return [
        {
            **one,
            "tokens": [
                token if not loss else canonical(token)
                for token, loss in zip(one["tokens"], one["loss_mask"], strict=True)
            ],
        }
        for one in merged
    ]


def canonical(token):
    """Some other id, as re-encoding may give."""
    return token ^ 1


def overwriting(turns):
    """Lays the latest prompt over the sample, without loss where it differs."""
    samples = []
    for turn in turns:
        prompt = turn["prompt_ids"]
        added = sample(prompt, turn["completion_ids"], turn["logprobs"])
        if samples and len(prompt) >= len(samples[-1]["tokens"]):
            last = samples[-1]
            for j, token in enumerate(last["tokens"]):
                if token == prompt[j] and last["loss_mask"][j]:
                    added["loss_mask"][j] = True
                    added["logprobs"][j] = last["logprobs"][j]
            samples[-1] = added
        else:
            samples.append(added)
    return samples


def misaligned(turns):
    """Log-probabilities come one position late."""
    return [{**one, "logprobs": [0.0, *one["logprobs"][:-1]]} for one in strict_merge(turns)]


def forgetful(turns):
    """Trains the last turn only."""
    return per_turn(turns)[-1:]


def contextless(turns):
    """Forgets the first id of every prompt."""
    return [
        {name: values[1:] for name, values in one.items()}
        for one in per_turn(turns)
        if len(one["tokens"]) > 1
    ]


def raising(turns):
    if len(turns) > 1:
        raise RuntimeError("more than one turn")
    return per_turn(turns)


def ragged(turns):
    return [{**one, "loss_mask": one["loss_mask"][:-1]} for one in per_turn(turns)]


def sample(prompt, completion, logprobs):
    return {
        "tokens": [*prompt, *completion],
        "loss_mask": [False] * len(prompt) + [True] * len(completion),
        "logprobs": [0.0] * len(prompt) + list(logprobs),
    }
