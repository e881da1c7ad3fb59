"""The sampler's arithmetic: what a bfloat16 engine computes, on any CPU.

bfloat16 matrix units multiply bfloat16 operands exactly, add in float32 and round the result to
bfloat16. Rounding weights once and every result once, with float32 kernels in between, does the
same; CPUs without bfloat16 instructions run their native kernels some forty times slower.
"""

from collections.abc import Callable

from torch import Tensor

__all__ = ["Rounding", "exact", "to_bfloat16"]

Rounding = Callable[[Tensor], Tensor]


def exact(x: Tensor) -> Tensor:
    """Full precision: leaves results as they are."""
    return x


def to_bfloat16(x: Tensor) -> Tensor:
    """Round to the nearest bfloat16 value, kept in float32."""
    return x.bfloat16().float()
