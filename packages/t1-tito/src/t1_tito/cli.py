"""The command line: `t1-tito` audits, assembles, checks templates and replays saved cases.

Exit status: 0 all is well; 1 it was checked and failed; 2 wrong usage or unreadable input. Results go
to standard output, progress and errors to standard error.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib.metadata import version
from pathlib import Path
from typing import NoReturn

from ._commands import FAIL_ON, assemble_file, audit_file, check_template_of, replay_case
from .errors import TitoError

_EXAMPLES = """examples:
  t1-tito assemble turns.jsonl -o trials.jsonl      stitch turns into training samples
  t1-tito audit trials.jsonl                        check them against the raw turns
  t1-tito audit trials.jsonl --tokenizer tokenizer.json --opener 151644,77091
  t1-tito check-template --tokenizer ./model --write-pin pin.json
  t1-tito check-template --tokenizer ./model --verify-pin pin.json    at every start
  t1-tito replay case.json                          run a failure that the test kit saved

The smallest file of turns, and its audit:
  echo '{"schema_version":1,"trial_id":"a","turns":[{"prompt_ids":[1,2],"completion_ids":[3],\
"logprobs":[-0.5],"version_sent":0,"version_received":0,"finish_reason":"stop"}]}' > turns.jsonl
  t1-tito audit turns.jsonl

exit status: 0 all is well, 1 checked and failed, 2 wrong usage or unreadable input
"""


def _ids(text: str) -> list[int]:
    try:
        ids = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected ids as in 151644,77091, got {text!r}"
        ) from error
    if min(ids) < 0 or max(ids) >= 2**31:
        raise argparse.ArgumentTypeError(f"expected ids in [0, 2**31), got {text!r}")
    return ids


class _Parser(argparse.ArgumentParser):
    """Guesses what was meant by a command or option that does not exist.

    Attributes:
        given: the arguments to be parsed.
        known: the commands and options that could be meant.
    """

    given: Sequence[str] = ()
    known: Sequence[str] = ()

    @property
    def options(self) -> list[str]:
        """Its own options, as they are written."""
        return [*self._option_string_actions]

    def error(self, message: str) -> NoReturn:
        """End with the usage, the message and the guess."""
        words = [word.partition("=")[0] for word in self.given]
        tried = [word for word in words if word.startswith("--")] + words[:1]
        for word in tried:
            near = [] if word in self.known else get_close_matches(word, self.known, n=1)
            message += "".join(f"; did you mean {one}?" for one in near)
        super().error(message)


def _parser(given: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="t1-tito",
        description="Token-in-token-out trials: exact sampled ids, checked.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"t1-tito {version('t1-tito')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    known = [*_COMMANDS]
    for name, (describe, what) in _COMMANDS.items():
        # the formatter keeps the example's line breaks and leaves wrapping to the texts
        command = commands.add_parser(
            name, help=what, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        describe(command)
        command.given, command.known = given, [*_COMMANDS, *command.options]
        if name == next(iter(given), None):
            known += command.options
    parser.given, parser.known = given, [*known, *parser.options]
    return parser


def _describe_audit(command: argparse.ArgumentParser) -> None:
    command.description = """\
