"""Harbor's rollout details as turns, and back. Follows harbor 0.26 (`RolloutDetail`).

A rollout detail is one chat, as lists with one entry per turn: `prompt_token_ids` (whole prompts),
`completion_token_ids`, `logprobs`, and `extra` with one such list per field. Harbor fills each list
by itself, whenever a reply has the field, so that one reply without it shifts all later entries of
one list alone. Lists of different lengths are therefore refused; nothing can tell which turn is
missing.

`AgentContext.rollout_details` holds the agent's chat first, then one detail per subagent call. Each
becomes a trial of its own. After a summary the chat goes on in the same lists; the assembler sees
that its prompts no longer continue each other, and splits.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from t1_tito.turn import FinishReason, Turn

from ._fields import Values, field, is_list, list_in, refused, told_lengths, turn_at

__all__ = ["LOSSY", "to_rollout_detail", "turns_from_rollout_detail"]

LOSSY: tuple[tuple[str, str], ...] = (
    ("version_sent, version_received", "not recorded by Harbor; the caller gives one version"),
    ("finish_reason", "not recorded by Harbor; told from the last id where stop_ids are given"),
    ("synthetic_length, base_length", "not recorded by Harbor; prompts are whole"),
    ("truncated turns", "Terminus-2 records no ids of a completion that ran into its limit"),
    ("extra", "payloads: gather them by turn with t1_tito.gather"),
)
"""What of a turn a rollout detail does not hold, and the reverse, and why."""

_LISTS = ("prompt_token_ids", "completion_token_ids", "logprobs")
_ASK = "set collect_rollout_details=true for the agent"


def turns_from_rollout_detail(
    detail: object, *, version: int, stop_ids: Collection[int] | None = None
) -> list[Turn]:
    """The turns of one rollout detail, in order.

    Args:
        detail: a `RolloutDetail`.
        version: weight version of the whole chat.
        stop_ids: ids that end a completion; one that ends in another id counts as cut by a limit.
            Where left out, every completion counts as stopped.

    Raises:
        AdapterError: a list is missing, or two disagree in length, in all or within a turn.
        TurnError: an id or log-probability cannot be one; it names the turn.
    """
    columns = {name: list_in(detail, name, "rollout detail", _ASK) for name in _LISTS}
    _check_columns({**columns, **_extra(detail)})
    turns: list[Turn] = []
    for index, (prompt, completion, logprobs) in enumerate(zip(*columns.values(), strict=True)):
        _check_turn(index, completion, logprobs)
        cut = stop_ids is not None and (not len(completion) or completion[-1] not in stop_ids)
        reason = FinishReason.LENGTH if cut else FinishReason.STOP
        turns.append(turn_at(index, prompt, completion, logprobs, version, version, reason))
    return turns


def to_rollout_detail(turns: Sequence[Turn]) -> dict[str, Any]:
    """The rollout detail of turns whose prompts are given whole.

    Raises:
        AdapterError: a turn says only what its prompt adds (base_length > 0).
    """
    for index, turn in enumerate(turns):
        check_whole(f"turn {index}", turn)
    return {
        "prompt_token_ids": [turn.prompt_ids.tolist() for turn in turns],
        "completion_token_ids": [turn.completion_ids.tolist() for turn in turns],
        "logprobs": [turn.logprobs.tolist() for turn in turns],
    }


def check_whole(where: str, turn: Turn) -> None:
    """Check that a turn holds its whole prompt.

    Raises:
        AdapterError: it does not.
    """
    if turn.base_length:
        raise refused(
            where,
            f"prompt_ids holds only what follows the first {turn.base_length} ids; "
            "this format wants whole prompts",
            field="prompt_ids",
        )


def _extra(detail: object) -> dict[str, Values]:
    extra: Mapping[str, Any] = field(detail, "extra") or {}
    return {f"extra.{name}": values for name, values in extra.items()}


def _check_columns(columns: Mapping[str, Values]) -> None:
    if len({len(values) for values in columns.values()}) > 1:
        turn = _first_misfit(columns)
        raise refused(
            "rollout detail",
            f"{told_lengths(columns)} turns; a turn without one of them shifted the later ones, at "
            f"turn {turn} at the latest",
            position=turn,
        )


def _first_misfit(columns: Mapping[str, Values]) -> int:
    """The first turn whose completion and log-probabilities differ in length, or are not there."""
    completions, logprobs = columns["completion_token_ids"], columns["logprobs"]
    shortest = min(len(values) for values in columns.values())
    for turn in range(shortest):
        if len(completions[turn]) != len(logprobs[turn]):
            return turn
    return shortest


def _check_turn(index: int, completion: object, logprobs: object) -> None:
    if logprobs is None or not is_list(logprobs):
        raise refused(f"turn {index}", f"logprobs is missing; {_ASK}", field="logprobs")
    if not is_list(completion) or len(completion) != len(logprobs):
        length = len(completion) if is_list(completion) else "no"
        raise refused(
            f"turn {index}",
            f"{length} completion_token_ids and {len(logprobs)} logprobs",
            field="logprobs",
        )
