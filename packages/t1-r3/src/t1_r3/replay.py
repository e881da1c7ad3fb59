"""Replay checks: did a forward pass use the experts that were recorded?

The comparison is between sets, per row and layer: engines return the chosen experts in different
orders, and the order does not change what a layer computes. It knows neither framework nor
tolerance; two selections agree or they do not.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import ReplayMismatch, RoutingError


def disagreement(
    recorded: npt.NDArray[np.integer[Any]], selected: npt.NDArray[np.integer[Any]]
) -> npt.NDArray[np.bool_]:
    """Mark where two selections are different sets of experts.

    Args:
        recorded: integer ids [rows, layers, top_k].
        selected: integer ids of the same shape; the dtypes may differ.

    Returns:
        bool [rows, layers], True where the sets differ.

    Raises:
        RoutingError: the shapes differ or are not three-dimensional.
    """
    if recorded.ndim != 3 or recorded.shape != selected.shape:
        raise RoutingError(
            "expected two selections of one shape [rows, layers, top_k], got "
            f"{recorded.shape} recorded and {selected.shape} selected"
        )
    return (np.sort(recorded, axis=-1) != np.sort(selected, axis=-1)).any(axis=-1)


def assert_replayed(
    recorded: npt.NDArray[np.integer[Any]], selected: npt.NDArray[np.integer[Any]]
) -> None:
    """Require that every row and layer used exactly the recorded experts.

    Args:
        recorded: integer ids [rows, layers, top_k].
        selected: integer ids of the same shape, as the forward pass used them.

    Raises:
        ReplayMismatch: naming the first row and layer that differ, and how many do.
        RoutingError: the shapes differ.
    """
    differs = disagreement(recorded, selected)
    if not differs.any():
        return
    row, layer = (int(index) for index in np.argwhere(differs)[0])
    raise ReplayMismatch(
        row,
        layer,
        f"recorded {recorded[row, layer].tolist()}, used {selected[row, layer].tolist()}; "
        f"{np.count_nonzero(differs)} of {differs.size} sets differ",
    )
