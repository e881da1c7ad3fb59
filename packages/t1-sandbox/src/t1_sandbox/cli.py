"""The `t1-sandbox` command."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version

from t1_sandbox.doctor import Row, examine
from t1_sandbox.errors import SandboxError

EXIT_OK = 0
EXIT_INFRASTRUCTURE = 3
_EPILOG = "exit codes: 0 everything holds, 2 usage, 3 something does not hold or cannot be tried"
_WORDS = {True: "yes", False: "NO", None: "-"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
        arguments: Words after the program's name; those of the process when None.

    Returns:
        The exit code.
    """
    options = _parser().parse_args(arguments)
    try:
        rows = asyncio.run(examine())
    except SandboxError as error:
        print(f"t1-sandbox: {error}", file=sys.stderr)  # noqa: T201, the CLI's message
        return EXIT_INFRASTRUCTURE
    _print(rows, as_json=options.json)
    return EXIT_INFRASTRUCTURE if any(row.holds is False for row in rows) else EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="t1-sandbox", description="Local sandboxes; try: t1-sandbox doctor", epilog=_EPILOG
    )
    parser.add_argument("--version", action="version", version=version("t1-sandbox"))
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser(
        "doctor",
        help="show what this host really enforces",
        description="Tries to break out of real sandboxes and shows what held; for example: t1-sandbox doctor --json",
        epilog=_EPILOG,
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser


def _print(rows: Sequence[Row], *, as_json: bool) -> None:
    width = max(len(row.name) for row in rows)
    for row in rows:
        line = f"{row.name:{width}}  {_WORDS[row.holds]:3}  {row.detail}".rstrip()
        print(json.dumps(asdict(row)) if as_json else line)  # noqa: T201, the CLI's result
