"""Two evaluations of a mixture of SwiGLU experts that give the same numbers.

`experts_sorted` groups tokens by expert and runs each expert once on its tokens: right for the
hundreds to thousands of tokens of training and prefill. `experts_dense` runs every expert on every
token and weighs the result: fewer kernel launches, right for the few tokens of a decode step.

Axes: N tokens, D hidden, F intermediate, E experts, K chosen experts per token.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from t1_trainer.policy.rounding import Rounding, exact

__all__ = ["experts_dense", "experts_sorted"]


def experts_sorted(
    x_ND: Tensor,
    indices_NK: Tensor,
    gates_NK: Tensor,
    gate_up_EDF: Tensor,
    down_EFD: Tensor,
    rounded: Rounding = exact,
) -> Tensor:
    """Weighted sum of the chosen experts' outputs [N, D]; cost grows with N * K.

    Args:
        x_ND: normalised inputs.
        indices_NK: chosen experts, int64 in [0, E).
        gates_NK: their weights.
        gate_up_EDF: fused gate and up projections, [E, D, 2F].
        down_EFD: down projections, [E, F, D].
        rounded: applied to every intermediate result.
    """
    top_k = indices_NK.shape[1]
    flat = indices_NK.reshape(-1)
    order = flat.argsort(stable=True)
    token = order.div(top_k, rounding_mode="floor")
    counts = torch.bincount(flat, minlength=gate_up_EDF.shape[0]).tolist()
    outputs: list[Tensor] = []
    for expert, part in enumerate(x_ND[token].split(counts)):
        if part.shape[0]:
            gate, up = rounded(part @ gate_up_EDF[expert]).chunk(2, -1)
            outputs.append(rounded(rounded(F.silu(gate) * up) @ down_EFD[expert]))
    weighted = torch.cat(outputs) * gates_NK.reshape(-1)[order][:, None]
    return rounded(torch.zeros_like(x_ND).index_add(0, token, weighted))


def experts_dense(
    x_ND: Tensor,
    indices_NK: Tensor,
    gates_NK: Tensor,
    gate_up_EDF: Tensor,
    down_EFD: Tensor,
    rounded: Rounding = exact,
) -> Tensor:
    """The same sum as `experts_sorted`, computed by all experts on all tokens; cost N * E."""
    experts = gate_up_EDF.shape[0]
    weights_NE = torch.zeros(x_ND.shape[0], experts, dtype=x_ND.dtype)
    weights_NE = weights_NE.scatter(1, indices_NK, gates_NK)
    gate, up = rounded(torch.bmm(x_ND.expand(experts, -1, -1), gate_up_EDF)).chunk(2, -1)
    out_END = rounded(torch.bmm(rounded(F.silu(gate) * up), down_EFD))
    return rounded((out_END * weights_NE.t()[:, :, None]).sum(0))
