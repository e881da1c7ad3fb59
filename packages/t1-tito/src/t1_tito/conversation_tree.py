"""The tree of sampled turns: which stored turn does a replayed history end in.

A *node* is one sampled turn: the messages that were appended for it, the ids that these became, what
was sampled, and the assistant message that the harness got for it. The path from a root to a node is
a history; harnesses that go back, or try again, grow branches. Messages are compared once per
replay, ids never.

The tree renders and encodes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from .chat_tokenizer import Message
from .turn import Ids, Turn


@dataclass(eq=False, slots=True)
class Node:
    """One sampled turn and its place in the tree.

    Attributes:
        index: number of the turn in order of recording.
        parent: the turn that it continues, None where it opens a conversation.
        appended: messages between the parent's assistant message and this one's.
        turn: the ids; `turn.base_length` is the length of the parent's history.
        message: the assistant message that the harness got.
        children: turns that continue it, in order of recording.
    """

    index: int
    parent: "Node | None"
    appended: tuple[Message, ...]
    turn: Turn
    message: Message
    children: list["Node"] = field(default_factory=list["Node"])

    def path(self) -> list["Node"]:
        """The nodes from the root to this one."""
        nodes: list[Node] = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return nodes[::-1]

    def history_ids(self) -> Ids:
        """Every id up to the end of this turn, int32 [turn.length]."""
        parts = [
            ids for node in self.path() for ids in (node.turn.prompt_ids, node.turn.completion_ids)
        ]
        return np.concatenate(parts)

    def last_ids(self, count: int) -> Ids:
        """The last `count` ids of the history, or all if there are fewer, in O(count)."""
        parts: list[Ids] = []
        node: Node | None = self
        while node is not None and count > 0:
            for ids in (node.turn.completion_ids, node.turn.prompt_ids):
                parts.append(ids[max(0, ids.size - count) :] if count else ids[:0])
                count -= parts[-1].size
            node = node.parent
        return np.concatenate(parts[::-1])


@dataclass(frozen=True)
class Match:
    """Where a replayed history ends in the tree.

    Attributes:
        node: the deepest turn whose history it starts with, None where there is none.
        length: how many of its messages that history holds.
    """

    node: Node | None
    length: int


class ConversationTree:
    """All sampled turns of a trial.

    Attributes:
        nodes: in order of recording.
        compared_messages: comparisons of a stored with a replayed message so far.
    """

    def __init__(self, same: Callable[[Message, Message], bool]) -> None:
        self.nodes: list[Node] = []
        self.compared_messages = 0
        self._roots: list[Node] = []
        self._same = same

    def add(
        self, parent: Node | None, appended: Sequence[Message], turn: Turn, message: Message
    ) -> Node:
        """Add a sampled turn behind its parent."""
        node = Node(len(self.nodes), parent, tuple(appended), turn, message)
        self.nodes.append(node)
        (self._roots if parent is None else parent.children).append(node)
        return node

    def match(self, messages: Sequence[Message]) -> Match:
        """The deepest turn whose history the messages start with; of equals the latest recorded."""
        best = Match(None, 0)
        open_ends = [best]
        while open_ends:
            end = open_ends.pop()
            if end.length > best.length:
                best = end
            # the latest is looked at first, so it is put on the stack last
            for child in self._roots if end.node is None else end.node.children:
                length = end.length + len(child.appended) + 1
                if self._continues(child, messages[end.length : length]):
                    open_ends.append(Match(child, length))
        return best

    def leaf_paths(self) -> Iterator[tuple[list[Node], bool]]:
        """For each leaf in order of recording: the nodes no earlier leaf had, and whether it is the first.

        Together they are every node once.
        """
        seen: set[int] = set()
        for leaf in [node for node in self.nodes if not node.children]:
            fresh = [node for node in leaf.path() if node.index not in seen]
            yield fresh, not seen
            seen.update(node.index for node in fresh)

    def _continues(self, node: Node, messages: Sequence[Message]) -> bool:
        stored = [*node.appended, node.message]
        if len(messages) != len(stored):
            return False
        if stored == list(messages):
            # most histories are replayed as they were, and equal messages match under every rule
            self.compared_messages += len(stored)
            return True
        for ours, theirs in zip(stored, messages, strict=True):
            self.compared_messages += 1
            if not self._same(ours, theirs):
                return False
        return True
