"""Expert selection in PyTorch, free or replayed.

Both modes run the same two steps: choose indices, then softmax the LIVE logits of exactly those
experts (equation 12). Replay replaces the first step alone, so gates and router gradients always
belong to the current weights, and replaying a router's own choice changes no bit.

Needs the extra `torch`. For routers that normalise over the chosen experts; others (sigmoid
scores, softmax over all experts) need their own second step.
"""

from .errors import MissingExtraError, RoutingError

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    # an installed torch that lacks a module of its own is broken, and its error says how
    if error.name != "torch":
        raise
    raise MissingExtraError("torch", "torch") from error


def select_experts(
    router_logits: Tensor, top_k: int, replay: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Choose experts and their gates for N tokens.

    Args:
        router_logits: float [N, E], scores of all experts.
        top_k: experts per token.
        replay: integer [N, top_k], recorded ids to use instead of the largest logits. Ids are
            trusted to be distinct and below E: `RoutingRecord.validate` has checked that on the
            host, where it costs no synchronisation.

    Returns:
        Indices, int64 [N, top_k], and gates [N, top_k] that sum to 1, in float32 or wider.
        Gradients flow from the gates to the logits of the chosen experts.

    Raises:
        RoutingError: `replay` has another shape or no integer dtype.
    """
    if replay is None:
        indices = router_logits.detach().topk(top_k, dim=-1).indices
    else:
        _check_replay(replay, (router_logits.shape[0], top_k))
        indices = replay.to(device=router_logits.device, dtype=torch.int64)
    dtype = torch.promote_types(router_logits.dtype, torch.float32)
    gates = torch.softmax(router_logits.gather(-1, indices), dim=-1, dtype=dtype)
    return indices, gates


def _check_replay(replay: Tensor, shape: tuple[int, int]) -> None:
    if tuple(replay.shape) != shape:
        raise RoutingError(
            f"replay: expected [tokens, top_k] = {list(shape)}, got {list(replay.shape)}"
        )
    if replay.is_floating_point() or replay.is_complex() or replay.dtype is torch.bool:
        raise RoutingError(f"replay: expected integer ids, got {replay.dtype}")
