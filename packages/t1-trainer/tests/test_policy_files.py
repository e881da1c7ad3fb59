"""Policy directories: a round trip is exact, anything else is refused with the file's name."""

import json
from pathlib import Path

import pytest
import torch

from t1_trainer.config import Config
from t1_trainer.critic_warm_up import critic_from_actor
from t1_trainer.errors import PolicyFormatError
from t1_trainer.policy import MoEConfig, MoEModel, PolicyFiles, Tokenizer, load_policy, save_policy
from t1_trainer.policy.storage import load_weights, save_weights
from t1_trainer.session import resolve_policy


@pytest.fixture
def policy(tmp_path) -> tuple[PolicyFiles, Path]:
    tokenizer = Tokenizer(("ls", "cat "))
    torch.manual_seed(0)
    model = MoEModel(
        MoEConfig(len(tokenizer), hidden_size=32, num_attention_heads=2, moe_intermediate_size=16)
    )
    files = PolicyFiles(model, tokenizer)
    save_policy(files, tmp_path / "policy")
    return files, tmp_path / "policy"


def test_a_saved_policy_loads_bit_for_bit(policy):
    files, directory = policy
    loaded = load_policy(directory)
    assert loaded.model.config == files.model.config
    assert loaded.tokenizer.pieces == files.tokenizer.pieces
    saved, read = files.model.state_dict(), loaded.model.state_dict()
    assert saved.keys() == read.keys()
    assert all(torch.equal(saved[name], read[name]) for name in saved)


def test_a_critic_needs_its_value_head(policy, tmp_path):
    files, _ = policy
    critic = critic_from_actor(files.model)
    save_weights(critic, tmp_path / "critic")
    assert load_weights(tmp_path / "critic", value_head=True).value_head is not None
    with pytest.raises(PolicyFormatError, match="value_head"):
        load_weights(tmp_path / "critic")
    with pytest.raises(PolicyFormatError, match="value_head"):
        load_weights(tmp_path / "policy", value_head=True)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(policy, name):
    _, directory = policy
    (directory / name).unlink()
    with pytest.raises(PolicyFormatError, match=name.replace(".", r"\.")):
        load_policy(directory)


def rewrite(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "qwen3_moe"}, "model_type is 'qwen3_moe', expected 't1_tiny_moe'"),
        ({"rope_scaling": 2}, "rope_scaling"),
        ({"hidden_size": 64}, "size mismatch"),
        ({"num_hidden_layers": 4}, r"layers\.3"),
        ({"vocab_size": 264}, "size mismatch"),
        ({"hidden_size": "32"}, "config.json: hidden_size = '32'"),
        ({"num_experts_per_tok": 9}, "config.json: num_experts_per_tok"),
        ({"num_attention_heads": 3}, "config.json: num_attention_heads"),
        ({"rope_theta": 0.0}, "config.json: rope_theta"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(policy, changes, message):
    _, directory = policy
    rewrite(directory / "config.json", **changes)
    with pytest.raises(PolicyFormatError, match=message):
        load_policy(directory)


@pytest.mark.parametrize("content", [b"\xff\x00", b"[1]", b"3"])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_foreign_file_is_refused_and_named(policy, name, content):
    _, directory = policy
    (directory / name).write_bytes(content)
    with pytest.raises(PolicyFormatError, match=name.replace(".", r"\.")):
        load_policy(directory)


def test_a_tokenizer_of_another_size_is_refused(policy):
    _, directory = policy
    Tokenizer(("ls", "cat ", "rm ")).save(directory / "tokenizer.json")
    with pytest.raises(PolicyFormatError, match=r"has 264 ids, config\.json says vocab_size 263"):
        load_policy(directory)


def test_the_shipped_policy_and_critic_load():
    config = Config()
    policy = load_policy(resolve_policy(config.policy.actor))
    critic = load_weights(resolve_policy(config.policy.critic), value_head=True)
    assert critic.config == policy.model.config
    assert len(policy.tokenizer) == policy.model.config.vocab_size


def test_a_policy_that_is_nowhere_says_where_it_was_looked_for():
    with pytest.raises(PolicyFormatError, match=r"'builtin:maxi/actor': .*maxi/actor is not"):
        resolve_policy("builtin:maxi/actor")