Check the samples of every trial against its raw turns: drift, conditioning, masks, log-probabilities,
lost or doubled text. Trials without chunks are assembled first. Samples without source_turn and
source_index, as other stacks write them, are located in the turns."""
    command.epilog = "example:\n  t1-tito audit trials.jsonl --tokenizer tokenizer.json --json"
    _add_file(command)
    _add_tokenizer(command, required=False)
    command.add_argument(
        "--opener",
        type=_ids,
        metavar="ID,ID..",
        help="ids that open an assistant message, as history has them (see history_opener_ids of a template "
        "pin): also find messages that no turn recorded",
    )
    command.add_argument(
        "--fail-on",
        action="append",
        choices=FAIL_ON,
        metavar="WHAT",
        help="what makes the exit status 1; may be repeated; default: findings. "
        f"One of {', '.join(FAIL_ON)}",
    )
    command.add_argument("--json", action="store_true", help="one JSON object a trial")
    command.set_defaults(run=_audit)


def _audit(given: argparse.Namespace) -> int:
    return audit_file(
        given.file,
        tokenizer=given.tokenizer,
        opener=given.opener,
        fail_on=given.fail_on or ["findings"],
        as_json=given.json,
    )


def _describe_assemble(command: argparse.ArgumentParser) -> None:
    command.description = "Stitch the turns of every trial into samples and write both."
    command.epilog = "example:\n  t1-tito assemble turns.jsonl -o trials.jsonl"
    _add_file(command)
    command.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="OUT.jsonl",
        help="file to write: the same trials with their samples; replaced when all is done",
    )
    _add_tokenizer(command, required=False)
    command.set_defaults(run=_assemble)


def _assemble(given: argparse.Namespace) -> int:
    return assemble_file(given.file, given.output, tokenizer=given.tokenizer)


def _describe_check_template(command: argparse.ArgumentParser) -> None:
    command.description = "Try a chat template on made-up conversations, as text and as ids."
    command.epilog = "example:\n  t1-tito check-template --tokenizer ./model --template chat.jinja"
    _add_tokenizer(command, required=True)
    command.add_argument(
        "--template", type=Path, metavar="FILE", help="chat template to use instead of its own"
    )
    command.add_argument("--tools", type=Path, metavar="FILE", help="JSON list of tool schemas")
    command.add_argument("--json", action="store_true", help="one JSON object")
    pins = command.add_mutually_exclusive_group()
    pins.add_argument(
        "--write-pin", type=Path, metavar="FILE", help="also pin the template and write the pin"
    )
    pins.add_argument(
        "--verify-pin",
        type=Path,
        metavar="FILE",
        help="check nothing but that the template is still what this pin says",
    )
    command.set_defaults(run=_check_template)


def _check_template(given: argparse.Namespace) -> int:
    return check_template_of(
        given.tokenizer,
        template=given.template,
        tools=given.tools,
        as_json=given.json,
        write_pin=given.write_pin,
        verify_pin=given.verify_pin,
    )


def _describe_replay(command: argparse.ArgumentParser) -> None:
    command.description = "Run a case again that the test kit saved; see `pytest --tito-assembler`."
    command.epilog = "example:\n  t1-tito replay case.json"
    command.add_argument(
        "case", type=Path, metavar="CASE.json", help="what a failing test of the kit has saved"
    )
    command.set_defaults(run=_replay)


def _replay(given: argparse.Namespace) -> int:
    return replay_case(given.case)


def _add_file(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        type=Path,
        metavar="FILE.jsonl",
        help="trials as JSON lines, each with its turns; see the example of `t1-tito --help`",
    )


def _add_tokenizer(command: argparse.ArgumentParser, *, required: bool) -> None:
    command.add_argument(
        "--tokenizer",
        type=Path,
        required=required,
        metavar="DIR_OR_JSON",
        help="tokenizer.json, or a folder that holds one; needs t1-tito[transformers]",
    )


_COMMANDS: dict[str, tuple[Callable[[argparse.ArgumentParser], None], str]] = {
    "audit": (_describe_audit, "check samples against the raw turns"),
    "assemble": (_describe_assemble, "stitch turns into samples"),
    "check-template": (_describe_check_template, "does a template keep what it has rendered?"),
    "replay": (_describe_replay, "run a case that the test kit saved"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; None reads those of the process.

    Returns:
        The exit status.
    """
    given = _parser(sys.argv[1:] if arguments is None else arguments).parse_args(arguments)
    try:
        status: int = given.run(given)
        sys.stdout.flush()
    except TitoError as error:
        sys.stderr.write(f"t1-tito {given.command}: {error}\n")
        return 2
    except BrokenPipeError:
        # whoever read the output has seen enough; keep the exit handlers from failing on it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        return 130
    return status
