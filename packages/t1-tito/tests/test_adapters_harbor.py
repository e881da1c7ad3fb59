import copy
import json
from types import SimpleNamespace

import numpy as np
import pytest
from adapter_trials import turns
from hypothesis import given

from t1_tito import AdapterError, FinishReason, Turn, TurnError
from t1_tito.adapters import atif, harbor


def detail():
    return {
        "prompt_token_ids": [[1, 2], [1, 2, 3, 4, 5]],
        "completion_token_ids": [[3, 4], [6, 7]],
        "logprobs": [[-0.1, -0.2], [-0.3, -0.4]],
        "extra": {"routed_experts": ["a", "b"]},
    }


def trajectory():
    def agent_step(step_id, prompt, completion, logprobs):
        metrics = {
            "prompt_tokens": len(prompt),
            "completion_tokens": len(completion),
            "prompt_token_ids": prompt,
            "completion_token_ids": completion,
            "logprobs": logprobs,
        }
        return {"step_id": step_id, "source": "agent", "message": "m", "metrics": metrics}

    return {
        "schema_version": "ATIF-v1.8",
        "agent": {"name": "terminus-2", "version": "2"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "do"},
            agent_step(2, [1, 2], [3, 4], [-0.1, -0.2]),
            {"step_id": 3, "source": "agent", "message": "set up", "llm_call_count": 0},
            agent_step(4, [1, 2, 3, 4, 5], [6, 7], [-0.3, -0.4]),
            {**agent_step(5, [9], [9], [-0.5]), "is_copied_context": True},
        ],
    }


def same_turn(one, other):
    return (
        all(
            np.array_equal(getattr(one, name), getattr(other, name))
            for name in ("prompt_ids", "completion_ids", "logprobs")
        )
        and one.version_sent == other.version_sent
        and one.version_received == other.version_received
        and one.finish_reason == other.finish_reason
        and one.synthetic_length == other.synthetic_length
    )


def test_every_entry_of_a_rollout_detail_is_a_turn():
    first, second = harbor.turns_from_rollout_detail(detail(), version=3, stop_ids={4})
    assert first.prompt_ids.tolist() == [1, 2]
    assert second.completion_ids.tolist() == [6, 7]
    assert (first.finish_reason, second.finish_reason) == (FinishReason.STOP, FinishReason.LENGTH)
    assert (first.version_sent, first.version_received) == (3, 3)
    assert harbor.turns_from_rollout_detail(detail(), version=3)[1].finish_reason == "stop"


def test_the_agents_own_steps_are_turns():
    for given_trajectory in (trajectory(), json.loads(json.dumps(trajectory()))):
        first, second = atif.turns_from_trajectory(given_trajectory, version=3)
        assert first.completion_ids.tolist() == [3, 4]
        assert second.prompt_ids.tolist() == [1, 2, 3, 4, 5]
        assert second.version_received == 3


@given(turns=turns())
def test_turns_survive_the_round_trip_through_step_metrics(turns):
    steps = [
        {"step_id": at + 1, "source": "agent", "message": "", "metrics": atif.to_step_metrics(turn)}
        for at, turn in enumerate(turns)
    ]
    back = atif.turns_from_trajectory({"steps": json.loads(json.dumps(steps))})
    assert all(same_turn(one, other) for one, other in zip(turns, back, strict=True))


