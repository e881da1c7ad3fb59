"""What the adapters write is what the frameworks' own classes and checks accept."""

import shutil
import sys
import typing
from dataclasses import dataclass
from functools import cache
from typing import Any, Optional, TypedDict, get_type_hints

import framework_sources
import numpy as np
import pytest
from adapter_trials import one_chunk, same, trained, trials, two_chunks
from framework_sources import definitions, harbor_trajectory_class
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from t1_tito import Turn
from t1_tito.adapters import atif, skyrl, trl, verl


@cache
def agent_loop_output():
    given = {"BaseModel": BaseModel, "Optional": Optional, "Any": Any}
    names = ["AgentLoopMetrics", "AgentLoopOutput"]
    return definitions("verl", "agent_loop.py", names, given)["AgentLoopOutput"]


@cache
def skyrl_validator():
    given = {"np": np, "GeneratorOutput": dict}
    names = ["validate_generator_output", "_validate_step_wise_fields"]
    return definitions("skyrl", "trainer_utils.py", names, given)[names[0]]


@cache
def generator_output_columns():
    given = {name: getattr(typing, name) for name in ("Any", "Dict", "List", "Optional", "Union")}
    names = ["TrajectoryID", "GeneratorOutput"]
    tensors = type("torch", (), {"Tensor": object})
    made = definitions(
        "skyrl",
        "base.py",
        names,
        {**given, "TypedDict": TypedDict, "dataclass": dataclass, "torch": tensors},
    )
    return made["TrajectoryID"], set(get_type_hints(made["GeneratorOutput"]))


@cache
def training_sequence():
    given = {"dataclass": dataclass, "RolloutId": str}
    return definitions("trl_async_grpo", "async_rollout_worker.py", ["TrainingSequence"], given)[
        "TrainingSequence"
    ]


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="verl 0.9 is made for Python below 3.13")
@given(trial=trials())
def test_verl_takes_every_output_and_gives_it_back(trial):
    output_class = agent_loop_output()
    outputs = verl.to_agent_loop_outputs(trial, reward_score=0.5)
    for output, chunk in zip(outputs, trained(trial), strict=True):
        assert set(output) <= set(output_class.model_fields)
        real = output_class(**output)
        assert real.reward_score == 0.5
        assert same(verl.from_agent_loop_output(real), chunk)


@given(batch=st.lists(trials(), min_size=1, max_size=3))
def test_skyrls_own_check_accepts_every_output(batch):
    validate = skyrl_validator()
    trajectory_id, columns = generator_output_columns()
    ids = [trajectory_id(instance_id="i", repetition_id=at) for at in range(len(batch))]
    output = skyrl.to_generator_output(batch, rewards=[1.0] * len(batch), trajectory_ids=ids)
    assert set(output) <= columns
    validate(len(batch), output, step_wise=True)


def test_skyrls_own_check_fires_on_what_the_adapter_refuses():
    output = skyrl.to_generator_output([two_chunks()], rewards=[1.0], trajectory_ids=["a"])
    output["loss_masks"][1] = []
    with pytest.raises(AssertionError, match="same length"):
        skyrl_validator()(1, output, step_wise=True)


@given(trial=trials())
def test_trl_takes_every_sequence_and_gives_it_back(trial):
    sequence_class = training_sequence()
    rows = trl.to_training_sequences(trial, rollout_id="r")
    for row, chunk in zip(rows, trained(trial), strict=True):
        assert same(trl.from_training_sequence(sequence_class(**row)), chunk)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="harbor is made for Python 3.12 and later")
def test_harbor_takes_step_metrics_and_gives_them_back():
    turns = [
        Turn([1, 2], [3, 4], [-0.5, -0.25], 5, 6, "stop"),
        Turn([1, 2, 3, 4, 5], [6], [-0.125], 6, 6, "length", synthetic_length=1),
    ]
    trajectory = harbor_trajectory_class()(
        agent={"name": "a", "version": "1"},
        steps=[
            {"step_id": 1, "source": "user", "message": "do"},
            *(
                {
                    "step_id": at + 2,
                    "source": "agent",
                    "message": "m",
                    "metrics": atif.to_step_metrics(turn),
                }
                for at, turn in enumerate(turns)
            ),
        ],
    )
    assert trajectory.schema_version == "ATIF-v1.8"
    for read in (trajectory, trajectory.to_json_dict()):
        back = atif.turns_from_trajectory(read)
        assert [turn.completion_ids.tolist() for turn in back] == [[3, 4], [6]]
        assert [turn.logprobs.tolist() for turn in back] == [[-0.5, -0.25], [-0.125]]
        assert [turn.version_received for turn in back] == [6, 6]
        assert [turn.finish_reason for turn in back] == ["stop", "length"]
        assert back[1].synthetic_length == 1


@pytest.mark.skipif(sys.version_info < (3, 12), reason="harbor is made for Python 3.12 and later")
def test_reading_harbors_models_leaves_the_cache_as_it_was(tmp_path, monkeypatch):
    """Bytecode in the cache would be read as damage."""
    fetched = framework_sources.package_folder("harbor")
    for path in fetched.glob("*.py"):
        shutil.copy(path, tmp_path)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(framework_sources, "package_folder", lambda name: tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    assert harbor_trajectory_class.__wrapped__().__name__ == "Trajectory"
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="verl 0.9 is made for Python below 3.13")
def test_the_classes_reject_what_is_not_theirs():
    """The checks above can fail: a list that is not one of numbers is refused by verl's class."""
    (output,) = verl.to_agent_loop_outputs(one_chunk())
    with pytest.raises(ValueError, match="response_mask"):
        agent_loop_output()(**{**output, "response_mask": None})
