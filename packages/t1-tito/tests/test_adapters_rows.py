import copy
import dataclasses
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from adapter_trials import one_chunk, same, trained, trials, turns, two_chunks
from hypothesis import given
from hypothesis import strategies as st

from t1_tito import AdapterError, Turn, assemble
from t1_tito.adapters import prime_rl, response_start, responses_of, skyrl, slime, trl, verl
from t1_tito.audit import audit


def skyrl_rows(trial, reward=0.5):
    return skyrl.to_generator_output([trial], rewards=[reward], trajectory_ids=["a"])


# one entry per format: a trial's records, and rows back from one of them
FORMATS = {
    "slime": (lambda trial: slime.to_samples(trial, index=3), slime.from_sample),
    "verl": (verl.to_agent_loop_outputs, verl.from_agent_loop_output),
    "prime_rl": (
        lambda trial: prime_rl.to_training_samples(trial, env_name="e", temperature=1.0),
        prime_rl.from_training_sample,
    ),
    "prime_rl_split": (
        lambda trial: prime_rl.to_split_samples(trial, temperature=1.0),
        prime_rl.from_training_sample,
    ),
    "trl": (
        lambda trial: trl.to_training_sequences(trial, rollout_id="r"),
        trl.from_training_sequence,
    ),
}


@pytest.mark.parametrize("name", FORMATS)
@given(trial=trials())
def test_every_trained_chunk_survives_the_round_trip_bit_for_bit(name, trial):
    write, read = FORMATS[name]
    records = write(trial)
    assert len(records) == len(trained(trial))
    for record, chunk in zip(records, trained(trial), strict=True):
        assert same(read(record), chunk)
        assert same(read(SimpleNamespace(**record)), chunk)
        assert same(read(json.loads(json.dumps(record))), chunk)


@given(batch=st.lists(trials(), min_size=1, max_size=4))
def test_a_batch_survives_the_round_trip_through_skyrl(batch):
    rewards = [float(index) for index in range(len(batch))]
    output = skyrl.to_generator_output(
        batch, rewards=rewards, trajectory_ids=list("abcd")[: len(batch)]
    )
    chunks = [chunk for trial in batch for chunk in trained(trial)]
    rows = skyrl.from_generator_output(output)
    assert len(rows) == len(chunks)
    assert all(same(row, chunk) for row, chunk in zip(rows, chunks, strict=True))


@given(trial=trials())
def test_a_record_is_what_its_row_says_again(trial):
    """The round trip closes in the other direction too: record -> row -> record."""
    for record in slime.to_samples(trial, index=0):
        row = slime.from_sample(record)
        start = response_start(row.loss_mask)
        assert row.tokens.tolist() == record["tokens"]
        assert len(row.tokens) - start == record["response_length"]
        assert row.loss_mask[start:].astype(int).tolist() == record["loss_mask"]
        assert row.logprobs[start:].tolist() == record["rollout_log_probs"]


@given(trial=trials())
def test_the_response_starts_at_the_first_sampled_token(trial):
    for response, chunk in zip(responses_of(trial), trained(trial), strict=True):
        assert response.response_mask[0] == 1
        assert response.prompt_ids + response.response_ids == chunk.tokens.tolist()
        assert not chunk.loss_mask[: len(response.prompt_ids)].any()
        assert sum(response.response_mask) == chunk.loss_mask.sum()
        assert response_start(chunk.loss_mask) == len(response.prompt_ids)


@given(turns=turns())
def test_every_sampled_token_is_trained_by_exactly_one_row(turns):
    trial = assemble(turns)
    sampled = sum(turn.completion_ids.size for turn in turns)
    assert sum(sum(sample["loss_mask"]) for sample in slime.to_samples(trial, index=0)) == sampled
    assert sum(sum(mask) for mask in skyrl_rows(trial)["loss_masks"]) == sampled


@given(turns=turns())
def test_the_audit_finds_nothing_in_rows_that_come_back(turns):
    rows = [slime.from_sample(sample) for sample in slime.to_samples(assemble(turns), index=0)]
    report = audit(rows, turns)
    assert report.emission_drift == 0
    assert not report.findings


@pytest.mark.parametrize("field", ["tokens", "loss_mask", "rollout_log_probs"])
def test_the_audit_finds_a_list_that_is_shifted_by_one(field):
    turns = [
        Turn([1, 2], [3, 4], [-0.1, -0.2], 5, 5, "stop"),
        Turn([1, 2, 3, 4, 5], [6], [-0.3], 6, 6, "stop"),
    ]
    (sample,) = slime.to_samples(assemble(turns))
    assert not audit([slime.from_sample(sample)], turns).findings
    sample[field] = [*sample[field][1:], sample[field][0]]
    assert audit([slime.from_sample(sample)], turns).findings


