"""What several test modules need: a small model, samples for it, and an engine that serves it."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from t1_eval import AgentTurn, GenerateRequest
from t1_tito import Turn
from t1_trainer.policy import MoEConfig, MoEModel
from t1_trainer.policy.decoder import CachedDecoder
from t1_trainer.policy.rounding import exact
from t1_trainer.rollout.engine import LocalEngine
from t1_trainer.samples import Sample

CONFIG = MoEConfig(vocab_size=60, hidden_size=32, num_attention_heads=2, moe_intermediate_size=16)


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def make_model() -> Callable[..., MoEModel]:
    def make(seed: int = 0, *, value_head: bool = False) -> MoEModel:
        torch.manual_seed(seed)
        model = MoEModel(CONFIG, value_head=value_head)
        if model.value_head is not None:
            # a head of zeros would hide whatever the layers below do
            torch.nn.init.normal_(model.value_head, std=0.2)
        return model

    return make


@pytest.fixture(scope="session")
def make_samples() -> Callable[..., list[Sample]]:
    """Samples with random ids, masks, rewards and distinct random experts."""

    def make(seed: int, lengths: Sequence[int], version: int = 0) -> list[Sample]:
        source = np.random.default_rng(seed)
        samples = []
        for number, length in enumerate(lengths):
            mask = np.concatenate([[False], source.random(length - 1) < 0.5])
            mask[-1] = True
            ranks = source.random((length - 1, CONFIG.num_hidden_layers, CONFIG.num_experts))
            samples.append(
                Sample(
                    trial_key=f"trial-{number}",
                    task_id=f"task-{number}",
                    families=("files", "text"),
                    length=1 + number % 3,
                    tokens=source.integers(0, CONFIG.vocab_size, length, np.int32),
                    loss_mask=mask,
                    logprobs=np.where(mask, -4 + source.random(length), 0).astype(np.float32),
                    routed_experts=ranks.argsort(-1)[..., : CONFIG.num_experts_per_tok].astype(
                        np.uint8
                    ),
                    reward=float(source.random() * 1.75),
                    passed=3,
                    total=5,
                    resolved=bool(number % 2),
                    turns=2,
                    weight_version=version,
                )
            )
        return samples

    return make


@pytest.fixture(scope="session")
def make_engine() -> Callable[..., LocalEngine]:
    def make(
        model: MoEModel,
        *,
        capacity: int = 4,
        gather: float = 1.0,
        stop_ids: tuple[int, ...] = (),
        rounded: Callable[[torch.Tensor], torch.Tensor] = exact,
    ) -> LocalEngine:
        decoder = CachedDecoder(model.config, capacity=capacity, max_length=96, rounded=rounded)
        engine = LocalEngine(decoder, stop_ids=stop_ids, gather=gather)
        engine.load(model.state_dict(), 0)
        return engine

    return make


@pytest.fixture(scope="session")
def converse() -> Callable[..., object]:
    """A multi-turn trial on an engine: prompt, completion, observation, and so on."""

    async def run(
        engine: LocalEngine, key: str, turns: int, seed: int = 0, temperature: float = 1.0
    ) -> list[AgentTurn]:
        source = np.random.default_rng([seed, *key.encode()])
        prompt = source.integers(0, CONFIG.vocab_size, source.integers(1, 6)).tolist()
        made: list[AgentTurn] = []
        async with engine.session(key):
            for number in range(turns):
                ids = np.asarray(prompt, np.int32)
                request = GenerateRequest(key, ids, 5, temperature, seed=seed * 1000 + number)
                completion = await engine.generate(request)
                tokens = Turn(
                    ids,
                    completion.ids,
                    completion.logprobs,
                    completion.version_sent,
                    completion.version_received,
                    completion.finish_reason,
                )
                made.append(AgentTurn("", "", 0, tokens, completion.payload))
                observation = source.integers(0, CONFIG.vocab_size, source.integers(1, 5))
                prompt = [*prompt, *completion.ids.tolist(), *observation.tolist()]
        return made

    return run
