"""The pytest plugin of t1-tito: its invariants as test items against a subject of yours.

    pytest --tito-assembler pkg:callable          turns to samples
    pytest --tito-tokenizer PATH                  tokenizer.json or its folder; template beside it
    pytest --tito-template PATH                   a chat template instead of that
    pytest --tito-engine URL                      SGLang or an OpenAI-like server
    pytest --tito-examples N                      cases per invariant

One item per invariant is added to whatever else is collected; `-k tito` runs these alone. A failure
prints the smallest case that was found and writes it as JSON for `t1-tito replay`. Without these
options the plugin does nothing and imports nothing.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

_OPTIONS = ("tito_assembler", "tito_tokenizer", "tito_template", "tito_engine")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("t1-tito", "token-in-token-out invariants against your own stack")
    group.addoption(
        "--tito-assembler", metavar="PKG:CALLABLE", help="turns (dicts) to training samples"
    )
    group.addoption(
        "--tito-tokenizer", metavar="PATH", type=Path, help="a tokenizer.json, or its folder"
    )
    group.addoption("--tito-template", metavar="PATH", type=Path, help="its chat template (Jinja)")
    group.addoption("--tito-engine", metavar="URL", help="an inference server to probe")
    group.addoption(
        "--tito-examples",
        metavar="N",
        type=int,
        default=50,
        help="cases per invariant (default: 50)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add one item per invariant where an option asks for it."""
    if not any(config.getoption(name) for name in _OPTIONS):
        return
    if config.getoption("tito_template") and not config.getoption("tito_tokenizer"):
        raise pytest.UsageError("--tito-template needs --tito-tokenizer")
    examples: Any = config.getoption("tito_examples")
    if examples < 1:
        raise pytest.UsageError("--tito-examples should be at least 1")
    folder = TitoFolder.from_parent(session, name="tito", nodeid="tito")
    items += folder.collect()


class TitoFolder(pytest.Collector):
    """Collects one item per invariant."""

    def collect(self) -> list[pytest.Item]:
        """The items."""
        return list(self._items())

    def _items(self) -> Iterator[pytest.Item]:
        from t1_tito.errors import TitoError  # noqa: PLC0415 only where an option asks for it

        try:
            for name, run in self._checks():
                yield TitoItem.from_parent(self, name=name, run=run)
        except TitoError as error:
            raise pytest.UsageError(str(error)) from error
        except ModuleNotFoundError as error:
            advice = "pip install 't1-tito[testing]'"
            raise pytest.UsageError(f"the --tito options need {error.name}: {advice}") from error

    def _checks(self) -> Iterator[tuple[str, Callable[[], None]]]:
        given: dict[str, Any] = {name: self.config.getoption(name) for name in _OPTIONS}
        chat: Any = None
        if given["tito_tokenizer"]:
            from t1_tito.testing.user_chat import load_chat  # noqa: PLC0415

            chat = load_chat(given["tito_tokenizer"], given["tito_template"])
            examples: Any = self.config.getoption("tito_examples")
            yield from _chat_checks(chat, examples)
        if given["tito_assembler"] or chat is not None:
            yield from self._assembler_checks(chat)
        if given["tito_engine"]:
            yield from _engine_checks(given["tito_engine"])

    def _assembler_checks(self, chat: Any) -> Iterator[tuple[str, Callable[[], None]]]:
        from t1_tito.testing.checks import CHECKS  # noqa: PLC0415
        from t1_tito.testing.conformance import Conformance  # noqa: PLC0415
        from t1_tito.testing.subject import OWN_ASSEMBLER, load_subject  # noqa: PLC0415

        name = self.config.getoption("tito_assembler") or OWN_ASSEMBLER
        examples: Any = self.config.getoption("tito_examples")
        conformance = Conformance(load_subject(name), name, chat, examples)
        for invariant in CHECKS:
            yield f"assembler[{invariant}]", self._runner(conformance, invariant)

    def _runner(self, conformance: Any, invariant: str) -> Callable[[], None]:
        def run() -> None:
            outcome = conformance.check(invariant)
            if outcome.failure is not None:
                raise TitoFailure(self._report(outcome.failure, conformance.name))
            if outcome.status == "not_applicable":
                pytest.skip(outcome.reason)

        return run

    def _report(self, failure: Any, subject: str) -> str:
        from t1_tito.testing.cases import write_case  # noqa: PLC0415

        path = write_case(_case_folder(self.config), failure, subject)
        return f"{failure}\n{failure.case!r}\ncase written, run it again with:\n  t1-tito replay {path}"


class TitoItem(pytest.Item):
    """One invariant."""

    def __init__(self, *, run: Callable[[], None], **given: Any) -> None:
        super().__init__(**given)
        self._run = run

    def runtest(self) -> None:
        """Try it."""
        self._run()

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What broke, without a traceback through this plugin."""
        from t1_tito.errors import TitoError  # noqa: PLC0415

        if isinstance(excinfo.value, TitoFailure | TitoError):
            notes = getattr(excinfo.value, "__notes__", [])
            return "\n".join([str(excinfo.value), *notes])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where it is."""
        return self.config.rootpath, None, f"t1-tito {self.name}"


class TitoFailure(AssertionError):
    """An invariant does not hold; the message has the case."""


def _chat_checks(chat: Any, examples: int) -> Iterator[tuple[str, Callable[[], None]]]:
    from t1_tito.testing.chat_conformance import CHAT_CHECKS, check_chat  # noqa: PLC0415

    for name in CHAT_CHECKS:
        yield (
            f"tokenizer[{name}]",
            lambda name=name: check_chat(chat, name, examples=examples),
        )


def _engine_checks(url: str) -> Iterator[tuple[str, Callable[[], None]]]:
    from t1_tito.testing.engine_probe import PROBE_CHECKS, EngineProbe  # noqa: PLC0415

    probe = EngineProbe(url)
    for name in PROBE_CHECKS:
        yield f"engine[{name}]", lambda name=name: probe.check(name)


def _case_folder(config: pytest.Config) -> Path:
    cache: Any = getattr(config, "cache", None)
    if cache is not None:
        return Path(cache.mkdir("t1-tito"))
    return Path(mkdtemp(prefix="t1-tito-cases-"))
