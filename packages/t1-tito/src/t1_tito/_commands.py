"""What the commands of `t1_tito.cli` do; each returns its exit status."""

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .assembler import assemble
from .audit import audit
from .audit_report import AuditReport, FindingKind
from .errors import FileFormatError, MissingExtraError, TemplateError, TitoError
from .token_bytes import TokenBytes
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


class _Progress:
    """A note on standard error every few seconds, and the errors of lines."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._count = 0
        self._last = time.monotonic()
        self.errors = 0

    def step(self) -> None:
        self._count += 1
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_NOTES:
            self._last = now
            sys.stderr.write(f"{self._verb} {self._count} trials\n")

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
    progress, failed = _Progress("audited"), 0
    for record in read_trials(path, on_error=progress.error):
        try:
            samples = record.chunks
            given: Any = assemble(record.turns, table) if samples is None else samples
            report = audit(given, record.turns, token_bytes=table, assistant_opener=opener)
        except TitoError as error:
            progress.error(FileFormatError(f"trial {record.trial_id}: {error}"))
            continue
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
    return 2 if progress.errors else int(failed > 0)


def assemble_file(path: Path, output: Path, *, tokenizer: Path | None) -> int:
    """Assemble every trial of a file; trials that cannot be are named and left out."""
    table = _token_bytes(tokenizer)
    progress = _Progress("assembled")

    def assembled(record: TrialRecord) -> TrialRecord | None:
        try:
            trial = assemble(record.turns, table)
        except TitoError as error:
            progress.error(FileFormatError(f"trial {record.trial_id}: {error}"))
            return None
        progress.step()
        return dataclasses.replace(record, chunks=tuple(arrays_of(one) for one in trial.chunks))

    records = (assembled(record) for record in read_trials(path, on_error=progress.error))
    count = write_trials(output, (record for record in records if record is not None))
    sys.stderr.write(f"wrote {count} trials to {output}\n")
    return 2 if progress.errors else 0


def check_template_of(
    tokenizer: Path, *, template: Path | None, tools: Path | None, as_json: bool, pin: Path | None
) -> int:
    """Check a chat template, and pin it where asked to."""
    # the template modules are needed by this command alone
    from .template_check import check_template  # noqa: PLC0415
    from .template_pin import pin_template  # noqa: PLC0415

    chat = _chat_tokenizer(tokenizer, template)
    schemas = None if tools is None else _json_file(tools, list)
    given = {} if schemas is None else {"tools": schemas}
    report = check_template(chat, **given)
    if as_json:
        restored = {name.value: list(by) for name, by in report.restored_by.items()}
        content = {
            "template_arguments": dict(report.template_arguments),
            "cells": [dataclasses.asdict(cell) for cell in report.cells],
            "restored_by": restored,
            "failures": len(report.failures),
        }
        sys.stdout.write(json.dumps(content) + "\n")
    else:
        sys.stdout.write(f"{report}\n")
    if pin is not None:
        try:
            text = pin_template(chat, **given).to_json()
        except TemplateError as error:
            sys.stderr.write(f"not pinned: {error}\n")
            return 1
        _write(pin, text + "\n")
        sys.stderr.write(f"wrote the pin to {pin}\n")
    return int(bool(report.failures))


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


def _chat_tokenizer(given: Path, template: Path | None) -> Any:
    path = _tokenizer_file(given)
    if find_spec("transformers") is None or find_spec("jinja2") is None:
        raise MissingExtraError("check-template needs: pip install 't1-tito[transformers]' jinja2")
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415 needs the extra

    beside = path.with_name("tokenizer_config.json")
    config = _json_file(beside, dict) if beside.exists() else {}
    chat = _loaded(path, lambda name: PreTrainedTokenizerFast(tokenizer_file=name))
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        if token is not None:
            setattr(chat, name, token["content"] if isinstance(token, dict) else token)
    chat.chat_template = _template(path, config, template)
    return chat


def _template(path: Path, config: dict[str, Any], given: Path | None) -> str:
    beside = path.with_name("chat_template.jinja")
    file = given or (beside if beside.exists() else None)
    if file is not None:
        try:
            return file.read_text(encoding="utf-8")
        except OSError as error:
            raise FileFormatError(f"{file}: {error.strerror or error}") from error
    template = config.get("chat_template")
    if not isinstance(template, str):
        raise FileFormatError(
            f"{path.parent}: no chat template beside {path.name}; pass --template"
        )
    return template


def _loaded(path: Path, load: Callable[[str], Any]) -> Any:
    try:
        return load(str(path))
    except Exception as error:
        # the libraries raise bare Exception for a file they do not understand
        raise FileFormatError(f"{path}: not a tokenizer: {error}") from error
