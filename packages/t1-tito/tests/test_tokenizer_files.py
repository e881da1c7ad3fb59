import json

import pytest

from t1_tito import FileFormatError, MissingExtraError, tokenizer_files
from t1_tito.tiny import TINY_FOLDER, tiny_tokenizer
from t1_tito.tokenizer_files import load_chat_tokenizer

TINY = tiny_tokenizer()


@pytest.fixture
def alone(tmp_path):
    """The tiny tokenizer.json with nothing beside it."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes((TINY_FOLDER / "tokenizer.json").read_bytes())
    return path


@pytest.mark.parametrize("path", [TINY_FOLDER, TINY_FOLDER / "tokenizer.json"])
def test_a_folder_or_file_gives_tokenizer_template_and_end_of_text(path):
    loaded = load_chat_tokenizer(path)
    assert loaded.encode("hello", add_special_tokens=False) == TINY.encode("hello")
    assert loaded.chat_template == TINY.chat_template
    assert loaded.eos_token_id == TINY.stop_id


def test_a_template_of_ones_own_goes_before_those_beside(tmp_path):
    template = tmp_path / "own.jinja"
    template.write_text("own")
    assert load_chat_tokenizer(TINY_FOLDER, template).chat_template == "own"


def test_the_configuration_may_hold_template_and_opening_token(alone):
    config = {"chat_template": "of the config", "bos_token": {"content": "<|im_start|>"}}
    alone.with_name("tokenizer_config.json").write_text(json.dumps(config))
    loaded = load_chat_tokenizer(alone)
    assert loaded.chat_template == "of the config"
    assert loaded.bos_token_id == TINY.added["<|im_start|>"]


def test_without_a_template_the_options_that_give_one_are_named(alone):
    with pytest.raises(FileFormatError, match=r"no chat template .*--template .*--tito-template"):
        load_chat_tokenizer(alone)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("tokenizer.json", "{", "not JSON"),
        ("tokenizer.json", "[]", "expected a JSON object"),
        ("tokenizer.json", "{}", "not a tokenizer"),
        ("tokenizer_config.json", "[]", "expected a JSON object"),
    ],
)
def test_a_file_that_is_something_else_is_named(alone, name, text, says):
    alone.with_name("chat_template.jinja").write_text("")
    alone.with_name(name).write_text(text)
    with pytest.raises(FileFormatError, match=f"{name}: {says}"):
        load_chat_tokenizer(alone)


def test_a_path_that_leads_nowhere_is_named(tmp_path):
    with pytest.raises(FileFormatError, match="nowhere: No such file"):
        load_chat_tokenizer(tmp_path / "nowhere")
    with pytest.raises(FileFormatError, match="nowhere: No such file"):
        load_chat_tokenizer(TINY_FOLDER, tmp_path / "nowhere")


@pytest.mark.parametrize("module", ["transformers", "jinja2"])
def test_a_missing_extra_is_named(module, monkeypatch):
    real = tokenizer_files.find_spec
    monkeypatch.setattr(tokenizer_files, "find_spec", lambda n: None if n == module else real(n))
    with pytest.raises(MissingExtraError, match=r"pip install 't1-tito\[transformers\]'"):
        load_chat_tokenizer(TINY_FOLDER)
