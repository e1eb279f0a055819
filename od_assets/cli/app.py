"""Assemble the command line ``od-release`` from its commands.

Each command imports most of what it needs when it runs: Dagster, pandas and Numba take two seconds to import.
"""

import inspect
import sys
import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.models import ArgumentInfo, OptionInfo

from od_assets.cli import ExitCode, operations, published, releases
from od_assets.cli.declare import QUESTIONS
from od_assets.interrupts import Interrupted, get_received_signal, handle_interrupts
from od_assets.project import load_variables
from od_assets.terminal import escape_unprintable, move_detail_to_file
from od_core.errors import OdError
from od_core.files.durable import make_system_error

COMMANDS: dict[str, Callable[..., None]] = {
    "plan": releases.plan,
    "forecast": releases.forecast,
    "decide": releases.decide,
    "init": releases.init,
    "invent": releases.invent,
    "run": releases.run,
    "report": published.report,
    "status": releases.status,
    "verify": published.verify,
    "doctor": operations.doctor,
    "compare": published.compare,
    "compare-mechanisms": releases.compare_mechanisms,
    "contract": published.contract,
    "ui": operations.ui,
    "sum": published.sum_command,
    "assist": published.assist,
    "replicates": published.replicates,
    "site": published.site,
    "withdraw": published.withdraw,
    "disclose": published.disclose,
    "explain": published.explain,
    "purge": operations.purge,
    "prune": operations.prune,
    "ledger verify": operations.verify_ledger,
    "ledger schema": operations.print_schema,
    "ledger copy": operations.copy_ledger,
}

STATED = tomllib.loads(Path(__file__).with_name("options.toml").read_text(encoding="utf-8"))


def add_typer_signature(name: str, command: Callable[..., None], questions: Mapping[str, str]) -> Callable[..., None]:
    """Return the function of a command, to which a signature that Typer reads is added.

    Args:
        name: name of the command, as ``options.toml`` has it.
        questions: help texts of the options that a function takes as ``**keywords``, by name, after its arguments.
    """
    texts: dict[str, Any] = {}
    for command_names, texts_of_commands in STATED.items():
        if command_names == "*" or name in command_names.split(", "):
            texts |= texts_of_commands
    arguments: list[inspect.Parameter] = []
    keywords: list[inspect.Parameter] = []
    options: list[inspect.Parameter] = []
    signature = inspect.signature(command, eval_str=True)
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            keyword = parameter.replace(kind=parameter.KEYWORD_ONLY, default=None)
            for flag, text in questions.items():
                keywords.append(_annotate_parameter(keyword.replace(name=flag), typer.Option(help=text)))
        elif parameter.annotation is typer.Context:
            arguments.append(parameter)
        else:
            info = _make_typer_info(parameter, texts[parameter.name])
            kind = arguments if isinstance(info, ArgumentInfo) else options
            kind.append(_annotate_parameter(parameter, info))
    command.__signature__ = signature.replace(parameters=[*arguments, *keywords, *options])  # type: ignore[attr-defined]
    return command


def _make_typer_info(parameter: inspect.Parameter, stated: str | Mapping[str, Any]) -> ArgumentInfo | OptionInfo:
    """Return the description of a parameter for Typer: an argument if it has no default, otherwise an option.

    ``stated`` is what ``options.toml`` states of the parameter: its help text, or all its settings, of which ``is``
    may choose otherwise between argument and option.
    """
    settings = {"help": stated} if isinstance(stated, str) else dict(stated)
    flags = settings.pop("names", [f"--{parameter.name.replace('_', '-')}"])
    kind = settings.pop("is", "argument" if parameter.default is parameter.empty else "option")
    info: ArgumentInfo | OptionInfo
    info = typer.Argument(**settings) if kind == "argument" else typer.Option(*flags, **settings)
    return info


def _annotate_parameter(parameter: inspect.Parameter, info: object) -> inspect.Parameter:
    """Return the parameter as a keyword-only one whose annotation has Typer's description, ``info``."""
    return parameter.replace(annotation=Annotated[parameter.annotation, info], kind=parameter.KEYWORD_ONLY)


app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Origin-destination releases with differential privacy."
)
ledger_app = typer.Typer(help="The budget ledger: the spent and the remaining budget of every data set.")
app.add_typer(ledger_app, name="ledger")
ledger_app.callback(invoke_without_command=True)(add_typer_signature("ledger", operations.ledger, {}))
for name, command in COMMANDS.items():
    *groups, last = name.split()
    add_typer_signature(name, command, {question.flag: question.help or question.asks for question in QUESTIONS})
    (ledger_app if groups else app).command(last)(command)


def _print_version(asked: bool) -> None:
    """Print the version and exit if ``asked``, that is, if the option ``--version`` is given."""
    if asked:
        typer.echo(f"od-release {version('od-release')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Handle the options that are given before a command. The help text is that of ``app``."""


def main() -> None:
    """Run a command. Print an error as one public line on standard error, and exit as :class:`ExitCode` says.

    The error is an OdError, that of a file or folder which the system refuses, or an interrupt.
    """
    with handle_interrupts():
        try:
            load_variables()
            app(standalone_mode=True)
        except (Interrupted, Exception) as error:
            number = get_received_signal()  # DuckDB, for one, raises an error of its own for an interrupted query
            cause = Interrupted(number) if number is not None and isinstance(error, Exception) else error
            failure = _to_od_error(cause)
            if failure is None:
                raise
            move_detail_to_file(failure)
            typer.echo(escape_unprintable(str(failure)), err=True)
            sys.exit(ExitCode.from_signal(cause.number) if isinstance(cause, Interrupted) else ExitCode.REFUSED)


def _to_od_error(error: BaseException) -> OdError | None:
    """Return the error to print for an exception. Return None if the exception is a defect of the program."""
    if isinstance(error, Interrupted):
        return error.to_error()
    if isinstance(error, OSError):
        return make_system_error(error)
    return error if isinstance(error, OdError) else None