def test_nothing_before_the_mask_means_the_response_is_empty():
    assert response_start(np.zeros(3, bool)) == 3
    assert response_start(np.array([True, False])) == 0


def test_chunks_of_one_trial_share_reward_and_rollout_id():
    samples = slime.to_samples(two_chunks(), reward=0.5, index=7, group_index=2)
    assert [sample["rollout_id"] for sample in samples] == [7, 7]
    assert [sample["reward"] for sample in samples] == [0.5, 0.5]
    assert [sample["group_index"] for sample in samples] == [2, 2]
    assert [sample["status"] for sample in samples] == ["completed", "truncated"]
    assert [sample["weight_versions"] for sample in samples] == [["5", "6"], ["6"]]
    outputs = verl.to_agent_loop_outputs(two_chunks(), reward_score=0.5)
    assert [output["reward_score"] for output in outputs] == [0.5, 0.5]
    assert [output["num_turns"] for output in outputs] == [4, 2]


def test_a_given_rollout_id_goes_before_the_index():
    assert [s["rollout_id"] for s in slime.to_samples(two_chunks(), index=1, rollout_id=9)] == [
        9,
        9,
    ]


def test_chunks_that_would_be_counted_as_rollouts_are_refused():
    assert slime.to_samples(one_chunk())[0]["rollout_id"] is None
    with pytest.raises(AdapterError, match="2 chunks of one trial need a rollout_id"):
        slime.to_samples(two_chunks())


def test_rows_of_a_trajectory_stand_together_and_the_last_is_marked():
    output = skyrl.to_generator_output(
        [two_chunks(), one_chunk()], rewards=[0.5, 1.0], trajectory_ids=["a", "b"]
    )
    assert output["trajectory_ids"] == ["a", "a", "b"]
    assert output["is_last_step"] == [False, True, True]
    assert output["rewards"] == [0.5, 0.5, 1.0]
    assert output["stop_reasons"] == ["stop", "length", "stop"]


def test_a_batch_needs_one_reward_and_one_id_per_trial():
    with pytest.raises(AdapterError, match="trials has 1, rewards has 2"):
        skyrl.to_generator_output([one_chunk()], rewards=[1.0, 2.0], trajectory_ids=["a"])


def test_trl_has_one_row_per_prompt_and_no_place_for_a_second_chunk():
    output = trl.to_rollout_output([one_chunk(), one_chunk()])
    assert [same(row, one_chunk().chunks[0]) for row in trl.from_rollout_output(output)] == [
        True
    ] * 2
    with pytest.raises(AdapterError, match=r"trial 1: 2 chunks"):
        trl.to_rollout_output([one_chunk(), two_chunks()])


def test_without_an_env_mask_the_whole_completion_trains():
    output = trl.to_rollout_output([one_chunk()])
    del output["env_mask"]
    (row,) = trl.from_rollout_output(output)
    assert row.loss_mask.tolist() == [False, False, True, True, True, True]


def test_temperatures_cover_what_they_are_of():
    whole = prime_rl.to_training_samples(two_chunks(), env_name="e", temperature=0.7)
    assert [sample["temperatures"] for sample in whole] == [[0.7] * 6, [0.7] * 3]
    split = prime_rl.to_split_samples(two_chunks(), temperature=0.7)
    assert [sample["completion_temperatures"] for sample in split] == [[0.7] * 4, [0.7]]


def silent():
    return assemble([Turn([1], [], [], 0, 0, "abort")])


