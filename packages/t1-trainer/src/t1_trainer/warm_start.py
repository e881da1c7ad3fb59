"""The supervised warm start: the stand-in for the paper's fine-tuned checkpoint.

Demonstrations come from the pool's own generators and are flawed on purpose: some skills are mostly
shown done wrong (habits), and any step may be skipped or spoilt. The policy therefore knows every
command but often decides badly, which is what reinforcement learning has to repair. Demonstrations
are rendered through the same chat template as the agent loop, so their ids are what a trial of the
same commands would record.

Short tasks come first (a curriculum); the loss is cross-entropy on commands, and a tenth of it on
everything else, which teaches copying earlier.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from t1_reward.synthesis import SynthesizedTask, build_demonstration, generate_task
from t1_trainer.policy import ChatFormat, MoEConfig, MoEModel, Tokenizer

__all__ = ["SupervisedReport", "SupervisedSettings", "render_demonstration", "train_supervised"]

_CONTEXT_WEIGHT = 0.1
# demonstrations share no task with pools of seeds below 1000: those draw from below this number
_FIRST_TASK_SEED = 1_000_000_000


@dataclass(frozen=True)
class SupervisedSettings:
    """Recipe of the committed warm start.

    Attributes:
        steps: optimizer steps.
        batch_size: demonstrations per step.
        learning_rate: peak rate; linear warm-up over 50 steps, then linear decay to 3 %.
        curriculum_steps: steps on one subgoal, then as many on up to two.
        habit_rate: how often a habit skill is shown done wrong.
        sabotage_rate: how often any subgoal is skipped, cut short or given a wrong argument.
        fix_rate: how often a habit is shown wrong and then repaired.
        seed: fixes initial weights, tasks and flaws.
    """

    steps: int = 1200
    batch_size: int = 32
    learning_rate: float = 3e-3
    curriculum_steps: int = 120
    habit_rate: float = 0.6
    sabotage_rate: float = 0.15
    fix_rate: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class SupervisedReport:
    """State after a step: cross-entropy and accuracy on command tokens."""

    step: int
    loss: float
    accuracy: float


def render_demonstration(
    task: SynthesizedTask,
    chat: ChatFormat,
    source: random.Random,
    settings: SupervisedSettings,
    max_observation_tokens: int,
) -> tuple[list[int], list[bool]]:
    """Ids and loss mask of one demonstration, as the agent loop would have recorded it."""
    steps = build_demonstration(
        task, source, settings.habit_rate, settings.sabotage_rate, settings.fix_rate
    )
    ids = chat.render_instruction(task.instruction)
    mask = [False] * len(ids)
    for step in steps:
        command = chat.render_command(step.command)
        ids += command
        mask += [True] * len(command)
        if step.output is not None:
            seen = chat.render_observation(step.output, step.exit_code, max_observation_tokens)
            ids += seen
            mask += [False] * len(seen)
    return ids, mask


def train_supervised(
    config: MoEConfig,
    tokenizer: Tokenizer,
    settings: SupervisedSettings,
    *,
    max_observation_tokens: int,
    on_step: Callable[[SupervisedReport], None] = lambda report: None,
) -> MoEModel:
    """Train a policy from scratch; on one thread the result is a function of the settings."""
    torch.manual_seed(settings.seed)
    model = MoEModel(config)
    optimizer = torch.optim.AdamW(
        model.parameters(), settings.learning_rate, betas=(0.9, 0.98), weight_decay=0.01, fused=True
    )
    source = random.Random(settings.seed)  # noqa: S311 (not for cryptography)
    chat = ChatFormat(tokenizer)
    next_seed = _FIRST_TASK_SEED * (settings.seed + 1)
    for step in range(settings.steps):
        longest = 1 + step // settings.curriculum_steps if settings.curriculum_steps else 3
        demonstrations: list[tuple[list[int], list[bool]]] = []
        while len(demonstrations) < settings.batch_size:
            task = generate_task(next_seed, "train")
            next_seed += 1
            if len(task.subgoals) <= longest or longest > 2:
                demonstrations.append(
                    render_demonstration(task, chat, source, settings, max_observation_tokens)
                )
        for group in optimizer.param_groups:
            group["lr"] = _rate(settings, step)
        loss, accuracy = _loss(model, demonstrations)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        on_step(SupervisedReport(step, accuracy[0], accuracy[1]))
    return model


def _rate(settings: SupervisedSettings, step: int) -> float:
    warm = min(1.0, (step + 1) / 50)
    return settings.learning_rate * warm * max(0.03, 1 - step / settings.steps)


def _loss(
    model: MoEModel, demonstrations: list[tuple[list[int], list[bool]]]
) -> tuple[torch.Tensor, tuple[float, float]]:
    """Weighted cross-entropy, and (loss, accuracy) on command tokens."""
    inputs = torch.tensor([i for ids, _ in demonstrations for i in ids[:-1]])
    targets = torch.tensor([i for ids, _ in demonstrations for i in ids[1:]])
    commands = torch.tensor([m for _, mask in demonstrations for m in mask[1:]])
    lengths = torch.tensor([len(ids) - 1 for ids, _ in demonstrations])
    logits = model.logits(model(inputs, lengths).hidden_ND)
    losses = F.cross_entropy(logits, targets, reduction="none")
    on_commands = losses[commands].mean()
    right = (logits.argmax(-1) == targets)[commands].float().mean()
    total = on_commands + _CONTEXT_WEIGHT * losses[~commands].mean()
    return total, (on_commands.item(), right.item())
