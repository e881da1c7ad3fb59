"""Configuration: where a wrong key or value is, what was expected, and who wins a merge."""

import tomllib
from importlib import resources

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from t1_trainer.config import (
    Config,
    OptimizerConfig,
    PolicyConfig,
    PoolConfig,
    PPOConfig,
    RolloutConfig,
)
from t1_trainer.config_files import (
    dump_config,
    load_config,
    load_resolved,
    merge,
    read_preset,
)
from t1_trainer.errors import ConfigError

tables = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
).filter(lambda value: isinstance(value, dict))


def written(tmp_path, name: str, text: str):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stepz = 3", "wrong.toml: unknown key 'stepz'; did you mean 'steps'?"),
        (
            "[optimizer]\nactor_rate = 1.0",
            "wrong.toml: unknown key 'optimizer.actor_rate'; did you mean 'actor_lr'?",
        ),
        ("[ppo]\nqqqq = 1", "unknown key 'ppo.qqqq'; known keys: clip_low, clip_high"),
        ("steps = 'a'", "wrong.toml: steps = 'a': Input should be a valid integer"),
        ("[rollout]\ngather = 0.0", "rollout.gather = 0.0: Input should be greater than 0"),
        ("[reward]\nvariant = 'dense'", "reward.variant = 'dense': Input should be 'test_count'"),
        ("optimizer = 3", "optimizer = 3: Input should be a valid dictionary"),
        ("[ppo]\ncritic_only_steps = 99", r"ppo.critic_only_steps (99) must not exceed steps"),
        (
            "[rollout]\nmax_completion_tokens = 500",
            "rollout.max_completion_tokens (500) must be less than rollout.max_context_tokens",
        ),
        (
            "deterministic = true\n[rollout]\nbatch_size = 120",
            "rollout.max_sandboxes (128) must be at least the 132 trials",
        ),
        ("steps = ", "wrong.toml: is not TOML"),
    ],
)
def test_a_wrong_file_is_named_with_key_and_remedy(tmp_path, text, message):
    with pytest.raises(ConfigError) as caught:
        load_config([written(tmp_path, "wrong.toml", text)])
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_config([tmp_path / "none.toml"])


def test_every_wrong_key_has_its_line(tmp_path):
    file = written(tmp_path, "f.toml", "stepz = 1\nseed = 'x'\n[ppo]\ngama = 1")
    with pytest.raises(ConfigError) as caught:
        load_config([file])
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize(
    "text",
    [
        "[optimizer]\nbeta1 = 1.0",
        "[optimizer]\nbeta2 = 1.0",
        "[rollout]\noversampling = inf",
        "[optimizer]\nactor_lr = nan",
    ],
)
def test_numbers_that_cannot_be_worked_with_are_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"wrong\.toml: \w+\.\w+ = "):
        load_config([written(tmp_path, "wrong.toml", text)])


def test_an_unknown_preset_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"'mimi' is unknown; did you mean 'mini'"):
        read_preset("mimi")


def test_files_win_over_the_preset_and_later_files_over_earlier(tmp_path):
    first = written(
        tmp_path, "a.toml", "steps = 7\n[optimizer]\nactor_lr = 0.5\n[ppo]\ngamma = 0.9"
    )
    second = written(tmp_path, "b.toml", "[optimizer]\nactor_lr = 0.25")
    preset, config = load_config([]), load_config([first, second])
    assert (config.steps, config.optimizer.actor_lr, config.ppo.gamma) == (7, 0.25, 0.9)
    # what no file names stays the preset's
    assert config.optimizer.critic_lr == preset.optimizer.critic_lr
    assert load_config([second, first]).optimizer.actor_lr == 0.5


def test_dotted_flags_win_over_files(tmp_path):
    file = written(tmp_path, "a.toml", "steps = 7\n[optimizer]\nactor_lr = 0.5")
    changed = load_config([file], arguments=["--optimizer.actor-lr", "0.25", "--seed=3"])
    assert (changed.steps, changed.optimizer.actor_lr, changed.seed) == (7, 0.25, 3)


