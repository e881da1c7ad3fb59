"""The embedded mixture-of-experts transformer, full-sequence form.

Sequences are packed: `tokens_N` is their concatenation and `lengths_B` their lengths. All work but
attention runs on the packed tokens, so padding costs nothing and changes nothing. The forward pass
returns the experts every token used; given recorded experts it uses those instead, with gates taken
from the live router (routing replay).

The initialisation favours copying (value and output projections are near-inverse rotations, query
and key share a component): at this size it decides whether a few hundred steps learn to copy names.

Axes: N packed tokens, B sequences, T longest sequence, D hidden, H heads, L layers, E experts,
K experts per token.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from t1_r3.torch import select_experts
from t1_trainer.policy.config import MoEConfig
from t1_trainer.policy.experts import experts_sorted
from t1_trainer.policy.rounding import Rounding, exact

__all__ = ["ExpertSelection", "MoELayer", "MoEModel", "rotate"]

ExpertFunction = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Rounding], Tensor]


class ExpertSelection(NamedTuple):
    """Result of a forward pass."""

    hidden_ND: Tensor
    selected_NLK: Tensor


@dataclass(frozen=True)
class _Layout:
    """Where each packed token sits in the padded [B, T] grid that attention uses."""

    grid_N: Tensor
    position_N: Tensor
    first_N: Tensor
    batch: int
    longest: int

    @classmethod
    def of(cls, lengths_B: Tensor) -> "_Layout":
        batch, longest = len(lengths_B), int(lengths_B.max())
        row_N = torch.repeat_interleave(torch.arange(batch), lengths_B)
        start_B = lengths_B.cumsum(0) - lengths_B
        position_N = torch.arange(len(row_N)) - start_B[row_N]
        return cls(row_N * longest + position_N, position_N, position_N == 0, batch, longest)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of the first half of the head channels; the rest carries no position."""
    r = cos.shape[-1]
    a, b, rest = x[..., :r], x[..., r : 2 * r], x[..., 2 * r :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


class MoELayer(nn.Module):
    """Attention projections and a mixture of experts; attention itself is the caller's."""

    def __init__(self, config: MoEConfig) -> None:
        super().__init__()
        c, d = config, config.hidden_size
        self.config = config
        self.attention_norm = nn.Parameter(torch.ones(d))
        self.expert_norm = nn.Parameter(torch.ones(d))
        self.query_norm = nn.Parameter(torch.ones(c.head_size))
        self.key_norm = nn.Parameter(torch.ones(c.head_size))
        self.qkv = nn.Parameter(torch.empty(d, 3 * d))
        self.output = nn.Parameter(torch.empty(d, d))
        self.router = nn.Parameter(torch.empty(d, c.num_experts))
        self.gate_up = nn.Parameter(torch.empty(c.num_experts, d, 2 * c.moe_intermediate_size))
        self.down = nn.Parameter(torch.empty(c.num_experts, c.moe_intermediate_size, d))
        self._initialise()

    @torch.no_grad()
    def _initialise(self) -> None:
        d = self.config.hidden_size
        rotation = torch.linalg.qr(torch.randn(d, d))[0]
        shared = torch.randn(d, d) / math.sqrt(d)
        self.qkv[:, :d] = 0.7 * shared + 0.3 * torch.randn(d, d) / math.sqrt(d)
        self.qkv[:, d : 2 * d] = 0.7 * shared + 0.3 * torch.randn(d, d) / math.sqrt(d)
        self.qkv[:, 2 * d :] = 0.7 * rotation
        self.output.copy_(0.4 * rotation.t())
        self.router.normal_(0, 0.02)
        self.gate_up.normal_(0, 0.02)
        self.down.normal_(0, 0.02 / math.sqrt(2 * self.config.num_hidden_layers))

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """Root-mean-square norm over the last axis."""
        return F.rms_norm(x, (x.shape[-1],), weight, self.config.rms_norm_eps)

    def project(
        self, x_ND: Tensor, cos: Tensor, sin: Tensor, rounded: Rounding = exact
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [N, H, head_size] of packed tokens, rotated."""
        c = self.config
        qkv = rounded(rounded(self.norm(x_ND, self.attention_norm)) @ self.qkv)
        q, k, v = qkv.view(-1, 3, c.num_attention_heads, c.head_size).unbind(1)
        q = rounded(rotate(rounded(self.norm(q, self.query_norm)), cos, sin))
        k = rounded(rotate(rounded(self.norm(k, self.key_norm)), cos, sin))
        return q, k, v

    def mix(
        self,
        x_ND: Tensor,
        replay_NK: Tensor | None,
        experts: ExpertFunction,
        rounded: Rounding = exact,
    ) -> tuple[Tensor, Tensor]:
        """Expert output [N, D] and the experts used [N, K]."""
        h_ND = rounded(self.norm(x_ND, self.expert_norm))
        logits_NE = rounded(h_ND @ self.router)
        indices, gates = select_experts(
            logits_NE, self.config.num_experts_per_tok, replay=replay_NK
        )
        return experts(h_ND, indices, gates, self.gate_up, self.down, rounded), indices


class MoEModel(nn.Module):
    """Policy (tied language-model head) or critic (scalar head) over `MoEConfig`.

    Args:
        config: the shape.
        value_head: build a critic; its head starts at zero, so the first values are 0.
    """

    def __init__(self, config: MoEConfig, *, value_head: bool = False) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.randn(config.vocab_size, config.hidden_size) * 0.05)
        # each token sees its predecessor's embedding: induction then needs one attention layer
        self.smear = nn.Parameter(torch.full((config.hidden_size,), 0.5))
        self.layers = nn.ModuleList(MoELayer(config) for _ in range(config.num_hidden_layers))
        self.final_norm = nn.Parameter(torch.ones(config.hidden_size))
        self.value_head = nn.Parameter(torch.zeros(config.hidden_size, 1)) if value_head else None
        cos, sin = _rotary_tables(config)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def moe_layers(self) -> list[MoELayer]:
        """The layers, typed."""
        return [cast("MoELayer", layer) for layer in self.layers]

    def rotary(self, position: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary factors [..., 1, head_size / 4] at `position`."""
        cos, sin = cast("Tensor", self.cos), cast("Tensor", self.sin)
        return cos[position][..., None, :], sin[position][..., None, :]

    def forward(
        self, tokens_N: Tensor, lengths_B: Tensor, replay_NLK: Tensor | None = None
    ) -> ExpertSelection:
        """Hidden states after the final norm, and the experts used.

        Args:
            tokens_N: int64 ids of all sequences, one after another.
            lengths_B: int64 lengths, all positive, sum N.
            replay_NLK: recorded experts; None lets the router choose.

        Returns:
            hidden [N, D] (row j predicts token j+1 of its sequence) and selected [N, L, K] int64.
        """
        x_ND, selected = self._layers(tokens_N, lengths_B, replay_NLK, None)
        return ExpertSelection(self.normalise(x_ND), torch.stack(selected, 1))

    def hidden_at(
        self,
        tokens_N: Tensor,
        lengths_B: Tensor,
        rows_M: Tensor,
        replay_NLK: Tensor | None = None,
    ) -> Tensor:
        """The rows of `forward`'s hidden states at `rows_M`, [M, D], for less work.

        Nothing reads the other rows of the last layer, so its experts run on these alone.
        """
        x_MD, _ = self._layers(tokens_N, lengths_B, replay_NLK, rows_M)
        return self.normalise(x_MD)

    def _layers(
        self,
        tokens_N: Tensor,
        lengths_B: Tensor,
        replay_NLK: Tensor | None,
        rows_M: Tensor | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Residual stream after the last layer, at `rows_M` if given, and each layer's experts."""
        layout = _Layout.of(lengths_B)
        embedded = self.embedding[tokens_N]
        previous = F.pad(embedded[:-1], (0, 0, 1, 0)).masked_fill(layout.first_N[:, None], 0)
        x_ND = embedded + self.smear * previous
        cos, sin = self.rotary(layout.position_N)
        layers = self.moe_layers()
        selected: list[Tensor] = []
        for number, layer in enumerate(layers):
            attended_ND = _attention(layer, x_ND, cos, sin, layout)
            replay_NK = None if replay_NLK is None else replay_NLK[:, number]
            if rows_M is not None and layer is layers[-1]:
                x_ND, attended_ND = x_ND[rows_M], attended_ND[rows_M]
                replay_NK = None if replay_NK is None else replay_NK[rows_M]
            x_ND = x_ND + attended_ND @ layer.output
            y_ND, indices = layer.mix(x_ND, replay_NK, experts_sorted)
            x_ND = x_ND + y_ND
            selected.append(indices)
        return x_ND, selected

    def normalise(self, x: Tensor) -> Tensor:
        """The final norm, over the last axis."""
        return F.rms_norm(x, (x.shape[-1],), self.final_norm, self.config.rms_norm_eps)

    def logits(self, hidden_ND: Tensor) -> Tensor:
        """Next-token logits [N, vocab_size]."""
        return hidden_ND @ self.embedding.t()

    def values(self, hidden_ND: Tensor) -> Tensor:
        """State values [N]; only a model built with `value_head` has them."""
        if self.value_head is None:
            raise TypeError("this model has no value head: build it with value_head=True")
        return (hidden_ND @ self.value_head)[:, 0]


def _attention(layer: MoELayer, x_ND: Tensor, cos: Tensor, sin: Tensor, layout: _Layout) -> Tensor:
    """Causal attention within each sequence, [N, D]; pads are behind every real key."""
    qkv = torch.stack(layer.project(x_ND, cos, sin), 1).flatten(2)
    grid = qkv.new_zeros(layout.batch * layout.longest, 3, x_ND.shape[1])
    grid = grid.index_copy(0, layout.grid_N, qkv)
    q, k, v = grid.view(
        layout.batch, layout.longest, 3, layer.config.num_attention_heads, layer.config.head_size
    ).permute(2, 0, 3, 1, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).reshape(-1, x_ND.shape[1])[layout.grid_N]


def _rotary_tables(config: MoEConfig) -> tuple[Tensor, Tensor]:
    half = config.head_size // 2
    inverse = config.rope_theta ** (-torch.arange(0, half, 2).float() / half)
    angle = torch.arange(config.max_position_embeddings).float()[:, None] * inverse
    return angle.cos(), angle.sin()
