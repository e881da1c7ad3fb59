"""What the commands of `t1_tito.cli` do; each returns its exit status."""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ._audit.seams import Relation
from .assembler import assemble
from .audit import audit
from .audit_report import AuditReport, FindingKind
from .boundary import Reason
from .chat_tokenizer import ChatTemplate, ChatTokenizer, byte_table
from .errors import FileFormatError, MissingExtraError, TemplateError, TitoError
from .token_bytes import TokenBytes
from .tokenizer_files import load_chat_tokenizer
from .trial_file import TrialRecord, arrays_of, read_trials, write_trials

_FAILURES: dict[str, Callable[[AuditReport], bool]] = {
    "findings": lambda report: not report.ok,
    "emission_drift": lambda report: report.emission_drift > 0,
    "context_drift": lambda report: report.context_drift > 0,
    "conditioning_exact": lambda report: report.conditioning_exact < 1,
    **{
        kind.value: (lambda report, kind=kind: kind.value in report.finding_counts)
        for kind in FindingKind
    },
}
FAIL_ON = tuple(_FAILURES)
"""What `audit` can be told to fail on."""

_SECONDS_BETWEEN_NOTES = 5.0
# what the assembly and the audit call a boundary that bytes might prove
_UNPROVEN = frozenset({Reason.NO_BYTE_TABLE.value, Relation.CHANGED.value})
_HINT = "hint: at some boundaries the ids differ and may say the same; pass --tokenizer to tell\n"


