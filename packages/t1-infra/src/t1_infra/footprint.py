"""The per-device memory footprint of a training plan, term by term (equation 21 of the paper).

With tp tensor, pp pipeline, cp context, dp data and ep expert parallelism over G = tp·pp·cp·dp
devices, P_e expert and P_d dense parameters, a vocabulary of V and T tokens:

    b =  6 P_e / (pp·ep)  +  6 P_d / pp          weights (2 B) and gradients (4 B)
      + 12 P_e / G        + 12 P_d / (pp·dp)     optimizer: master weights and two moments
      +  A T / cp                                activations, A bytes per token
      +  4 V T / cp                              output logits, on the actor's terminal stage
      +  b_0                                     everything else
      <= M

Everything is a whole number of bytes: each term is rounded up on its own. The form is the paper's;
a framework that also shards dense optimizer state over cp, or the logits over tp, needs less.
"""

from dataclasses import asdict, dataclass

from .errors import ArgumentError

_WEIGHT_AND_GRADIENT_BYTES = 2 + 4
_OPTIMIZER_BYTES = 4 + 4 + 4
_LOGIT_BYTES = 4


@dataclass(frozen=True)
class ModelSize:
    """What of a model takes memory.

    Attributes:
        expert_parameters: parameters inside routed experts.
        dense_parameters: all others.
        vocabulary: number of output logits per token.

    Raises:
        ArgumentError: a number is negative.
    """

    expert_parameters: int
    dense_parameters: int
    vocabulary: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            _require_at_least(name, value, 0)


@dataclass(frozen=True)
class ParallelPlan:
    """How a model is spread over devices.

    Attributes:
        devices: training devices G.
        tensor: tensor parallelism.
        pipeline: pipeline stages.
        context: context parallelism.
        data: data parallelism.
        expert: expert parallelism, a divisor of tensor·context·data.

    Raises:
        ArgumentError: the degrees do not multiply to G, or `expert` is no such divisor.
    """

    devices: int
    tensor: int
    pipeline: int
    context: int
    data: int
    expert: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            _require_at_least(name, value, 1)
        product = self.tensor * self.pipeline * self.context * self.data
        if product != self.devices:
            raise ArgumentError(
                "devices",
                f"expected tensor·pipeline·context·data = {product}, got {self.devices}",
            )
        if (self.devices // self.pipeline) % self.expert:
            raise ArgumentError(
                "expert",
                f"expected a divisor of tensor·context·data = {self.devices // self.pipeline}, "
                f"got {self.expert}",
            )


@dataclass(frozen=True)
class Footprint:
    """Bytes on one device, by term.

    Attributes:
        expert_weights: weights and gradients of the routed experts.
        dense_weights: weights and gradients of all other parameters.
        expert_optimizer: master weights and moments of the routed experts.
        dense_optimizer: master weights and moments of all other parameters.
        activations: what the backward pass keeps.
        logits: output logits, 0 on a device that holds none.
        base: what does not depend on the plan.
    """

    expert_weights: int
    dense_weights: int
    expert_optimizer: int
    dense_optimizer: int
    activations: int
    logits: int
    base: int

    @property
    def total(self) -> int:
        """Sum of all terms, in bytes."""
        return sum(asdict(self).values())

    def feasible(self, device_bytes: int) -> bool:
        """Whether the total fits a device of this many bytes."""
        return self.total <= device_bytes


def footprint(
    model: ModelSize,
    plan: ParallelPlan,
    tokens: int,
    *,
    activation_bytes_per_token: int,
    base_bytes: int,
    output_logits: bool,
) -> Footprint:
    """Evaluate equation 21.

    Args:
        model: parameter counts and vocabulary.
        plan: degrees of parallelism.
        tokens: T, length of the longest sequence.
        activation_bytes_per_token: A, calibrated from a measured run.
        base_bytes: b_0, memory that does not depend on the plan, in bytes.
        output_logits: whether the device holds them: the actor's terminal stage does, a critic
            or an inner stage does not.

    Raises:
        ArgumentError: a quantity is negative.
    """
    _require_at_least("tokens", tokens, 0)
    _require_at_least("activation_bytes_per_token", activation_bytes_per_token, 0)
    _require_at_least("base_bytes", base_bytes, 0)
    weights, optimizer = _WEIGHT_AND_GRADIENT_BYTES, _OPTIMIZER_BYTES
    logits = _LOGIT_BYTES * model.vocabulary * tokens if output_logits else 0
    return Footprint(
        expert_weights=_share(weights * model.expert_parameters, plan.pipeline * plan.expert),
        dense_weights=_share(weights * model.dense_parameters, plan.pipeline),
        expert_optimizer=_share(optimizer * model.expert_parameters, plan.devices),
        dense_optimizer=_share(optimizer * model.dense_parameters, plan.pipeline * plan.data),
        activations=_share(activation_bytes_per_token * tokens, plan.context),
        logits=_share(logits, plan.context),
        base=base_bytes,
    )


def _share(total: int, parts: int) -> int:
    """The largest part when whole bytes are divided."""
    return -(-total // parts)


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ArgumentError(name, f"expected at least {least}, got {value}")
