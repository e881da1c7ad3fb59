"""Invariants of things that act: assemblers, payload gathering, templates, sessions, adapters.

    append      adding a turn changes no position that was there
    stream      one by one, all at once, through snapshots and as deltas: the same trial
    work        a delta turn costs what it adds, whatever came before
    rows        a payload row is its token's own, or a declared neighbour's where no loss follows
    template    what was rendered stays when messages follow, as text and as ids
    seam        appended ids are those of the whole text, or appending is refused
    inert       text of users and tools yields no control id
    roundtrip   a sample of another format comes back from ours as it was

Each takes the thing concerned and raises `FidelityError` with the invariant's name.
"""

import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from t1_tito.boundary import Boundary
from t1_tito.errors import FidelityError, SeamError
from t1_tito.payload import Gathered
from t1_tito.token_bytes import TokenBytes
from t1_tito.trial import Chunk, Trial
from t1_tito.turn import Turn

from .reference import rows_of_chunk
from .simulator import Chat, Message, as_delta

_BYTES_PER_TOKEN = 256
_BYTES_PER_TURN = 8192


class Assembling(Protocol):
    """What the invariants of an assembler call; `t1_tito.Assembler` has it."""

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """The chunks so far."""
        ...

    def add(self, turn: Turn) -> Boundary | None:
        """Add a turn."""
        ...

    def finish(self) -> Trial:
        """The trial so far."""
        ...

    def snapshot(self) -> "Assembling":
        """An independent copy."""
        ...


def check_append(make: Callable[[], Assembling], turns: Iterable[Turn]) -> None:
    """Adding a turn changes no position that was there; a closed chunk stays as it is.

    Raises:
        FidelityError: "append".
    """
    assembler = make()
    before: list[list[object]] = []
    for turn in turns:
        assembler.add(turn)
        after: list[list[object]] = [list(rows_of_chunk(chunk)) for chunk in assembler.chunks]
        for c, rows in enumerate(before):
            closed = c + 1 < len(before) or len(after) > len(before)
            kept = after[c] if closed else after[c][: len(rows)]
            if kept != rows:
                j = _first_difference(kept, rows)
                raise FidelityError("append", c, j, "a position changed when a turn was added")
        before = after


def check_stream(make: Callable[[], Assembling], turns: Sequence[Turn]) -> None:
    """A trial does not depend on how its turns come in.

    Raises:
        FidelityError: "stream"; names the way that gave another trial.
    """
    expected = _added(make(), turns)
    ways: dict[str, Trial] = {"deltas": _added(make(), as_delta(turns))}
    for cut in range(1, len(turns)):
        original = make()
        _added(original, turns[:cut])
        twin = original.snapshot()
        # what is done to the one must not show in the other
        ways[f"the original after a snapshot at turn {cut}"] = _added(original, turns[cut:])
        ways[f"a snapshot at turn {cut}"] = _added(twin, turns[cut:])
    for way, trial in ways.items():
        if not _same(trial, expected):
            raise FidelityError("stream", None, None, f"{way} gave another trial")


def check_work(make: Callable[[], Assembling], turns: Sequence[Turn]) -> None:
    """Turns given as deltas cost what they add: memory and reported reads stay linear.

    Memory is what numpy and Python allocate at the peak of every `add`; whatever copies or compares
    the history allocates in proportion to it. Some hundred turns are needed to tell.

    Raises:
        FidelityError: "work".
    """
    assembler = make()
    allocated = tokens = 0
    tracemalloc.start()
    try:
        for number, turn in enumerate(turns):
            added = turn.prompt_ids.size + turn.completion_ids.size
            tokens += added
            tracemalloc.reset_peak()
            held, _ = tracemalloc.get_traced_memory()
            boundary = assembler.add(turn)
            allocated += tracemalloc.get_traced_memory()[1] - held
            if boundary is not None and boundary.cost > _BYTES_PER_TOKEN * added + _BYTES_PER_TURN:
                raise FidelityError(
                    "work", None, None, f"turn {number} read {boundary.cost} for {added} new ids"
                )
    finally:
        tracemalloc.stop()
    limit = _BYTES_PER_TOKEN * tokens + _BYTES_PER_TURN * len(turns)
    if allocated > limit:
        raise FidelityError(
            "work", None, None, f"{allocated} bytes for {tokens} ids in {len(turns)} deltas"
        )


def check_rows(
    chunk: Chunk,
    per_turn: Sequence[npt.NDArray[Any]],
    gathered: Gathered,
    *,
    first_index: Sequence[int] | None = None,
) -> None:
    """A gathered row is its token's own, or a declared neighbour's where no loss follows.

    Args:
        chunk: the chunk.
        per_turn: the rows of every turn.
        gathered: what was gathered with missing="neighbour".
        first_index: for each turn, the index in its tokens of its first row.

    Raises:
        FidelityError: "rows".
    """
    if gathered.rows.shape[0] != len(chunk):
        raise FidelityError(
            "rows", None, None, f"{len(gathered.rows)} rows for {len(chunk)} tokens"
        )
    declared = set(gathered.placeholders.tolist())
    for j in range(len(chunk)):
        i = int(chunk.source_turn[j])
        k = int(chunk.source_index[j]) - (first_index[i] if first_index is not None else 0)
        if 0 <= k < len(per_turn[i]):
            if j in declared or not np.array_equal(gathered.rows[j], per_turn[i][k]):
                raise FidelityError("rows", None, j, f"row {k} of turn {i} is not what stands here")
        elif j not in declared:
            raise FidelityError("rows", None, j, "has no row of its own and is not declared")
        elif j + 1 < len(chunk) and chunk.loss_mask[j + 1]:
            raise FidelityError("rows", None, j, "a neighbour's row predicts a token with loss")


