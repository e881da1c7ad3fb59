"""Incremental decoding with a key-value cache, many sequences at once, in the sampler's arithmetic.

State: `capacity` cache rows. Row r holds `position[r]` fed tokens. Rows are addressed by contiguous
slot ranges, so that attention reads views and never copies the cache; `swap` exchanges two rows.
A cached decode in float32 equals the full-sequence forward up to rounding; in bfloat16 the difference is the
train-inference gap that routing replay addresses. Knows no requests, trials or sampling.

Axes: R rows of a range, C fed tokens per row (right padded), L layers, H heads, K experts per token.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from t1_trainer.policy.config import MoEConfig
from t1_trainer.policy.experts import experts_dense, experts_sorted
from t1_trainer.policy.model import MoELayer, MoEModel
from t1_trainer.policy.rounding import Rounding

__all__ = ["CachedDecoder"]

# below this many tokens one batched product over all experts beats grouping tokens by expert
_DENSE_TOKENS = 256


class CachedDecoder:
    """Feeds tokens to cached sequences and returns next-token logits and the experts used.

    Args:
        config: shape of the model.
        capacity: number of cache rows.
        max_length: longest sequence a row can hold.
        rounded: arithmetic of weights, cache and every intermediate result.
    """

    def __init__(
        self, config: MoEConfig, *, capacity: int, max_length: int, rounded: Rounding
    ) -> None:
        self.config = config
        self.capacity = capacity
        self.max_length = max_length
        self._rounded = rounded
        self._model = MoEModel(config)
        shape = (
            config.num_hidden_layers,
            capacity,
            config.num_attention_heads,
            max_length,
            config.head_size,
        )
        self._keys = torch.zeros(shape)
        self._values = torch.zeros(shape)
        self._last = torch.zeros(capacity, dtype=torch.long)
        self.position = torch.zeros(capacity, dtype=torch.long)
        self._columns = torch.arange(max_length)

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """Copy weights in, rounded; the cache is emptied."""
        for name, parameter in self._model.named_parameters():
            parameter.copy_(self._rounded(state[name]))
        self.position.zero_()

    def truncate(self, row: int, length: int, last_token: int) -> None:
        """Forget what `row` was fed beyond `length` tokens, the last kept one being `last_token`."""
        self.position[row] = length
        self._last[row] = last_token

    def swap(self, a: int, b: int) -> None:
        """Exchange two rows."""
        if a == b:
            return
        used = int(torch.maximum(self.position[a], self.position[b]))
        for cache in (self._keys, self._values):
            first, second = cache[:, a, :, :used], cache[:, b, :, :used]
            kept = first.clone()
            first.copy_(second)
            second.copy_(kept)
        pair, flipped = [a, b], [b, a]
        self.position[pair] = self.position[flipped]
        self._last[pair] = self._last[flipped]

    @torch.inference_mode()
    def feed(self, tokens_RC: Tensor, counts_R: Tensor, first_row: int) -> tuple[Tensor, Tensor]:
        """Append tokens to rows first_row .. first_row + R - 1.

        Args:
            tokens_RC: int64 ids, right padded.
            counts_R: how many of each row are real, at least 1.
            first_row: start of the slot range.

        Returns:
            logits [R, vocab_size] after each row's last real token, and the experts used
            [R, C, L, K] uint8 (pad columns hold garbage).
        """
        rows, width = tokens_RC.shape
        span = slice(first_row, first_row + rows)
        x = self._embed(tokens_RC, span)
        position = self.position[span, None] + torch.arange(width)
        total = int((self.position[span] + counts_R).max())
        mask = (self._columns[:total] <= position[:, :, None])[:, None]
        cos, sin = self._model.rotary(position.reshape(-1).clamp(max=self.max_length - 1))
        experts = experts_dense if rows * width <= _DENSE_TOKENS else experts_sorted
        selected: list[Tensor] = []
        for number, layer in enumerate(self._model.moe_layers()):
            q, k, v = (
                t.view(rows, width, *t.shape[1:]).transpose(1, 2)
                for t in layer.project(x, cos, sin, self._rounded)
            )
            self._write(number, span, position, k, v)
            x = self._rounded(x + self._attend(layer, number, span, q, mask, total))
            y, indices = layer.mix(x, None, experts, self._rounded)
            x = self._rounded(x + y)
            selected.append(indices.view(rows, width, -1))
        last = counts_R - 1
        each = torch.arange(rows)
        self._last[span] = tokens_RC[each, last]
        self.position[span] += counts_R
        hidden = x.view(rows, width, -1)[each, last]
        logits = self._rounded(self._model.logits(self._rounded(self._model.normalise(hidden))))
        return logits, torch.stack(selected, 2).to(torch.uint8)

    def _embed(self, tokens_RC: Tensor, span: slice) -> Tensor:
        """Smeared embeddings [R * C, D]; the first token of a feed sees the last fed one."""
        model = self._model
        embedded = model.embedding[tokens_RC]
        started = (self.position[span] > 0)[:, None]
        before = torch.where(started, model.embedding[self._last[span]], 0)
        previous = torch.cat([before[:, None], embedded[:, :-1]], 1)
        return self._rounded(embedded + model.smear * previous).flatten(0, 1)

    def _write(self, number: int, span: slice, position: Tensor, k: Tensor, v: Tensor) -> None:
        """Store keys and values [R, H, C, head]; pad columns land behind the row's end."""
        rows = torch.arange(span.start, span.stop)[:, None]
        column = position.clamp(max=self.max_length - 1)
        self._keys[number][rows, :, column] = k.transpose(1, 2)
        self._values[number][rows, :, column] = v.transpose(1, 2)

    def _attend(
        self, layer: MoELayer, number: int, span: slice, q: Tensor, mask: Tensor, total: int
    ) -> Tensor:
        out = F.scaled_dot_product_attention(
            q,
            self._keys[number, span, :, :total],
            self._values[number, span, :, :total],
            attn_mask=mask,
        )
        merged = self._rounded(out).transpose(1, 2).reshape(-1, self.config.hidden_size)
        return self._rounded(merged @ layer.output)