WRITERS = {
    **{name: write for name, (write, _) in FORMATS.items()},
    "skyrl": skyrl_rows,
    "trl_rollout": lambda trial: trl.to_rollout_output([trial]),
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_trial_that_sampled_nothing_is_refused(name):
    with pytest.raises(AdapterError, match="1 turns holds no sampled token"):
        WRITERS[name](silent())


def test_a_batch_names_the_trial_that_it_refuses():
    with pytest.raises(AdapterError, match="trial 1: "):
        skyrl.to_generator_output([one_chunk(), silent()], rewards=[0, 0], trajectory_ids=[0, 1])
    with pytest.raises(AdapterError, match="trial 1: "):
        trl.to_rollout_output([one_chunk(), silent()])


def test_a_chunk_whose_arrays_disagree_is_refused():
    trial = two_chunks()
    broken = dataclasses.replace(trial.chunks[1], logprobs=trial.chunks[1].logprobs[1:])
    trial = dataclasses.replace(trial, chunks=(trial.chunks[0], broken))
    with pytest.raises(
        AdapterError, match=r"chunk 1: .*tokens has 3, loss_mask has 3, logprobs has 2"
    ):
        slime.to_samples(trial, index=0)


def test_a_chunk_that_no_turn_claims_is_refused():
    trial = two_chunks()
    with pytest.raises(AdapterError, match="chunk 1: has loss, but no turn"):
        slime.to_samples(dataclasses.replace(trial, turns=trial.turns[:2]), index=0)


# every list of every format, one element short
LISTS = [
    ("slime", "loss_mask"),
    ("slime", "rollout_log_probs"),
    ("verl", "response_ids"),
    ("verl", "response_mask"),
    ("verl", "response_logprobs"),
    ("prime_rl", "token_ids"),
    ("prime_rl", "mask"),
    ("prime_rl", "logprobs"),
    ("prime_rl_split", "prompt_mask"),
    ("prime_rl_split", "completion_ids"),
    ("prime_rl_split", "completion_mask"),
    ("prime_rl_split", "completion_logprobs"),
    ("trl", "input_ids"),
    ("trl", "completion_mask"),
    ("trl", "old_log_probs"),
]


@pytest.mark.parametrize(("name", "field"), LISTS)
def test_a_list_one_short_is_refused_with_its_name_and_lengths(name, field):
    write, read = FORMATS[name]
    record = copy.deepcopy(write(one_chunk())[0])
    record[field].pop()
    with pytest.raises(AdapterError) as caught:
        read(record)
    assert field in str(caught.value)
    assert str(len(record[field])) in str(caught.value)


@pytest.mark.parametrize(("name", "field"), LISTS)
def test_a_list_that_is_missing_is_refused_or_means_what_it_means_there(name, field):
    write, read = FORMATS[name]
    record = write(one_chunk())[0]
    record[field] = None
    optional = {
        ("slime", "loss_mask"),
        ("slime", "rollout_log_probs"),
        ("verl", "response_logprobs"),
    }
    if (name, field) in optional:
        row = read(record)
        assert row.logprobs is None or row.loss_mask[-4:].all()
        return
    with pytest.raises(AdapterError, match="is missing"):
        read(record)


@pytest.mark.parametrize(
    "field", ["prompt_token_ids", "response_ids", "loss_masks", "rollout_logprobs"]
)
def test_a_column_one_short_is_refused(field):
    output = skyrl_rows(two_chunks())
    output[field].pop()
    with pytest.raises(AdapterError, match=f"{field} has 1"):
        skyrl.from_generator_output(output)


@pytest.mark.parametrize("field", ["response_ids", "loss_masks", "rollout_logprobs"])
def test_a_list_one_short_within_a_row_names_the_row(field):
    output = skyrl_rows(two_chunks())
    output[field][1].pop()
    with pytest.raises(AdapterError, match=f"row 1: .*{field} has 0"):
        skyrl.from_generator_output(output)


@pytest.mark.parametrize("field", ["prompt_ids", "completion_ids", "logprobs", "env_mask"])
def test_columns_of_a_rollout_function_are_checked_too(field):
    output = trl.to_rollout_output([one_chunk(), one_chunk()])
    short = copy.deepcopy(output)
    short[field].pop()
    with pytest.raises(AdapterError, match=f"{field} has 1"):
        trl.from_rollout_output(short)
    if field != "prompt_ids":
        output[field][1] = output[field][1][1:]
        with pytest.raises(AdapterError, match=f"row 1: .*{field} has 3"):
            trl.from_rollout_output(output)


def test_one_row_without_logprobs_among_others_is_refused():
    output = skyrl_rows(two_chunks())
    output["rollout_logprobs"][1] = None
    with pytest.raises(AdapterError, match="row 1: rollout_logprobs is missing"):
        skyrl.from_generator_output(output)
    assert skyrl.from_generator_output({**output, "rollout_logprobs": None})[0].logprobs is None


@pytest.mark.parametrize("length", [-1, 7, None])
def test_a_response_longer_than_its_tokens_is_refused(length):
    (sample,) = slime.to_samples(one_chunk())
    with pytest.raises(AdapterError, match=f"response_length is {length}, tokens has 6"):
        slime.from_sample({**sample, "response_length": length})


@pytest.mark.parametrize("field", ["loss_mask", "rollout_log_probs"])
def test_lists_of_a_sample_are_held_against_its_response_length(field):
    (sample,) = slime.to_samples(one_chunk())
    sample[field].pop()
    with pytest.raises(AdapterError, match=f"{field} has 3, response_length is 4"):
        slime.from_sample({**sample, "remove_sample": True})


def test_a_removed_sample_trains_nothing():
    (sample,) = slime.to_samples(one_chunk())
    assert not slime.from_sample({**sample, "remove_sample": True}).loss_mask.any()


def test_a_loss_on_the_prompt_of_the_split_form_is_refused():
    (sample,) = prime_rl.to_split_samples(one_chunk(), temperature=1.0)
    with pytest.raises(AdapterError, match="prompt_mask has loss"):
        prime_rl.from_training_sample({**sample, "prompt_mask": [True, False]})


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("response_ids", [3, -4, 5, 6], r"response_ids\[1\] is no token id: -4"),
        ("response_ids", [3, 4.5, 5, 6], "response_ids must hold integer ids"),
        ("response_ids", [3, 2**31, 5, 6], r"response_ids\[1\] is no token id"),
        ("response_ids", [[3], [4], [5], [6]], "response_ids must be a flat list"),
        ("response_ids", [[3], [4, 5], [6], []], "response_ids must be a flat list"),
        ("response_ids", 3, "response_ids must be a list"),
        ("response_mask", [1, 0, 2, 1], r"response_mask\[2\] must be 0 or 1, got 2"),
        ("response_logprobs", ["a", "b", "c", "d"], "response_logprobs must hold numbers"),
        ("response_logprobs", [-1, float("nan"), -1, -1], r"logprobs\[1\] must be finite, got nan"),
    ],
)
def test_values_that_are_no_ids_masks_or_numbers_are_refused(field, value, message):
    (output,) = verl.to_agent_loop_outputs(one_chunk())
    with pytest.raises(AdapterError, match=message):
        verl.from_agent_loop_output({**output, field: value})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("slime", "rollout_log_probs"),
        ("verl", "response_logprobs"),
        ("prime_rl", "logprobs"),
        ("prime_rl_split", "completion_logprobs"),
        ("trl", "old_log_probs"),
    ],
)
def test_a_logprob_that_is_not_finite_is_named_in_every_format(name, field, value):
    write, read = FORMATS[name]
    record = copy.deepcopy(write(one_chunk())[0])
    record[field][2] = value
    with pytest.raises(AdapterError, match=rf"{field}\[2\] must be finite") as caught:
        read(record)
    assert (caught.value.field, caught.value.position) == (field, 2)