def test_contradictions_are_judged_when_all_sources_are_merged(tmp_path):
    first = written(tmp_path, "a.toml", "steps = 1")
    second = written(tmp_path, "b.toml", "[ppo]\ncritic_only_steps = 2")
    flag = ["--ppo.critic-only-steps", "0"]
    resolved = load_config([first, second], arguments=flag)
    assert load_config([second, first], arguments=flag) == resolved
    assert load_config([first]) == resolved
    for contradictory in ([first, second], [second, first]):
        with pytest.raises(ConfigError, match="must not exceed steps"):
            load_config(contradictory)


def test_flags_that_contradict_each_other_are_refused():
    with pytest.raises(
        ConfigError,
        match=r"configuration: ppo.critic_only_steps \(2\) must not exceed steps \(1\)",
    ):
        load_config([], arguments=["--steps", "1", "--ppo.critic-only-steps", "2"])


@given(tables, tables)
def test_merging_keeps_every_leaf_of_the_winner(base, over):
    merged = merge(base, over)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(base.get(key), dict):
            assert merged[key] == merge(base[key], value)
        else:
            assert merged[key] == value
    assert merged.keys() == base.keys() | over.keys()
    assert all(merged[key] == base[key] for key in base.keys() - over.keys())


@given(tables)
def test_merging_nothing_or_the_same_changes_nothing(table):
    assert merge(table, {}) == merge({}, table) == merge(table, table) == table


def test_a_merge_that_replaces_whole_tables_is_noticed():
    base, over = {"a": {"x": 1, "y": 2}}, {"a": {"x": 3}}
    assert merge(base, over) == {"a": {"x": 3, "y": 2}} != {**base, **over}


configs = st.builds(
    Config,
    seed=st.integers(0, 2**40),
    steps=st.integers(2, 99),
    deterministic=st.booleans(),
    policy=st.builds(
        PolicyConfig, critic=st.sampled_from(["actor", "builtin:mini/critic", "/x y"])
    ),
    pool=st.builds(PoolConfig, path=st.none() | st.just("/somewhere/pool")),
    rollout=st.builds(RolloutConfig, batch_size=st.integers(1, 100), gather=st.just(0.75)),
    optimizer=st.builds(
        OptimizerConfig,
        actor_lr=st.floats(1e-9, 1),
        max_grad_norm=st.none() | st.floats(0.1, 9),
    ),
    ppo=st.builds(PPOConfig, gamma=st.floats(0.1, 1)),
)


@given(configs)
def test_a_resolved_configuration_reads_back_equal(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("run") / "config.toml"
    path.write_text(tomli_w.dumps(dump_config(config)))
    assert load_resolved(path) == config


def test_a_resolved_file_that_lost_a_value_is_not_equal(tmp_path):
    config = load_config([])
    table = dump_config(config)
    del table["optimizer"]["max_grad_norm"]
    path = written(tmp_path, "config.toml", tomli_w.dumps(table))
    assert load_resolved(path) != config


def test_no_optional_setting_has_a_default_that_writing_would_lose():
    # TOML has no null: an unset value is left out, and must be the default on reading
    def optional(model):
        for name, field in model.model_fields.items():
            if hasattr(field.annotation, "model_fields"):
                yield from optional(field.annotation)
            elif type(None) in getattr(field.annotation, "__args__", ()):
                yield name, field.default

    found = dict(optional(Config))
    assert {"path", "max_grad_norm"} <= found.keys()
    assert [name for name, default in found.items() if default is not None] == []


def test_every_shipped_preset_validates_and_states_only_what_differs():
    folder = resources.files("t1_trainer") / "presets"
    names = [p.name for p in folder.iterdir() if p.name.endswith(".toml")]
    assert names
    for name in names:
        config = load_config([], name.removesuffix(".toml"))
        stated = tomllib.loads((folder / name).read_text())
        default = dump_config(Config())
        for section, value in stated.items():
            for key, inner in value.items() if isinstance(value, dict) else [(None, value)]:
                before = default[section] if key is None else default[section].get(key)
                assert inner != before, f"{name}: {section}.{key} repeats the default"
        assert config.steps > config.ppo.critic_only_steps


@pytest.mark.parametrize(
    ("batch", "oversampling", "launched"), [(96, 0.1, 106), (10, 0.1, 11), (10, 0, 10), (3, 0.5, 5)]
)
def test_oversampling_rounds_up_without_float_noise(batch, oversampling, launched):
    rollout = RolloutConfig(batch_size=batch, oversampling=oversampling)
    assert Config(rollout=rollout).launched_trials == launched


def test_the_configuration_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().steps = 3