def check_template(chat: Chat, messages: Sequence[Message]) -> None:
    """What a template rendered stays when messages follow, as text and as ids.

    Messages are taken as they come in one trial: an assistant's alone, others in groups.

    Raises:
        FidelityError: "template"; the position is the first message that changes what was before.
    """
    ends = [
        k
        for k in range(1, len(messages) + 1)
        if k == len(messages) or "assistant" in (messages[k - 1]["role"], messages[k]["role"])
    ]
    for k, after in pairwise(ends):
        opens = messages[k]["role"] == "assistant"
        whole = _rendered(chat, messages[:after])
        for shorter in (_rendered(chat, messages[:k]), _rendered(chat, messages[:k], opens=opens)):
            if not whole.startswith(shorter):
                raise FidelityError("template", None, k, f"text changes: {whole[-120:]!r}")
            ids = _encoded(chat, shorter)
            if _encoded(chat, whole)[: len(ids)] != ids:
                raise FidelityError("template", None, k, "ids change although the text stays")


def check_seam(
    append: Callable[[list[int], str], Sequence[int]], chat: Chat, stored: Sequence[int], text: str
) -> None:
    """Ids appended to stored ids are those that end the encoding of the whole text.

    Args:
        append: ids of a text behind stored ids; raises `SeamError` to refuse.
        chat: encodes text.
        stored: the stored ids, in the tokenizer's own spelling or not.
        text: what is appended.

    Raises:
        FidelityError: "seam"; the position counts from the first appended id.
    """
    ids = [int(token) for token in stored]
    try:
        appended = [int(token) for token in append(ids, text)]
    except SeamError:
        return
    whole = _encoded(chat, chat.token_bytes.bytes_of(ids).decode() + text)
    expected = whole[len(whole) - len(appended) :] if appended else []
    if appended != expected:
        j = _first_difference(appended, expected)
        raise FidelityError("seam", None, j, f"appended {appended}, the whole text has {expected}")
    own_spelling = _encoded(chat, chat.token_bytes.bytes_of(ids).decode()) == ids
    if own_spelling and len(whole) != len(ids) + len(appended):
        raise FidelityError(
            "seam", None, 0, f"{len(whole) - len(ids)} ids follow, not {len(appended)}"
        )


def check_inert(
    prompt_of: Callable[[str], Sequence[int]], token_bytes: TokenBytes, content: str
) -> None:
    """Text of a user or a tool yields no control id.

    Args:
        prompt_of: the ids of a prompt in which a text is said; raises `SeamError` to refuse it.
        token_bytes: the bytes behind every id.
        content: the text, with literals of control tokens.

    Raises:
        FidelityError: "inert"; the position is that of the first control id too many.
    """
    plain = [int(t) for t in prompt_of("x") if int(t) in token_bytes.special_text]
    try:
        ids = [int(token) for token in prompt_of(content)]
    except SeamError:
        return
    places = [j for j, token in enumerate(ids) if token in token_bytes.special_text]
    control = [ids[j] for j in places]
    if control != plain:
        first = _first_difference(control, plain)
        position = places[first] if first < len(places) else len(ids)
        raise FidelityError("inert", None, position, f"control ids {control}, should be {plain}")


def check_roundtrip(
    there: Callable[[Any], Mapping[str, Any]],
    back: Callable[[Mapping[str, Any]], Any],
    sample: Mapping[str, Any],
    *,
    lossy: Iterable[str] = (),
) -> None:
    """A sample of another format comes back from ours as it was, but for its lossy fields.

    Args:
        there: from ours to the other format.
        back: from the other format to ours.
        sample: of the other format.
        lossy: names of fields that ours cannot hold.

    Raises:
        FidelityError: "roundtrip"; names the field.
    """
    returned = there(back(sample))
    for name in sample.keys() - set(lossy):
        if name not in returned or not _equal(returned[name], sample[name]):
            raise FidelityError(
                "roundtrip", None, None, f"{name} was {sample[name]!r}, is {returned.get(name)!r}"
            )


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return np.array_equal(np.asarray(left), np.asarray(right))
    return bool(left == right)


def _first_difference(left: Sequence[object], right: Sequence[object]) -> int:
    for j, (x, y) in enumerate(zip(left, right, strict=False)):
        if x != y:
            return j
    return min(len(left), len(right))


def _added(assembler: Assembling, turns: Iterable[Turn]) -> Trial:
    for turn in turns:
        assembler.add(turn)
    return assembler.finish()


def _same(left: Trial, right: Trial) -> bool:
    def view(trial: Trial) -> object:
        decided = [
            (b.case, b.reason, b.scaffold_dropped, b.tail_dropped, b.span, b.context_start)
            for b in trial.boundaries
        ]
        return [list(rows_of_chunk(chunk)) for chunk in trial.chunks], decided, trial.turns

    return view(left) == view(right)


def _rendered(chat: Chat, messages: Sequence[Message], *, opens: bool = False) -> str:
    plain = [dict(message) for message in messages]
    text = chat.apply_chat_template(plain, tools=None, tokenize=False, add_generation_prompt=opens)
    return str(text)


def _encoded(chat: Chat, text: str) -> list[int]:
    return [int(token) for token in chat.encode(text, add_special_tokens=False)]
