"""How a terminal conversation becomes token ids: the one place that knows the template.

    <|user|> instruction <|end|> <|assistant|> command <|end|> <|tool|> output <|end|> <|assistant|> ...

A completion is the command and its `<|end|>`. Nothing here re-encodes what was sampled: prompts
grow by appending observations to ids that already exist.
"""

from collections.abc import Sequence

from t1_trainer.policy.tokenizer import ASSISTANT, END, TOOL, USER, Tokenizer

__all__ = ["ChatFormat"]

_OBSERVATION_CHARACTERS = 4_000


class ChatFormat:
    """Renders instructions and observations, and reads commands back (`t1_eval.ChatFormat`)."""

    stop_ids: tuple[int, ...] = (END,)

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def render_instruction(self, instruction: str) -> list[int]:
        """Ids of the first prompt."""
        return [USER, *self._tokenizer.encode(instruction), END, ASSISTANT]

    def render_observation(self, output: str, exit_code: int, max_tokens: int) -> list[int]:
        """Ids appended after a completion: terminal output, then `[rc N]` where a command failed.

        Args:
            output: merged stdout and stderr as decoded text.
            exit_code: exit status; 0 is not shown.
            max_tokens: bound on the ids of the text; what is beyond is cut.
        """
        text = output.rstrip("\n")[:_OBSERVATION_CHARACTERS]
        if exit_code != 0:
            text += f"[rc {exit_code}]"
        return [TOOL, *self._tokenizer.encode(text)[:max_tokens], END, ASSISTANT]

    def parse_command(self, completion_ids: Sequence[int]) -> str:
        """The command text of a completion; specials inside it decode to nothing."""
        return self._tokenizer.decode(completion_ids)

    def render_command(self, command: str) -> list[int]:
        """Ids of a demonstrated command, as a model would emit it; for supervised data only."""
        return [*self._tokenizer.encode(command), END]
