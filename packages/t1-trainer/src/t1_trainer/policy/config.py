"""Shape of the embedded policy: what `config.json` of a policy directory holds."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from t1_trainer.errors import PolicyFormatError

__all__ = ["MoEConfig"]


@dataclass(frozen=True)
class MoEConfig:
    """A decoder-only mixture-of-experts transformer, small enough for one CPU core.

    Every layer is attention (query and key norm, rotary on half of each head) followed by a
    mixture of `num_experts` SwiGLU experts of which `num_experts_per_tok` are used per token.
    """

    model_type: ClassVar[str] = "t1_tiny_moe"

    vocab_size: int
    hidden_size: int = 128
    num_hidden_layers: int = 3
    num_attention_heads: int = 4
    num_experts: int = 8
    num_experts_per_tok: int = 2
    moe_intermediate_size: int = 64
    max_position_embeddings: int = 512
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-6

    @property
    def head_size(self) -> int:
        """Channels per attention head."""
        return self.hidden_size // self.num_attention_heads

    def to_json(self) -> dict[str, Any]:
        """The content of `config.json`, `model_type` included."""
        return {"model_type": self.model_type, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "MoEConfig":
        """Read `config.json`.

        Raises:
            PolicyFormatError: another `model_type`, or a key that is unknown or missing.
        """
        content = dict(content)
        found = content.pop("model_type", None)
        if found != cls.model_type:
            raise PolicyFormatError(
                f"config.json: model_type is {found!r}, expected {cls.model_type!r}; "
                "this command runs the embedded policy only"
            )
        try:
            return cls(**content)
        except TypeError as error:
            raise PolicyFormatError(f"config.json: {error}") from error
