"""``od-release``: plan, run and look at releases from the command line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer
from rich.text import Text

from od_assets.cli.init_questions import QUESTIONS, Question
from od_assets.cli.printing import (
    WRONG,
    console,
    conversion_text,
    print_findings,
    print_frame,
    print_guarantee,
    print_outcome,
    spent_text,
)
from od_assets.cli.terminal import keep_detail_of, printable
from od_assets.project import DAGSTER_SETTINGS, dagster_home, project_root, var_folder
from od_core.errors import OdError
from od_core.files.durable import PUBLIC_FILE_MODE, make_folder, write_durably
from od_core.ledger.balance import Balance
from od_core.ledger.protocols import Planned
from od_core.privacy.accounting import float_above

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Origin-destination releases with differential privacy."
)
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
if TYPE_CHECKING:  # Dagster takes half a second to import
    from od_assets.series.settings import SeriesSettings


@app.command()
def plan(
    release: Annotated[str, typer.Argument(help="Release series.")] = "us_flights",
    period: Annotated[str | None, typer.Option(help="Period, as 2001-06; the newest if left out.")] = None,
    with_forecast: Annotated[
        bool, typer.Option("--forecast", help="Errors to expect, simulated on what is public already.")
    ] = False,
    epsilon: Annotated[
        list[str] | None, typer.Option(help="Of a forecast: 0.1, 0.3, 1, 3 and 10 if left out; may be given again.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Of a forecast: releases that are simulated.")] = None,
    to: Annotated[Path | None, typer.Option(help="Of a forecast: folder to write its table and figure to.")] = None,
    as_json: Json = False,
) -> None:
    """What a release would spend, and the noise of every level. Reads no record and spends nothing."""
    from od_assets.runs.run_period import planned_period
    from od_assets.series.declarations import declaration

    component = declaration(release)
    settings, period = component.settings(), planned_period(component, period)
    planned = settings.plan(settings.read_geography(), period)
    if with_forecast:
        _print_forecast(settings, planned, epsilon, runs, to, as_json=as_json)
        return
    if epsilon or runs is not None or to is not None:
        raise OdError(
            "OD-FORECAST-OPTIONS", "--epsilon, --runs and --to are of a forecast", next_step="give --forecast with them"
        )
    spent, domain = planned.spent, settings.domain
    guarantee = settings.kind.guarantee(planned, spent)
    if as_json:
        levels = planned.to_frame().to_dict("records")
        typer.echo(
            json.dumps(
                {**planned.facts(), "levels": levels, "guarantee": guarantee, "row": settings.columns.row}, indent=2
            )
        )
        return
    print_frame(f"{release}: what one period measures", planned.to_frame())
    console.print(
        f"A release spends {spent_text(spent)}.{conversion_text(planned)} The cap of data set"
        f" {domain.name!r} is rho {float(domain.cap.allowed_rho()):.6g}"
        f" {'for all periods' if domain.unit.kind == 'user' else f'a {domain.elementary_period}'}.\n"
        f"What a row of the records is: {settings.columns.row}.\n"
    )
    print_guarantee(guarantee)


def _print_forecast(
    settings: SeriesSettings[Any, Any],
    planned: Planned,
    epsilons: list[str] | None,
    runs: int | None,
    to: Path | None,
    *,
    as_json: bool,
) -> None:
    """Errors to expect of a plan, printed, and written where a folder is named."""
    from od_assets.cli.forecast import forecast_of

    found = forecast_of(settings, planned, epsilons, runs)
    if to is not None:
        found.write(to)
    if as_json:
        typer.echo(json.dumps(found.facts(), indent=2))
        return
    for title, frame in found.tables().items():
        print_frame(title, frame)
    console.print(found.source, soft_wrap=True)
    if to is not None:
        console.print(f"Table and figure: {to}", soft_wrap=True)


def init(
    name: Annotated[str, typer.Argument(help="Of the release and of its data set: lower-case letters, digits, _.")],
    further: Annotated[
        list[str] | None, typer.Option("--set", help="Any other field, as geography.unknown=264; may be given again.")
    ] = None,
    **given: str | None,
) -> None:
    """Declare a release of your own: asks what no option says, writes two files, and plans. Releases nothing."""
    from od_assets.cli.init import answered, initialize, places_of

    places_of(name)  # refused before anything is asked
    ask = _asked if sys.stdin.isatty() else None
    fields = dict(each.partition("=")[::2] for each in further or [])
    answers = answered(given, ask, lambda line: console.print(line, soft_wrap=True), fields)
    written = initialize(name, answers, fields)
    areas = ", ".join(f"{number} {level}" for level, number in written.area_counts.items())
    files = "\n".join(map(str, written.files))
    console.print(f"Areas: {areas}.\nWritten:\n{files}\n", soft_wrap=True)
    plan(name, None, with_forecast=False, epsilon=None, runs=None, to=None, as_json=False)


def _asked(question: Question) -> str:
    """The answer of whoever is at the terminal."""
    answer: str = typer.prompt(question.asks, default=question.default, show_default=bool(question.default))
    return answer


def _with_an_option_a_question(command: Callable[..., None]) -> Callable[..., None]:
    """The command, with the questions as options in place of its keywords."""
    option = Parameter.KEYWORD_ONLY
    *own, _keywords = signature(command, eval_str=True).parameters.values()
    asked = [
        Parameter(each.flag, option, default=None, annotation=Annotated[str | None, typer.Option(help=each.asks)])
        for each in QUESTIONS
    ]
    parameters = [own[0], *asked, own[1].replace(kind=option)]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # it is what Typer reads
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


app.command()(_with_an_option_a_question(init))


@app.command()
def run(
    release: Annotated[str, typer.Argument(help="Release series.")] = "us_flights",
    period: Annotated[str | None, typer.Option(help="Period, as 2001-06; the newest if left out.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every period, oldest first.")] = False,
    as_json: Json = False,
) -> None:
    """Release one period, or read it back where it is released: the Dagster job, in this process."""
    from od_assets.runs.run_period import chosen_periods, run_period
    from od_assets.series.declarations import declaration

    if every and period is not None:
        raise OdError("OD-PERIOD", "--all and --period exclude each other", next_step="give one of them")
    component = declaration(release)
    periods = chosen_periods(component, period, every=every)
    prepare_dagster_home()
    outcomes = []
    for each in periods:
        outcomes.append(run_period(component, each, quiet=as_json))
        if not as_json:
            print_outcome(outcomes[-1])
    if as_json:
        typer.echo(json.dumps([outcome.facts for outcome in outcomes], indent=2))
    if not all(outcome.released for outcome in outcomes):
        raise typer.Exit(1)


@app.command()
def status(as_json: Json = False) -> None:
    """Every declared release and period: what is measured, published, spent and left."""
    from od_assets.runs.run_period import period_status
    from od_assets.series.declarations import declaration, declared_releases

    rows = [row for name in declared_releases() for row in period_status(declaration(name))]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_frame("Releases", pd.DataFrame(rows))


@app.command()
def verify(
    release: Annotated[
        str | None, typer.Argument(help="As us_flights/2001-06/r1, or a series; all if left out.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Published releases made anew from their measurements, and held against bundle, database and ledger."""
    from od_assets.runs.verify import verified

    rows = verified(release)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        for row in rows:
            found = "verified" if row["verified"] else Text("NOT VERIFIED", style=WRONG)
            console.print(f"{row['release']}:", found)
            for part, fault in row["faults"].items():
                console.print(f"  {part}: {fault}", soft_wrap=True)
            if "next_step" in row:
                console.print(f"  next step: {row['next_step']}", soft_wrap=True)
        console.print(f"{sum(row['verified'] for row in rows)} of {len(rows)} releases verified.")
    if not all(row["verified"] for row in rows):
        raise typer.Exit(1)


