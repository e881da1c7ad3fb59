"""A session: token ids are the history of a conversation, text only enters at its end.

    session = Session(tokenizer)
    prompt = session.prompt(messages)           # ids for the engine
    session.record(prompt, completion_ids, logprobs, version_sent, version_received,
                   finish_reason, message)      # what it sampled, and the message made of it
    trial = session.trial()

The harness sends whole histories. What it replays is matched to stored messages, and from there on
stored ids stand for it, however it spells them; only what it appended is rendered and encoded, and
only if the seam is proven. So every token is trained behind exactly the ids that it was sampled
behind, whatever the template would do to history. A history that goes back continues from an earlier
turn; one that matches nothing opens a new root. Each sampled token is trained once.

Where the appended messages cannot be rendered and encoded exactly, `prompt` raises and nothing has
changed. A session is used by one thread at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import numpy.typing as npt

from .assembler import Assembler
from .chat_tokenizer import ChatTemplate, ChatTokenizer, Message, byte_table
from .conversation_tree import ConversationTree, Node
from .errors import SeamError, TemplateError, TurnError, VersionError
from .inert_text import InertText
from .message_matching import Matcher, matcher_named
from .open_marks import OpenMarks
from .seam import SeamEncoder, SeamProof
from .session_prompt import Prompt
from .suffix_locality import SuffixLocality
from .template_pin import TemplatePin
from .template_probes import group_of
from .token_bytes import TokenBytes
from .trial import Trial
from .turn import FinishReason, Ids, Turn
from .turn_suffix import SuffixRenderer

_SEAM_REACH = 64


class Session:
    """One trial's conversation, kept as ids.

    Args:
        tokenizer: renders and encodes messages; `transformers` tokenizers do.
        tools: tool schemas for the template.
        template_arguments: further template arguments.
        token_bytes: the bytes behind every id; read from the tokenizer where not given, which takes
            about a second for a large vocabulary.
        stop_ids: ids that end a turn; where none are given, those that the template ends turns with
            and the tokenizer's end of text. Name them where stop tokens are headers (GLM).
        matcher: what counts as the same message when a history is replayed.
        pin: proof of the template from an earlier start; groups that it names are not tried again.

    Raises:
        TemplateError: the template cannot be used, or `pin` is for another template, tokenizer or
            other template arguments.
        ByteTableError: the tokenizer's byte table cannot be read.
        SeamError: a stop id is not a special token.
    """

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_arguments: Mapping[str, Any] | None = None,
        token_bytes: TokenBytes | None = None,
        stop_ids: Iterable[int] = (),
        matcher: Matcher = "strict",
        pin: TemplatePin | None = None,
    ) -> None:
        template = ChatTemplate(tokenizer, tools, dict(template_arguments or {}))
        self._table = byte_table(tokenizer, token_bytes)
        self._template = template
        inert = InertText(self._table.special_text.values())
        self._suffixes = SuffixRenderer(template, self._table, frozenset(stop_ids), inert)
        self._encoder = SeamEncoder(template, self._table)
        self._locality = SuffixLocality(template)
        if pin is not None:
            pin.require(template, self._table)
            self._locality.accept(pin.groups)
        self._tree = ConversationTree(matcher_named(matcher))
        self._marks = OpenMarks(self._table, self._suffixes.opener)

    @property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a turn."""
        return self._suffixes.stop_ids

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The recorded turns, in order of recording."""
        return tuple(self._tree.nodes)

    @property
    def encoded_characters(self) -> int:
        """Characters given to the tokenizer for prompts so far."""
        return self._encoder.encoded_characters

    @property
    def rendered_characters(self) -> int:
        """Characters that the template has rendered so far."""
        return self._suffixes.rendered_characters

    @property
    def compared_messages(self) -> int:
        """Comparisons of a stored with a replayed message so far."""
        return self._tree.compared_messages

    def prompt(self, messages: Sequence[Message]) -> Prompt:
        """Ids to send for a whole history; renders and encodes only what is new.

        Raises:
            SeamError: no message is new, the last is the assistant's, or the ids of the new ones
                cannot be proven.
            TemplateError: the template refuses the new messages, or what it renders for them depends
                on the history before.
        """
        match = self._tree.match(messages)
        return self._prompt(match.node, messages[match.length :])

    def extend(self, node: int, messages: Sequence[Message]) -> Prompt:
        """Ids to send for messages appended to a recorded turn; compares no history.

        Args:
            node: index of the turn, as `record` returned it.
            messages: the new ones only.

        Raises:
            SeamError, TemplateError: as for `prompt`.
        """
        if not 0 <= node < len(self._tree.nodes):
            raise SeamError(f"there is no turn {node}; {len(self._tree.nodes)} are recorded")
        return self._prompt(self._tree.nodes[node], messages)

    def record(
        self,
        prompt: Prompt,
        completion_ids: npt.ArrayLike,
        logprobs: npt.ArrayLike,
        version_sent: int,
        version_received: int,
        finish_reason: FinishReason | str,
        message: Message,
    ) -> int:
        """Store what was sampled for a prompt; a prompt may be sampled several times.

        Args:
            prompt: from this session.
            completion_ids: int32 [A], the sampled ids with the stop token.
            logprobs: float32 [A], of each.
            version_sent: weight version when the request was sent.
            version_received: weight version when the answer arrived.
            finish_reason: why sampling ended.
            message: the assistant message that the harness got and will replay.

        Returns:
            The index of the turn.

        Raises:
            TurnError: the sampled ids are malformed, or end without a stop token although sampling
                stopped.
            VersionError: the weights changed between request and answer.
        """
        index = len(self._tree.nodes)
        if prompt.node is not None and prompt.node not in self._tree.nodes[prompt.node.index :][:1]:
            raise TurnError("prompt", None, "it is of another session", index)
        turn = _turn_at(
            index,
            prompt,
            completion_ids,
            logprobs,
            version_sent,
            version_received,
            finish_reason,
        )
        self._check_completion(index, turn)
        if message.get("role") != "assistant":
            raise TurnError(
                "message",
                None,
                f"expected the assistant's, got role {message.get('role')!r}",
                index,
            )
        return self._tree.add(prompt.node, prompt.appended, turn, deepcopy(dict(message))).index

    def turn_order(self) -> tuple[int, ...]:
        """Indices of the recorded turns in the order of the trial: branch by branch."""
        return tuple(node.index for fresh, _ in self._tree.leaf_paths() for node in fresh)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns in the order of the trial; given whole where they open a chunk, else as delta."""
        return tuple(turn for turn, _ in self._ordered())

    def trial(self, metadata: Mapping[str, object] | None = None) -> Trial:
        """Everything recorded, each sampled token trained once; one chunk per branch.

        Turn k of the trial is recorded turn `turn_order()[k]`.

        Raises:
            TurnError: nothing has been recorded.
        """
        assembler = Assembler(self._table, stop_ids=self.stop_ids, metadata=metadata)
        for turn, opens in self._ordered():
            assembler.add(turn, fork=opens)
        return assembler.finish()

    def _ordered(self) -> Iterable[tuple[Turn, bool]]:
        """Turns in trial order, and whether each opens a later chunk."""
        for fresh, first in self._tree.leaf_paths():
            for place, node in enumerate(fresh):
                opens = place == 0 and not first
                yield (_given_whole(node) if opens else node.turn), opens

    def _prompt(self, node: Node | None, new: Sequence[Message]) -> Prompt:
        if not new or new[-1].get("role") == "assistant":
            raise SeamError(
                "a prompt ends in a message for the assistant to answer; the last one is "
                + ("the assistant's" if new else "already answered by a stored turn")
            )
        unrecorded = sum(message.get("role") == "assistant" for message in new)
        if node is None:
            new_ids, synthetic, proof = self._open(new), 0, None
        else:
            new_ids, synthetic, proof = self._append(node, new)
        return Prompt(
            node=node,
            base_length=0 if node is None else node.turn.length,
            new_ids=np.array(new_ids, np.int32),
            synthetic_length=synthetic,
            appended=tuple(deepcopy(dict(message)) for message in new),
            unrecorded=unrecorded,
            proof=proof,
        )

    def _open(self, messages: Sequence[Message]) -> list[int]:
        ids = self._encoder.whole(self._suffixes.opening(messages))
        bos = self._template.bos_id
        if bos is not None and bos in ids[1:]:
            raise TemplateError(
                f"the prompt holds the text's first token ({bos}) again at position "
                f"{ids.index(bos, 1)}; it may stand at position 0 only"
            )
        return ids

    def _append(self, node: Node, new: Sequence[Message]) -> tuple[list[int], int, SeamProof]:
        self._locality.require(group_of(new))
        stored = node.last_ids(_SEAM_REACH)
        suffix = self._suffixes.after(
            node.message, new, int(stored[-1]), self._marks.left_open(node.turn)
        )
        closing: list[int] = []
        if suffix.synthetic:
            closing = self._closing(stored, suffix.synthetic)
            stored = np.concatenate([stored, np.array(closing, np.int32)])
        seam = self._encoder.append(stored, suffix.pieces)
        return closing + seam.ids, len(closing), seam.proof

    def _closing(self, stored: Ids, synthetic: str) -> list[int]:
        try:
            return self._encoder.append(stored, [synthetic]).ids
        except SeamError:
            # the cut text does not allow a line break to be appended; the control token alone it does
            return self._encoder.append(stored, [synthetic.lstrip()]).ids

    def _check_completion(self, index: int, turn: Turn) -> None:
        if turn.version_sent != turn.version_received:
            raise VersionError(index, turn.version_sent, turn.version_received)
        ids = turn.completion_ids
        unknown = self._table.first_unknown(ids)
        if unknown is not None:
            raise TurnError(
                "completion_ids", unknown, f"id {ids[unknown]} is not in the vocabulary", index
            )
        if turn.finish_reason is FinishReason.STOP and int(ids[-1]) not in self.stop_ids:
            raise TurnError(
                "completion_ids",
                ids.size - 1,
                f"sampling stopped, but id {ids[-1]} is none of the stop ids "
                f"{sorted(self.stop_ids)}; ask the engine to return the stop token's id",
                index,
            )


def _turn_at(index: int, prompt: Prompt, *sampled: Any) -> Turn:
    try:
        return Turn(
            prompt.new_ids,
            *sampled,
            base_length=prompt.base_length,
            synthetic_length=prompt.synthetic_length,
        )
    except TurnError as error:
        raise TurnError(error.field, error.position, error.problem, index) from error


def _given_whole(node: Node) -> Turn:
    turn = node.turn
    if node.parent is None:
        return turn
    return Turn(
        np.concatenate([node.parent.history_ids(), turn.prompt_ids]),
        turn.completion_ids,
        turn.logprobs,
        turn.version_sent,
        turn.version_received,
        turn.finish_reason,
    )
