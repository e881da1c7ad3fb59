"""The prompt of a session: stored ids by reference, and the new ones behind them."""

from dataclasses import dataclass, field

import numpy as np

from .chat_tokenizer import Message
from .conversation_tree import Node
from .seam import SeamProof
from .turn import Ids


@dataclass(frozen=True, eq=False)
class Prompt:
    """What to send to the engine next.

    Attributes:
        node: the recorded turn that it continues, None where it opens a conversation.
        base_length: leading ids that are that turn's history.
        new_ids: int32 [P - base_length], the ids behind them.
        synthetic_length: leading ids of `new_ids` that close a cut turn.
        appended: the messages behind the stored history.
        unrecorded: assistant messages among them; the session never saw them sampled, and they
            enter as context.
        proof: why the new ids are exact; None where nothing stands before them.
    """

    node: Node | None = field(repr=False)
    base_length: int
    new_ids: Ids
    synthetic_length: int
    appended: tuple[Message, ...]
    unrecorded: int
    proof: SeamProof | None

    @property
    def parent(self) -> int | None:
        """Index of the turn that it continues, None where it opens a conversation."""
        return None if self.node is None else self.node.index

    @property
    def ids(self) -> Ids:
        """The whole prompt, int32 [P]; laid together at every call."""
        if self.node is None:
            return self.new_ids
        return np.concatenate([self.node.history_ids(), self.new_ids])
