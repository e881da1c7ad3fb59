"""Shape of the embedded policy: what `config.json` of a policy directory holds."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, cast

from t1_trainer.errors import PolicyFormatError

__all__ = ["MoEConfig"]

# expert ids are recorded in one byte
_MAX_EXPERTS = 256


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
    def from_json(cls, content: Any) -> "MoEConfig":
        """Read `config.json`.

        Raises:
            PolicyFormatError: another `model_type`, a key that is unknown or missing, or a value
                that no model can have.
        """
        if not isinstance(content, dict):
            raise PolicyFormatError(f"config.json: expected an object, got {content!r}")
        content = dict(cast("dict[str, Any]", content))
        found = content.pop("model_type", None)
        if found != cls.model_type:
            raise PolicyFormatError(
                f"config.json: model_type is {found!r}, expected {cls.model_type!r}; "
                "this command runs the embedded policy only"
            )
        try:
            config = cls(**content)
        except TypeError as error:
            raise PolicyFormatError(f"config.json: {error}") from error
        config._check()
        return config

    def _check(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, (int, float) if field.type is float else int) or value <= 0:
                kind = "number" if field.type is float else "integer"
                self._refuse(field.name, f"expected a positive {kind}")
        if self.hidden_size % self.num_attention_heads:
            self._refuse("num_attention_heads", f"must divide hidden_size = {self.hidden_size}")
        if self.num_experts_per_tok > self.num_experts:
            self._refuse("num_experts_per_tok", f"exceeds num_experts = {self.num_experts}")
        if self.num_experts > _MAX_EXPERTS:
            self._refuse("num_experts", f"expected at most {_MAX_EXPERTS}")

    def _refuse(self, name: str, expected: str) -> NoReturn:
        raise PolicyFormatError(f"config.json: {name} = {getattr(self, name)!r}: {expected}")
