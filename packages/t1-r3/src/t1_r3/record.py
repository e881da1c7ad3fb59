"""Routing records: which experts one engine request used, position by position.

rows[r, l, :] are the `top_k` experts that layer `spec.moe_layers[l]` used while the token at index
`start + r` of prompt ‖ completion was the INPUT, so the row belongs to predicting the token after
it. The last token of a request predicts nothing and has no row. Expert ids are logical and a row
is a set: its order carries no meaning. A record knows no text and no neighbouring turn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import RoutingError

ExpertIds = npt.NDArray[np.uint8 | np.uint16]


@dataclass(frozen=True)
class RoutingSpec:
    """What a model's routers choose from.

    Attributes:
        num_experts: routed experts per layer, at most 65,536; shared experts are not counted.
        top_k: experts chosen per token and layer, 1 <= top_k <= num_experts.
        moe_layers: global numbers of the layers that own a router, strictly increasing.

    Raises:
        RoutingError: a field is out of range.
    """

    num_experts: int
    top_k: int
    moe_layers: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.num_experts <= 2**16:
            raise RoutingError(f"num_experts: expected 1 to 65536, got {self.num_experts}")
        if not 1 <= self.top_k <= self.num_experts:
            raise RoutingError(f"top_k: expected 1 to {self.num_experts}, got {self.top_k}")
        layers = self.moe_layers
        if not layers or layers[0] < 0 or list(layers) != sorted(set(layers)):
            raise RoutingError(
                f"moe_layers: expected layer numbers >= 0 in increasing order, got {layers}"
            )

    @property
    def dtype(self) -> np.dtype[np.uint8 | np.uint16]:
        """The smallest unsigned dtype that holds every expert id: uint8 or uint16."""
        return np.dtype(np.uint8) if self.num_experts <= 2**8 else np.dtype(np.uint16)


@dataclass(frozen=True, eq=False, init=False)
class RoutingRecord:
    """The rows captured for one request, read-only.

    Any integer array is accepted. It is narrowed to `spec.dtype`, and refused rather than wrapped
    where an id does not fit. An array that has that dtype already is kept as a view.

    Attributes:
        rows: uint8 or uint16 [R, layers, top_k].
        spec: what the ids mean.
        start: index in prompt ‖ completion of the token that row 0 belongs to.
        weight_version: version of the weights that routed.

    Raises:
        RoutingError: the array has another shape, is not of integers, or holds an id too large.
    """

    rows: ExpertIds
    spec: RoutingSpec
    start: int
    weight_version: int

    def __init__(
        self, rows: npt.ArrayLike, spec: RoutingSpec, start: int, weight_version: int
    ) -> None:
        if start < 0:
            raise RoutingError(f"start: expected an index >= 0, got {start}")
        values = {
            "rows": _narrow(np.asarray(rows), spec),
            "spec": spec,
            "start": start,
            "weight_version": weight_version,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def stop(self) -> int:
        """Index in prompt ‖ completion one past the last row's token."""
        return self.start + self.rows.shape[0]

    def validate(self, *, turn: int | None = None) -> None:
        """Check that every id is below `num_experts` and none stands twice in one row of a layer.

        A capture buffer that was never written holds zeros and is refused wherever `top_k` > 1.

        Args:
            turn: index of the turn, for the message.

        Raises:
            RoutingError: naming turn, row and layer of the first fault.
        """
        outside = (self.rows >= self.spec.num_experts).any(axis=-1)
        self._refuse(outside, f"expected ids below {self.spec.num_experts}", turn)
        ordered = np.sort(self.rows, axis=-1)
        repeated = (ordered[..., 1:] == ordered[..., :-1]).any(axis=-1)
        self._refuse(repeated, f"expected {self.spec.top_k} different experts", turn)

    def _refuse(self, bad: npt.NDArray[np.bool_], expected: str, turn: int | None) -> None:
        if not bad.any():
            return
        row, layer = (int(index) for index in np.argwhere(bad)[0])
        raise RoutingError(
            f"{expected}, got {self.rows[row, layer].tolist()}",
            turn=turn,
            row=row,
            layer=self.spec.moe_layers[layer],
        )


def _check_shape(rows: npt.NDArray[Any], spec: RoutingSpec) -> None:
    trailing = (len(spec.moe_layers), spec.top_k)
    if rows.ndim != 3 or rows.shape[1:] != trailing:
        raise RoutingError(
            f"expected rows [R, {trailing[0]} layers, {trailing[1]} experts], got {rows.shape}"
        )


def _narrow(rows: npt.NDArray[Any], spec: RoutingSpec) -> ExpertIds:
    _check_shape(rows, spec)
    if rows.dtype.kind not in "iu":
        raise RoutingError(f"expected integer expert ids, got dtype {rows.dtype}")
    wrapped = np.argwhere((rows < 0) | (rows > np.iinfo(spec.dtype).max))
    if wrapped.size:
        row, layer, slot = (int(index) for index in wrapped[0])
        raise RoutingError(
            f"expected ids below {spec.num_experts}, got {rows[row, layer, slot]}",
            row=row,
            layer=spec.moe_layers[layer],
        )
    narrow = rows.astype(spec.dtype, copy=False).view()
    narrow.flags.writeable = False
    return narrow
