"""Samples and optimizer state on disk: what is read back is what was written."""

import dataclasses
import resource
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from t1_trainer.errors import StorageError
from t1_trainer.optimizer_files import load_optimizer, save_optimizer
from t1_trainer.policy.storage import save_weights
from t1_trainer.sample_files import load_samples, save_samples
from t1_trainer.samples import Sample


def facts(sample: Sample) -> dict[str, object]:
    return {
        field.name: value.tolist()
        if isinstance(value := getattr(sample, field.name), np.ndarray)
        else value
        for field in dataclasses.fields(sample)
    }


@contextmanager
def files_no_larger_than(size: int):
    """What a full disk does: writes beyond the bound fail with an OSError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(2, 9), min_size=1, max_size=5), seed=st.integers(0, 9))
def test_samples_come_back_equal(make_samples, tmp_path_factory, lengths, seed):
    path = tmp_path_factory.mktemp("samples") / "batch.safetensors"
    samples = make_samples(seed, lengths)
    samples[0] = dataclasses.replace(samples[0], passed=None, reward=1 / 3)
    save_samples(path, samples)
    read = load_samples(path)
    assert [facts(s) for s in read] == [facts(s) for s in samples]
    for name in ("tokens", "loss_mask", "logprobs", "routed_experts"):
        assert getattr(read[0], name).dtype == getattr(samples[0], name).dtype
    assert [p.name for p in path.parent.iterdir()] == ["batch.safetensors"]


def test_a_changed_bit_is_not_equal(make_samples, tmp_path):
    samples = make_samples(0, [4, 5])
    save_samples(tmp_path / "batch", samples)
    samples[1].logprobs[4] = np.nextafter(samples[1].logprobs[4], np.float32(0))
    assert facts(load_samples(tmp_path / "batch")[1]) != facts(samples[1])


def test_a_full_disk_is_a_storage_error_that_names_the_file(make_samples, tmp_path):
    path = tmp_path / "batch.safetensors"
    with files_no_larger_than(200), pytest.raises(StorageError, match=r"batch\.safetensors"):
        save_samples(path, make_samples(0, [9] * 20))
    assert not path.exists()


def test_a_full_disk_for_weights_or_optimizers_is_a_storage_error(make_model, tmp_path):
    _, optimizer = trained(0)
    with files_no_larger_than(100), pytest.raises(StorageError, match="state: cannot be written"):
        save_optimizer(optimizer, tmp_path / "state")
    with files_no_larger_than(100), pytest.raises(StorageError, match="policy"):
        save_weights(make_model(), tmp_path / "policy")
    # large enough for config.json
    with files_no_larger_than(2000), pytest.raises(StorageError, match=r"model\.safetensors"):
        save_weights(make_model(), tmp_path / "policy")


def trained(seed: int, steps: int = 2) -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    for _ in range(steps):
        model(torch.randn(5, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def test_optimizer_state_comes_back_bit_for_bit(tmp_path):
    _, optimizer = trained(0)
    save_optimizer(optimizer, tmp_path / "state")
    _, other = trained(1, steps=0)
    load_optimizer(other, tmp_path / "state")
    saved, read = optimizer.state_dict()["state"], other.state_dict()["state"]
    assert read.keys() == saved.keys()
    for index, slots in saved.items():
        assert read[index].keys() == slots.keys() == {"step", "exp_avg", "exp_avg_sq"}
        assert all(torch.equal(read[index][name], slots[name]) for name in slots)


def test_hyper_parameters_stay_those_of_the_configuration(tmp_path):
    _, optimizer = trained(0)
    save_optimizer(optimizer, tmp_path / "state")
    _, other = trained(1, steps=0)
    other.param_groups[0]["lr"] = 0.5
    load_optimizer(other, tmp_path / "state")
    assert other.param_groups[0]["lr"] == 0.5


def test_an_optimizer_that_has_not_stepped_round_trips_as_empty(tmp_path):
    _, optimizer = trained(0, steps=0)
    save_optimizer(optimizer, tmp_path / "state")
    _, other = trained(1, steps=0)
    load_optimizer(other, tmp_path / "state")
    assert other.state_dict()["state"] == {}