class _Progress:
    """A note on standard error every few seconds, and the errors of lines."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._last = time.monotonic()
        self.done = 0
        self.errors = 0

    def step(self) -> None:
        self.done += 1
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_NOTES:
            self._last = now
            sys.stderr.write(f"{self._verb} {self.done} trials\n")

    def error(self, error: TitoError) -> None:
        self.errors += 1
        sys.stderr.write(f"{error}\n")


def audit_file(
    path: Path,
    *,
    tokenizer: Path | None,
    opener: Sequence[int] | None,
    fail_on: Sequence[str],
    as_json: bool,
) -> int:
    """Audit every trial of a file; lines that cannot be read are named and passed over."""
    table = _token_bytes(tokenizer)
    progress, failed, unproven = _Progress("audited"), 0, False
    for record in read_trials(path, on_error=progress.error):
        try:
            samples = record.chunks
            given: Any = assemble(record.turns, table) if samples is None else samples
            report = audit(given, record.turns, token_bytes=table, assistant_opener=opener)
        except TitoError as error:
            progress.error(_at(record, error))
            continue
        unproven |= not _UNPROVEN.isdisjoint(report.boundaries)
        broken = [what for what in fail_on if _FAILURES[what](report)]
        failed += bool(broken)
        if as_json:
            line = json.dumps(
                {"trial_id": record.trial_id, "failed_on": broken, **report.to_json()}
            )
        else:
            verdict = f"FAILED on {', '.join(broken)}" if broken else "ok"
            body = "\n".join(f"  {line}".rstrip() for line in str(report).splitlines())
            line = f"trial {record.trial_id}: {verdict}\n{body}\n"
        sys.stdout.write(line + "\n")
        progress.step()
    checked = progress.done + progress.errors
    if not checked:
        raise FileFormatError(f"{path}: no trials")
    total = f"{checked} trials: {failed} failed, {progress.errors} unreadable\n"
    (sys.stderr if as_json else sys.stdout).write(total)
    if unproven and table is None:
        sys.stderr.write(_HINT)
    return 2 if progress.errors else int(failed > 0)


def _at(record: TrialRecord, error: TitoError) -> FileFormatError:
    return FileFormatError(f"{record.where}: trial {record.trial_id}: {error}")


def assemble_file(path: Path, output: Path, *, tokenizer: Path | None) -> int:
    """Assemble every trial of a file; trials that cannot be are named and left out."""
    table = _token_bytes(tokenizer)
    progress, unproven = _Progress("assembled"), False

    def assembled(record: TrialRecord) -> TrialRecord | None:
        nonlocal unproven
        try:
            trial = assemble(record.turns, table)
        except TitoError as error:
            progress.error(_at(record, error))
            return None
        progress.step()
        unproven |= not _UNPROVEN.isdisjoint(one.reason.value for one in trial.boundaries)
        return dataclasses.replace(record, chunks=tuple(arrays_of(one) for one in trial.chunks))

    records = (assembled(record) for record in read_trials(path, on_error=progress.error))
    count = write_trials(output, (record for record in records if record is not None))
    sys.stderr.write(f"wrote {count} trials to {output}\n")
    if unproven and table is None:
        sys.stderr.write(_HINT)
    return 2 if progress.errors else 0


def check_template_of(
    tokenizer: Path,
    *,
    template: Path | None,
    tools: Path | None,
    as_json: bool,
    write_pin: Path | None,
    verify_pin: Path | None,
) -> int:
    """Check a chat template and pin it where asked to, or hold it against a pin alone."""
    # the template modules are needed by this command alone
    from .template_check import check_template  # noqa: PLC0415

    with _no_advice():
        chat = load_chat_tokenizer(tokenizer, template)
    schemas = None if tools is None else _json_file(tools, list)
    _require_syntax(chat, template or tokenizer)
    if verify_pin is not None:
        return _verify_pin(chat, verify_pin, schemas, as_json=as_json)
    report = check_template(chat, **({} if schemas is None else {"tools": schemas}))
    if as_json:
        restored = {name.value: list(by) for name, by in report.restored_by.items()}
        content = {
            "template_arguments": dict(report.template_arguments),
            "cells": [dataclasses.asdict(cell) for cell in report.cells],
            "restored_by": restored,
            "failures": len(report.failures),
            "proven": report.proven,
        }
        sys.stdout.write(json.dumps(content) + "\n")
    else:
        sys.stdout.write(f"{report}\n")
    if write_pin is not None:
        _write_pin(chat, write_pin, schemas, proven=report.proven)
    return 0 if report.proven else 1


def _require_syntax(chat: ChatTokenizer, path: Path) -> None:
    from jinja2 import TemplateSyntaxError  # noqa: PLC0415 needs the extra

    try:
        ChatTemplate(chat).render([{"role": "user", "content": "x"}])
    except TemplateError as error:
        # what it refuses besides is for the check to tell
        if isinstance(error.__cause__, TemplateSyntaxError):
            cause = error.__cause__
            raise FileFormatError(
                f"{path}: chat template, line {cause.lineno}: syntax error: {cause.message}"
            ) from error


def _write_pin(chat: ChatTokenizer, path: Path, tools: Any, *, proven: bool) -> None:
    """Pin the template. Sessions need less than a check asks for: suffix locality only."""
    from .template_pin import pin_template  # noqa: PLC0415

    try:
        pin = pin_template(chat, tools=tools)
    except TemplateError as error:
        sys.stderr.write(
            f"not pinned: sessions need suffix locality only, and it does not hold: {error}\n"
        )
        return
    _write(path, pin.to_json() + "\n")
    sys.stderr.write(f"wrote the pin to {path}\n")
    if not proven:
        groups = ", ".join("+".join(group) for group in pin.groups)
        sys.stderr.write(
            "the template is not proven, but sessions need suffix locality only, and it holds for "
            f"appended {groups}\n"
        )


def _verify_pin(chat: ChatTokenizer, path: Path, tools: Any, *, as_json: bool) -> int:
    from .template_pin import TemplatePin  # noqa: PLC0415

    text = json.dumps(_json_file(path, dict))
    try:
        pin = TemplatePin.from_json(text)
    except TemplateError as error:
        raise FileFormatError(f"{path}: {error}") from error
    problem = None
    try:
        # hashes first: they name what changed where a proof would name what follows from it
        pin.require(ChatTemplate(chat, tools, pin.template_arguments), byte_table(chat, None))
        pin.verify(chat, tools=tools)
    except TemplateError as error:
        problem = str(error)
    if as_json:
        sys.stdout.write(json.dumps({"pin_holds": problem is None, "problem": problem}) + "\n")
    else:
        sys.stdout.write(f"{path}: {problem or 'the pin holds'}\n")
    return int(problem is not None)


@contextmanager
def _no_advice() -> Generator[None]:
    """Without the notes of transformers on what it could do besides, such as with PyTorch."""
    name = "TRANSFORMERS_NO_ADVISORY_WARNINGS"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def replay_case(path: Path) -> int:
    """Run a saved case again."""
    if find_spec("hypothesis") is None:
        raise MissingExtraError("replay needs the test kit: pip install 't1-tito[testing]'")
    from .testing.replay import run_case  # noqa: PLC0415 needs the extra

    outcome = run_case(path)
    sys.stdout.write(f"{outcome}\n")
    return 0 if outcome.passed else 1


def _json_file(path: Path, wanted: type) -> Any:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise FileFormatError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, wanted):
        raise FileFormatError(f"{path}: expected a JSON {wanted.__name__}")
    return content


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise FileFormatError(f"{path}: {error.strerror or error}") from error


def _tokenizer_file(given: Path) -> Path:
    path = given / "tokenizer.json" if given.is_dir() else given
    # read here, so that a wrong path is named as such
    _json_file(path, dict)
    return path


def _token_bytes(given: Path | None) -> TokenBytes | None:
    if given is None:
        return None
    path = _tokenizer_file(given)
    if find_spec("tokenizers") is None:
        raise MissingExtraError("--tokenizer needs: pip install 't1-tito[transformers]'")
    from tokenizers import Tokenizer  # noqa: PLC0415 needs the extra

    from .byte_tables import token_bytes_of  # noqa: PLC0415

    return token_bytes_of(_loaded(path, Tokenizer.from_file))


def _loaded(path: Path, load: Callable[[str], Any]) -> Any:
    try:
        return load(str(path))
    except Exception as error:
        # the libraries raise bare Exception for a file they do not understand
        raise FileFormatError(f"{path}: not a tokenizer: {error}") from error