@pytest.mark.parametrize(
    ("output", "read", "field"),
    [
        (skyrl_rows(two_chunks()), skyrl.from_generator_output, "rollout_logprobs"),
        (
            trl.to_rollout_output([one_chunk(), one_chunk()]),
            trl.from_rollout_output,
            "logprobs",
        ),
    ],
)
def test_a_logprob_that_is_not_finite_names_its_row_of_a_batch(output, read, field):
    output = copy.deepcopy(output)
    output[field][1][0] = float("nan")
    with pytest.raises(AdapterError, match=rf"row 1: {field}\[0\] must be finite") as caught:
        read(output)
    assert (caught.value.where, caught.value.position) == ("row 1", 0)


def test_a_mask_that_is_no_list_is_refused():
    (sample,) = slime.to_samples(one_chunk(), index=0)
    with pytest.raises(AdapterError, match="loss_mask must be a list, got int"):
        slime.from_sample({**sample, "loss_mask": 1})


def test_the_adapters_import_no_framework_and_the_package_not_the_adapters():
    code = (
        "import sys, t1_tito; assert 't1_tito.adapters' not in sys.modules; import t1_tito.adapters;"
        "names = {name.partition('.')[0] for name in sys.modules};"
        "print(names & {'torch', 'pydantic', 'sglang', 'vllm', 'verl', 'skyrl', 'trl', 'harbor'})"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("module", [slime, verl, skyrl, prime_rl, trl])
def test_what_a_format_loses_is_listed_once_and_with_its_reason(module):
    fields = [field for field, _ in module.LOSSY]
    assert len(set(fields)) == len(fields)
    assert all(why and not why.endswith(".") for _, why in module.LOSSY)
    # none of them comes back from a row, and the row's own fields are not among them
    assert not {"tokens", "loss_mask", "logprobs"} & set(fields)