@app.command()
def doctor(
    name: Annotated[str | None, typer.Argument(help="Declaration; all if left out.")] = None,
    period: Annotated[str | None, typer.Option(help="Look at the input of this period, too.")] = None,
    as_json: Json = False,
) -> None:
    """What is wrong with the installation, with what is declared, and with an input. Changes and spends nothing."""
    from od_assets.cli.doctor import diagnosis

    findings = diagnosis(name, period)
    if as_json:
        typer.echo(json.dumps([finding.facts() for finding in findings], indent=2))
    else:
        print_findings(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


@app.command()
def compare(
    before: Annotated[str, typer.Argument(help="Release, as us_flights/2001-05/r1, or its bundle: folder or .zip.")],
    after: Annotated[str, typer.Argument(help="The later one, over the same areas.")],
    level: Annotated[str | None, typer.Option(help="Level of both ends; the coarsest if left out.")] = None,
    origin_level: Annotated[str | None, typer.Option(help="Level of the origins, if another.")] = None,
    destination_level: Annotated[str | None, typer.Option(help="Level of the destinations, if another.")] = None,
    top: Annotated[int, typer.Option(min=1, help="So many of the largest changes.")] = 20,
    as_json: Json = False,
) -> None:
    """The largest changes of flows between two published releases, and which are larger than their uncertainty."""
    from od_assets.cli.compare import compared

    found = compared(before, after, origin_level or level, destination_level or level)
    if as_json:
        typer.echo(json.dumps(found.facts(top), indent=2))
        return
    print_frame(
        f"{found.after} against {found.before}: {found.origin_level} to {found.destination_level}", found.largest(top)
    )
    console.print(
        f"{found.significant} of {len(found.changes)} changes are larger than their uncertainty (marked *): 0 is"
        " outside their 90 % interval. Of pairs that did not change, up to one in ten is marked too.",
        soft_wrap=True,
    )


ledger_app = typer.Typer(help="The budget ledger: what every data set has spent, and what is left of its cap.")
app.add_typer(ledger_app, name="ledger")


@ledger_app.callback(invoke_without_command=True)
def ledger(context: typer.Context, as_json: Json = False) -> None:
    """Cap, spent and left of every data set and elementary period; releases, and draws that were lost."""
    from od_assets.resources.warehouse import Warehouse

    if context.invoked_subcommand is not None:
        return
    balances = Warehouse().existing_ledger().balances()
    if as_json:
        typer.echo(json.dumps([_balance_facts(balance) for balance in balances], indent=2))
        return
    table = [
        {
            "domain": balance.domain,
            "period": balance.period,
            "cap_rho": float(balance.cap),
            "spent_rho": float_above(balance.spent),
            "left_rho": float(balance.left),
            "releases": balance.releases,
            "lost_draws": balance.lost_draws,
        }
        for balance in balances
    ]
    print_frame("Ledger", pd.DataFrame(table))


@ledger_app.command("verify")
def verify_ledger(as_json: Json = False) -> None:
    """Whether the ledger is whole: every entry as it was written, none missing, none older than its witnesses."""
    from od_assets.resources.warehouse import Warehouse

    entries = Warehouse().verify_ledger()
    if as_json:
        typer.echo(json.dumps({"whole": True, "entries": entries}))
    else:
        console.print(f"The ledger is whole: {entries} entries, none edited, none older than a public certificate.")


def _balance_facts(balance: Balance) -> dict[str, Any]:
    amounts = {"cap": balance.cap, "spent": balance.spent, "left": balance.left}
    return {
        "domain": balance.domain,
        "period": balance.period,
        **{name: {"rho": float(rho), "rho_exact": str(rho)} for name, rho in amounts.items()},
        "releases": balance.releases,
        "lost_draws": balance.lost_draws,
    }


@app.command("compare-mechanisms")
def compare_mechanisms(
    comparison: Annotated[
        str | None, typer.Argument(help="Declared comparison: the one of the documents if left out.")
    ] = None,
    flows: Annotated[Path | None, typer.Option(help="Your own table: origin, destination, trips.")] = None,
    zones: Annotated[Path | None, typer.Option(help="Its zone list, one row a zone.")] = None,
    levels: Annotated[str, typer.Option(help="Level columns of the zone list, coarse to fine, as region,zone.")] = "",
    trips: Annotated[str | None, typer.Option(help="Column of counts; leave out for one row a trip.")] = None,
    one_row_a_trip: Annotated[
        bool, typer.Option("--one-row-a-trip", help="Each row is one trip, though other columns may hold trips.")
    ] = False,
    marked: Annotated[str | None, typer.Option(help="public or synthetic: no other data may be compared with.")] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="Compare these alone; may be given again.")] = None,
    epsilon: Annotated[list[str] | None, typer.Option(help="0.1, 1 and 10 if left out; may be given again.")] = None,
    runs: Annotated[int | None, typer.Option(help="Runs of each mechanism and epsilon.")] = None,
    to: Annotated[Path | None, typer.Option(help="Folder to copy tables and figures to.")] = None,
) -> None:
    """Mechanisms compared by their errors on synthetic or public data; killed at any point, it goes on from there."""
    from od_assets.runs.run_comparison import declared_or_given, run_comparison

    component = declared_or_given(comparison, flows, zones, levels, trips, marked, one_row_a_trip=one_row_a_trip)
    choices = {"mechanisms": mechanism, "epsilons": epsilon, "runs": runs}
    component = component.model_copy(update={name: choice for name, choice in choices.items() if choice})
    component.settings()
    prepare_dagster_home()
    outcome = run_comparison(component, to)
    if outcome.failures:
        for line in outcome.failures:
            typer.echo(printable(line), err=True)
        raise typer.Exit(1)
    console.print(f"Tables and figures: {outcome.folder}", soft_wrap=True)


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Of this machine, for this machine alone; 0 is any that is free.")] = 3000,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Name of a proxy in front of it, as od.example.org; may be given again.")
    ] = None,
) -> None:
    """The Dagster UI with its daemon, on the project's own history, for whoever opens the address that is printed."""
    prepare_dagster_home()
    os.chdir(project_root())
    modules = ["-m", "od_assets.cli.whole_session", sys.executable, "-m", "od_assets.cli.ui_server"]
    os.execv(sys.executable, [sys.executable, *modules, str(port), *(allow_host or [])])  # noqa: S606  # our own


def prepare_dagster_home() -> Path:
    """DAGSTER_HOME below ``var``, absolute, with the project's settings; set for this process."""
    home = dagster_home(var_folder())
    make_folder(home)
    settings, present = DAGSTER_SETTINGS.read_bytes(), home / DAGSTER_SETTINGS.name
    if not present.exists() or present.read_bytes() != settings:
        write_durably(present, lambda file: file.write_bytes(settings), mode=PUBLIC_FILE_MODE)
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def main() -> None:
    """Entry point: an OdError is one line on standard error and exit code 2; its detail stays in a closed file."""
    try:
        app(standalone_mode=True)
    except OdError as error:
        keep_detail_of(error)
        typer.echo(printable(str(error)), err=True)
        sys.exit(2)
