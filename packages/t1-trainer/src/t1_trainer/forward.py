"""What updates and diagnostics read from a model: log-probs of trained tokens, and state values.

The policy that acted is softmax(logits / temperature), so the trainer's log-probs are divided alike.
The actor may be run with recorded experts or route freely; the critic always routes freely.

Axes: M trained tokens, N packed inputs, L MoE layers, K experts per token.
"""

from torch import Tensor

from t1_trainer.batch import Packed
from t1_trainer.policy import MoEModel

__all__ = ["routed_logprobs", "state_values", "token_logprobs"]


def token_logprobs(model: MoEModel, packed: Packed, *, replay: bool, temperature: float) -> Tensor:
    """Log-probs float32 [M] of the trained tokens.

    Args:
        model: a policy.
        packed: model inputs.
        replay: use the recorded experts instead of the router's choice.
        temperature: the sampler's.
    """
    recorded = packed.routed_NLK if replay else None
    hidden_MD = model.hidden_at(packed.tokens_N, packed.lengths_B, packed.trainable_M, recorded)
    return _logprobs(model, hidden_MD, packed, temperature)


def routed_logprobs(
    model: MoEModel, packed: Packed, *, replay: bool, temperature: float
) -> tuple[Tensor, Tensor]:
    """The same, and the experts that every input used, int64 [N, L, K]; for diagnostics."""
    result = model(packed.tokens_N, packed.lengths_B, packed.routed_NLK if replay else None)
    hidden_MD = result.hidden_ND[packed.trainable_M]
    return _logprobs(model, hidden_MD, packed, temperature), result.selected_NLK


def _logprobs(model: MoEModel, hidden_MD: Tensor, packed: Packed, temperature: float) -> Tensor:
    logits = model.logits(hidden_MD) / temperature
    return logits.log_softmax(-1).gather(1, packed.targets_M[:, None])[:, 0]


def state_values(model: MoEModel, packed: Packed) -> Tensor:
    """Values [M] of the states in which the trained tokens were sampled; free routing."""
    return model.values(model.hidden_at(packed.tokens_N, packed.lengths_B, packed.trainable_M))