@given(turns=turns())
def test_turns_survive_the_round_trip_through_a_rollout_detail_on_shared_fields(turns):
    written = json.loads(json.dumps(harbor.to_rollout_detail(turns)))
    ends = {int(turn.completion_ids[-1]) for turn in turns if turn.completion_ids.size}
    for one, other in zip(
        turns, harbor.turns_from_rollout_detail(written, version=1, stop_ids=ends), strict=True
    ):
        for name in ("prompt_ids", "completion_ids", "logprobs"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("name", ["prompt_token_ids", "completion_token_ids", "logprobs"])
def test_a_turn_that_one_list_lacks_is_refused_with_all_lengths(name):
    record = detail()
    record[name].pop(0)
    with pytest.raises(AdapterError, match=f"{name} has 1.*turn 1 at the latest"):
        harbor.turns_from_rollout_detail(record, version=0)


def test_a_payload_that_a_turn_lacks_is_refused():
    record = detail()
    record["extra"]["routed_experts"].pop()
    with pytest.raises(AdapterError, match=r"extra.routed_experts has 1"):
        harbor.turns_from_rollout_detail(record, version=0)


def test_a_shifted_list_is_found_where_it_first_shows():
    record = detail()
    for name in ("prompt_token_ids", "completion_token_ids", "logprobs"):
        record[name].append(record[name][1])
    record["completion_token_ids"][0] = [3, 4, 5]
    record["logprobs"].pop(0)
    del record["extra"]
    with pytest.raises(AdapterError, match=r"logprobs has 2 turns; .* at turn 0 at the latest"):
        harbor.turns_from_rollout_detail(record, version=0)


@pytest.mark.parametrize("name", ["prompt_token_ids", "completion_token_ids", "logprobs"])
def test_a_list_that_was_never_collected_is_refused(name):
    record = detail()
    del record[name]
    with pytest.raises(AdapterError, match=f"{name} is missing; set collect_rollout_details"):
        harbor.turns_from_rollout_detail(record, version=0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("logprobs", [-0.3], "turn 1: 2 completion_token_ids and 1 logprobs"),
        ("logprobs", None, "turn 1: logprobs is missing"),
        ("completion_token_ids", None, "turn 1: no completion_token_ids and 2 logprobs"),
    ],
)
def test_lists_that_disagree_within_a_turn_name_it(name, value, message):
    record = detail()
    record[name][1] = value
    with pytest.raises(AdapterError, match=message):
        harbor.turns_from_rollout_detail(record, version=0)


def test_ids_that_cannot_be_ids_name_the_turn():
    record = detail()
    record["completion_token_ids"][1][0] = -1
    with pytest.raises(TurnError, match=r"turn 1, completion_ids\[0\]"):
        harbor.turns_from_rollout_detail(record, version=0)


STEP_BREAKS = [
    ("prompt_token_ids", None, "prompt_token_ids is missing"),
    ("completion_token_ids", None, "completion_token_ids is missing"),
    ("logprobs", None, "logprobs is missing"),
    ("logprobs", [-0.3], "2 completion_token_ids and 1 logprobs"),
    ("completion_tokens", 3, "completion_tokens is 3, but 2 ids are recorded"),
    ("prompt_tokens", 6, "prompt_tokens is 6, but 5 ids are recorded"),
]


@pytest.mark.parametrize(("name", "value", "message"), STEP_BREAKS)
def test_a_step_that_contradicts_itself_names_turn_and_step(name, value, message):
    record = copy.deepcopy(trajectory())
    record["steps"][3]["metrics"][name] = value
    with pytest.raises(AdapterError, match=rf"turn 1 \(step 4\): {message}"):
        atif.turns_from_trajectory(record, version=0)


def test_a_step_that_stands_for_several_calls_is_refused():
    record = trajectory()
    record["steps"][1]["llm_call_count"] = 2
    with pytest.raises(AdapterError, match=r"turn 0 \(step 2\): stands for 2 model calls"):
        atif.turns_from_trajectory(record, version=0)


def test_a_step_without_metrics_is_refused_unless_it_called_no_model():
    record = trajectory()
    del record["steps"][1]["metrics"]
    with pytest.raises(AdapterError, match=r"turn 0 \(step 2\): prompt_token_ids is missing"):
        atif.turns_from_trajectory(record, version=0)


def test_a_version_that_nobody_tells_is_refused():
    with pytest.raises(AdapterError, match="pass the weight version"):
        atif.turns_from_trajectory(trajectory())


def test_a_delta_turn_has_no_place_in_whole_prompts():
    delta = Turn([5], [6], [-0.1], 0, 0, "stop", base_length=4)
    with pytest.raises(
        AdapterError, match="turn 1: prompt_ids holds only what follows the first 4"
    ):
        harbor.to_rollout_detail([Turn([1], [2], [-0.1], 0, 0, "stop"), delta])
    with pytest.raises(AdapterError, match="first 4 ids"):
        atif.to_step_metrics(delta)


def test_objects_are_read_as_mappings_are():
    steps = [
        SimpleNamespace(**{**step, "metrics": SimpleNamespace(**step.get("metrics", {}))})
        for step in trajectory()["steps"]
    ]
    assert len(atif.turns_from_trajectory(SimpleNamespace(steps=steps), version=0)) == 2


@pytest.mark.parametrize("module", [harbor, atif])
def test_what_a_record_loses_is_listed_once_and_with_its_reason(module):
    fields = [field for field, _ in module.LOSSY]
    assert len(set(fields)) == len(fields)
    assert all(why for _, why in module.LOSSY)
