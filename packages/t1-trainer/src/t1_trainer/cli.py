"""The `t1` command: verbs, and the one place that turns errors into exit codes.

    0 done   1 checked and failed   2 usage or configuration   3 infrastructure   130 interrupted

Results go to stdout, progress and errors to stderr. torch is imported by the verbs that need it.
"""

import datetime as dt
import os
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import tomli_w
import typer

from t1_eval import EvalError
from t1_infra import InfraError
from t1_reward import RewardError
from t1_sandbox import SandboxError
from t1_trainer.config_files import dump_config, load_config
from t1_trainer.errors import TrainerError
from t1_trainer.files import json_text
from t1_trainer.pools import cache_directory

__all__ = ["app", "main"]

_EXIT_CODES = (
    "Exit codes: 0 done, 1 checked and failed, 2 usage or configuration, 3 infrastructure, "
    "130 interrupted (continue with `t1 resume`)."
)
_INTERRUPTED, _INTERRUPTED_CODE = "interrupted; continue with `t1 resume RUN`", 130
# typer carries its own copy of click in some versions: the base class is found, not imported
_ClickException = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[2])
app = typer.Typer(
    name="t1",
    help="Train and evaluate terminal agents. Start with: t1 train",
    epilog=_EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Plain lines instead of a live panel.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", "-c", help="TOML file over the preset; repeatable, later ones win."),
]


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train(
    context: typer.Context,
    config: ConfigFiles = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", help="Run directory (default runs/<time>).")
    ] = None,
    preset: Annotated[str, typer.Option(help="Preset below the files.")] = "mini",
    from_scratch: Annotated[
        bool, typer.Option("--from-scratch", help="Rebuild warm start and critic first.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Build and check everything, train nothing.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print the resolved configuration and end.")
    ] = False,
    list_settings: Annotated[
        bool, typer.Option("--list-settings", help="Explain every dotted setting and end.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Train a terminal agent and show what it gained. Example: t1 train --steps 20 --seed 1.

    Without arguments the embedded default runs: two CPU cores, no network, real sandboxes. Every
    setting can be given as a dotted flag, for example --optimizer.actor-lr 2e-4; see
    --list-settings.
    """
    extra = ["--help"] if list_settings else context.args
    resolved = load_config(config or [], preset, extra)
    if print_config:
        typer.echo(tomli_w.dumps(dump_config(resolved)), nl=False)
        return
    from t1_trainer import commands

    if dry_run:
        _print(commands.dry_run(resolved), as_json=as_json)
        return
    path = output_dir or _fresh_directory("")
    summary = commands.train(resolved, path, from_scratch=from_scratch, quiet=quiet)
    _print_summary(summary, path, as_json=as_json)


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(help="Run directory of an interrupted run.")],
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run from its newest checkpoint. Example: t1 resume runs/first."""
    from t1_trainer import commands

    _print_summary(commands.resume(run, quiet=quiet), run, as_json=as_json)


@app.command(name="eval")
def evaluate(
    run: Annotated[
        Path | None, typer.Argument(help="Run directory; none evaluates the shipped warm start.")
    ] = None,
    checkpoint: Annotated[
        int | None, typer.Option(help="Step of the run's checkpoint (default the newest).")
    ] = None,
    agent: Annotated[str, typer.Option(help="policy, oracle or noop.")] = "policy",
    attempts: Annotated[int, typer.Option("--n-attempts", "-k", min=1, help="Per task.")] = 1,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.")] = 1.0,
    tasks: Annotated[int | None, typer.Option(min=2, help="Held-out tasks (default all).")] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", help="Keeps the trials (default runs/eval-<time>)."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Run the held-out tasks and print the resolved rate. Example: t1 eval runs/first -k 3."""
    from t1_trainer import commands

    result = commands.evaluate(
        commands.EvaluationRequest(run, checkpoint, agent, attempts, temperature, tasks),
        output_dir or _fresh_directory("eval-"),
        quiet=quiet,
    )
    _print_evaluation(result, as_json=as_json)


@app.command(name="warm-start")
def warm_start(
    output_dir: Annotated[Path, typer.Argument(help="Receives actor/, critic/ and origin.json.")],
    seed: Annotated[int, typer.Option(help="Seed of weights, demonstrations and order.")] = 0,
    quiet: Quiet = False,
) -> None:
    """Rebuild the shipped warm start and critic. Example: t1 warm-start mini --seed 0."""
    from t1_trainer import commands

    _print(commands.warm_start(output_dir, seed, quiet=quiet), as_json=True)


@app.command()
def fidelity(
    policy: Annotated[
        str, typer.Argument(help="Policy directory (default the shipped warm start).")
    ] = "builtin:mini/actor",
    trials: Annotated[int, typer.Option(min=2, help="Trials to roll out.")] = 576,
    seed: Annotated[int, typer.Option(help="Seed of tasks and sampling.")] = 0,
    temperature: Annotated[float, typer.Option(help="Sampling temperature, above 0.")] = 1.0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Measure how far the trainer's log-probs are from the sampler's. Example: t1 fidelity.

    Three ways of training the same trials: text kept and encoded again, the sampled ids, and the
    sampled ids with the sampler's experts.
    """
    if not temperature > 0:
        raise typer.BadParameter("must be above 0", param_hint="--temperature")
    from t1_trainer import commands

    request = commands.FidelityRequest(policy, trials, seed, temperature)
    result = commands.fidelity(request, quiet=quiet)
    if as_json:
        _print(result, as_json=True)
        return
    from t1_trainer.fidelity_summary import fidelity_text

    typer.echo(fidelity_text(result))


def _fresh_directory(prefix: str) -> Path:
    return Path("runs") / (prefix + dt.datetime.now().strftime("%Y%m%d-%H%M%S"))


def _print(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text(result, indent=2))
        return
    for name, value in result.items():
        typer.echo(f"{name}: {value}")


def _print_evaluation(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        _print(result, as_json=True)
        return
    from t1_trainer.summary import evaluation_text

    typer.echo(evaluation_text(result))


def _print_summary(summary: dict[str, Any], run: Path, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json_text(summary, indent=2))
        return
    from t1_trainer.summary import summary_text

    typer.echo(summary_text(summary, run))


def _fail(message: str, code: int) -> int:
    print(f"t1: {message}", file=sys.stderr)  # noqa: T201 (the error message of the command)
    return code


def main() -> None:
    """Entry point of the `t1` command."""
    # torch makes this directory on import, by default beside other users' temporary files
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_directory() / "torchinductor"))
    try:
        code = app(prog_name="t1", standalone_mode=False)
        # the parser turns an interrupt into this code
        if code == _INTERRUPTED_CODE:
            _fail(_INTERRUPTED, code)
    except typer.Exit as ended:
        code = ended.exit_code
    except TrainerError as error:
        code = _fail(str(error), error.exit_code)
    except RewardError as error:
        # a pool, task or record that is not what it should be
        code = _fail(str(error), 2)
    except (SandboxError, InfraError, EvalError) as error:
        code = _fail(str(error), 3)
    except OSError as error:
        code = _fail(f"{error.filename or 'input or output'}: {error.strerror or error}", 3)
    except KeyboardInterrupt:
        code = _fail(_INTERRUPTED, _INTERRUPTED_CODE)
    except Exception as error:
        code = _usage_error(error)
    sys.exit(code or 0)


def _usage_error(error: Exception) -> int:
    """Usage errors and aborts of the parser; anything else is a defect and keeps its traceback."""
    if isinstance(error, typer.Abort):
        return _fail(_INTERRUPTED, _INTERRUPTED_CODE)
    if isinstance(error, _ClickException):
        error.show()
        return 2
    raise error
