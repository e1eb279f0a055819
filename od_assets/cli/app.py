"""Assemble the command line ``od-release`` from its commands.

Each command imports most of what it needs when it runs: Dagster, pandas and Numba take two seconds to import.
"""

import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated

import typer

from od_assets.cli import operations, published, releases
from od_assets.cli.init import init
from od_assets.cli.init_questions import QUESTIONS
from od_assets.cli.options import described
from od_assets.interrupts import Interrupted, interruptible, received
from od_assets.terminal import keep_detail_of, printable
from od_core.errors import OdError
from od_core.files.durable import of_system

COMMANDS: dict[str, Callable[..., None]] = {
    "plan": releases.plan,
    "forecast": releases.forecast,
    "init": init,
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
    "disclose": published.disclose,
    "explain": published.explain,
    "purge": operations.purge,
    "ledger verify": operations.verify_ledger,
    "ledger schema": operations.print_schema,
    "ledger copy": operations.copy_ledger,
}

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Origin-destination releases with differential privacy."
)
ledger_app = typer.Typer(help="The budget ledger: the spent and the remaining budget of every data set.")
app.add_typer(ledger_app, name="ledger")
ledger_app.callback(invoke_without_command=True)(described("ledger", operations.ledger, {}))
for name, command in COMMANDS.items():
    *groups, last = name.split()
    described(name, command, {question.flag: question.asks for question in QUESTIONS})
    (ledger_app if groups else app).command(last)(command)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"od-release {version('od-release')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version, and exit.")
    ] = False,
) -> None:
    """Handle the options that stand before a command. The help text is that of ``app``."""


def main() -> None:
    """Run a command. Print an error as one public line on standard error, and exit with code 2.

    The error is an OdError, or that of a file or folder which the system refuses. If SIGINT or SIGTERM ended the
    command, exit with code 130 or 143 instead.
    """
    with interruptible():
        try:
            app(standalone_mode=True)
        except (Interrupted, Exception) as error:
            number = received()  # DuckDB, for one, raises an error of its own for an interrupted query
            stopped = Interrupted(number) if number is not None and isinstance(error, Exception) else error
            known = _known(stopped)
            if known is None:
                raise
            keep_detail_of(known)
            typer.echo(printable(str(known)), err=True)
            sys.exit(stopped.exit_code if isinstance(stopped, Interrupted) else 2)


def _known(error: BaseException) -> OdError | None:
    """Return the error to print for an exception. Return None if the exception is a defect of the program."""
    if isinstance(error, Interrupted):
        return error.to_error()
    if isinstance(error, OdError):
        return error
    if isinstance(error, OSError):
        return of_system(error)
    return None
