"""The warm start: demonstrations as the agent loop would record them, and a repeatable recipe."""

import asyncio
import random

import numpy as np
import torch

from t1_eval import AgentLimits, Completion, Observation, TokenAgent
from t1_reward.synthesis import build_demonstration, generate_task, vocabulary_pieces
from t1_tito import FinishReason
from t1_trainer.critic_warm_up import CriticSettings, critic_from_actor, warm_up_critic
from t1_trainer.policy import ChatFormat, MoEConfig, Tokenizer
from t1_trainer.warm_start import SupervisedSettings, render_demonstration, train_supervised

TOKENIZER = Tokenizer(vocabulary_pieces())
OBSERVATION_TOKENS = 32


class Demonstrator:
    """An engine and a terminal that say what a demonstration says."""

    def __init__(self, steps):
        self.commands = [ChatFormat(TOKENIZER).render_command(step.command) for step in steps]
        self.seen = [Observation(step.output, step.exit_code) for step in steps[:-1]]

    async def generate(self, request):
        ids = np.asarray(self.commands.pop(0), np.int32)
        return Completion(ids, np.zeros(len(ids), np.float32), FinishReason.STOP, 0, 0, None)

    async def run(self, command):
        return self.seen.pop(0)


def test_a_demonstration_has_the_ids_a_trial_of_its_commands_records():
    settings, chat = SupervisedSettings(), ChatFormat(TOKENIZER)
    limits = AgentLimits(40, 100, OBSERVATION_TOKENS, 5_000)
    for seed in range(40):
        task = generate_task(seed, "train")
        rates = (settings.habit_rate, settings.sabotage_rate, settings.fix_rate)
        player = Demonstrator(build_demonstration(task, random.Random(seed), *rates))
        agent = TokenAgent(player, chat, limits, 1.0, 0)
        turns = asyncio.run(agent.run("a", task.task, player)).turns
        ids, mask = render_demonstration(
            task, chat, random.Random(seed), settings, OBSERVATION_TOKENS
        )

        last = turns[-1].tokens
        assert ids == [*last.prompt_ids.tolist(), *last.completion_ids.tolist()]
        sampled = np.concatenate([turn.tokens.completion_ids for turn in turns])
        assert [i for i, trained in zip(ids, mask, strict=True) if trained] == sampled.tolist()


def supervised(seed):
    shape = MoEConfig(vocab_size=len(TOKENIZER), hidden_size=32, num_attention_heads=2)
    settings = SupervisedSettings(steps=3, batch_size=2, seed=seed)
    reports = []
    model = train_supervised(
        shape,
        TOKENIZER,
        settings,
        max_observation_tokens=OBSERVATION_TOKENS,
        on_step=reports.append,
    )
    return torch.cat([p.detach().flatten() for p in model.parameters()]), reports


def test_the_warm_start_is_a_function_of_its_settings():
    (first, reports), (again, _), (other, _) = supervised(0), supervised(0), supervised(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert [report.step for report in reports] == [0, 1, 2]


def test_the_critic_learns_to_explain_returns_it_has_not_seen(make_model, make_samples):
    samples = make_samples(0, [6] * 96)
    for sample in samples:
        # what the return depends on is in sight of every state
        object.__setattr__(sample, "reward", float(sample.tokens[0] % 2))
    actor = make_model()
    frozen = actor.embedding.clone()
    explained = []
    settings = CriticSettings(epochs=8, batch_size=8)
    warm_up_critic(
        critic_from_actor(actor),
        samples[24:],
        samples[:24],
        settings,
        lambda report: explained.append(report.explained_variance),
    )
    assert explained[0] == 0, "a zero head explains nothing"
    assert explained[-1] > 0.2
    assert torch.equal(actor.embedding, frozen)
