"""Declare, plan, forecast and run releases, show their state, and compare mechanisms."""

from __future__ import annotations

import atexit
import gc
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from od_assets.checks.expectation_process import run_expectation_process
from od_assets.cli import ExitCode, project_folders
from od_assets.cli.declare import parse_field_values, refuse_unwritable_file, write_text
from od_assets.cli.printing import (
    format_sentence,
    print_frame,
    print_guarantee,
    print_outcome,
    print_plan,
    print_promise,
    print_status,
    say,
)
from od_assets.interrupts import Interrupted, iterate_until_interrupt
from od_assets.project import find_current_project, prepare_dagster_home
from od_assets.terminal import console, escape_unprintable, print_json
from od_core.errors import OdError
from od_core.files.durable import is_locked

if TYPE_CHECKING:
    from dagster import JobDefinition

    from od_assets.runs.jobs import Outcome
    from od_assets.series.comparison import Comparison, KnownTableSection
    from od_assets.series.series import G, P, Series
    from od_core.privacy.plan import Plan as PrivacyPlan


def init(name: str, further: list[str] | None = None, **given: str | None) -> None:
    """Declare a new release: ask for the missing options, write its files, and print its plan. Releases nothing."""
    from od_assets.cli.interview import collect_answers
    from od_assets.cli.new_declaration import initialize, locate_new_files

    locate_new_files(name)  # refuses a taken name before any question
    fields, at_terminal = parse_field_values(further or []), sys.stdin.isatty()
    try:
        if at_terminal:
            say("init.begin", "\n")
        answers = collect_answers(given, fields)
        if at_terminal:
            options = [f"--{flag.replace('_', '-')}={answer}" for flag, answer in answers.items() if answer]
            field_options = [f"--set={field_value}" for field_value in further or []]
            command = shlex.join(["od-release", "init", name, *options, *field_options])
            console.print(format_sentence("init.again", command=command), "\n", soft_wrap=True)
        files, area_counts = initialize(name, answers, fields)
    except (Interrupted, typer.Abort) as stopped:
        say("init.stopped")
        code = ExitCode.from_signal(stopped.number) if isinstance(stopped, Interrupted) else ExitCode.FAULT_FOUND
        raise typer.Exit(code) from None
    areas = ", ".join(f"{number} {level}" for level, number in area_counts.items())
    file_names = "\n".join(map(str, files))
    console.print(f"Areas: {areas}.\nWritten:\n{file_names}\n", soft_wrap=True)
    plan(name)
    say("init.next", name=name)


def plan(
    release: str,
    period: str | None = None,
    verbose: bool = False,
    explain: bool = False,
    target: list[str] | None = None,
    bounds: bool = False,
    users: list[str] | None = None,
    bound: list[str] | None = None,
    table: str | None = None,
    runs: int | None = None,
    to: Path | None = None,
    page: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print what a release would spend and what could be read in it, the smallest budget for targets, or bounds.

    Reads no record and spends nothing.
    """
    _refuse_unfit_options(target, table, to, page, [*(users or ()), *(bound or ())], bounds=bounds)
    series, planned = _plan_series(release, period)
    project_folders().hold_to_declared(series.domain)
    if bounds:
        from od_assets.cli.target_plan import compare_contribution_bounds, print_contribution_bounds

        print_contribution_bounds(
            compare_contribution_bounds(series, planned, users or [], table, bound or [], runs), as_json=as_json
        )
    elif target:
        from od_assets.cli.target_plan import SIMULATED, plan_for_targets, print_target_plan, write_declaration

        for_targets = plan_for_targets(series, planned, target, table, SIMULATED if runs is None else runs)
        print_target_plan(for_targets, as_json=as_json)
        if to is not None:
            write_declaration(for_targets, to)
    else:
        _print_declared_plan(series, planned, page, verbose=verbose, explain=explain, as_json=as_json)


def _refuse_unfit_options(
    target: list[str] | None,
    table: str | None,
    to: Path | None,
    page: Path | None,
    bounds_options: list[str],
    *,
    bounds: bool,
) -> None:
    """Raise OdError if options of :func:`plan` do not fit each other: it plans for targets, for bounds or for neither.

    ``bounds_options`` are the values of the options that belong to ``--bounds``.
    """
    if not target and (to is not None or (table is not None and not bounds)):
        name = "--to" if table is None else "--table"
        raise OdError("OD-TARGET", f"{name} is for targets, and there is no target", next_step="add --target")
    if (bounds and (target or page is not None)) or (bounds_options and not bounds):
        message = "--users and --bound belong to --bounds, which takes neither targets nor a planning page"
        raise OdError("OD-BOUNDS-OPTIONS", message, next_step="give --bounds alone with its options")
    if target and page is not None:
        message = "a planning page begins with the declared budget, and not with that for targets"
        step = "declare the budget for the targets with --to, and make the page after that"
        raise OdError("OD-TARGET", message, next_step=step)


def _print_declared_plan(
    series: Series[P, G], plan: PrivacyPlan, page: Path | None, *, verbose: bool, explain: bool, as_json: bool
) -> None:
    """Print a plan with the declared budget, and write its planning page to the path ``page`` unless that is None."""
    if page is not None:
        write_planning_page(series, plan, page)
    if as_json:
        levels = plan.to_frame().to_dict("records")
        facts = {"levels": levels, "guarantee": _describe_guarantee(series, plan), "row": series.columns.row}
        print_json({**plan.facts(), **facts})
        return
    print_plan(series, plan, verbose=verbose)
    if explain:
        print_guarantee(_describe_guarantee(series, plan))
    else:
        from od_core.meaning.subject import Subject

        print_promise(Subject.from_plan(plan, series.about_facts), plan.spent)
    if page is not None:
        console.print(f"Planning page: {page}", soft_wrap=True)


def _plan_series(release: str, period: str | None) -> tuple[Series[Any, Any], PrivacyPlan]:
    """Return a declared series and its plan for a period, by default the newest.

    Raises OdError if there is no such series or period, or the declaration or the plan is refused.
    """
    from od_assets.runs.period_status import choose_period_to_plan
    from od_assets.series.reading import read_declared_series

    series = read_declared_series(release)
    period = choose_period_to_plan(series, period)
    with console.status("Planning"):
        return series, series.plan(series.read_geography(), period)


def _describe_guarantee(series: Series[P, G], plan: PrivacyPlan) -> dict[str, str]:
    """Return the sentences on the guarantee of a plan, by name; with ``year`` if a bound of a year is declared."""
    from od_core.meaning.subject import Subject

    subject = Subject.from_plan(plan, series.about_facts)
    guarantee = series.kind.describe_guarantee(plan, plan.spent, subject)
    if plan.unit.max_trips_year is not None:
        from od_core.publication.certify import describe_year_cost

        # Years differ by at most one period, such as a leap day. The certificate counts those of its own year.
        periods = len(series.domain.periods_of_year(series.periods.first))
        guarantee["year"] = describe_year_cost(plan, plan.spent, periods, subject)
    return guarantee


def write_planning_page(series: Series[P, G], plan: PrivacyPlan, path: Path) -> None:
    """Write the planning page of a plan. An existing file is replaced.

    Raises:
        OdError: :func:`od_core.flows.planning_page.render_planning_page` refuses the plan, or the file cannot be
            written.
    """
    from od_core.flows.planning_page import render_planning_page

    domain = series.domain
    year = domain.periods_of_year(series.periods.first) if domain.unit.is_of_year else ()
    page = render_planning_page(plan, series.name, domain.cap, len(year), series.about_facts)
    step = "name a file in a folder that exists and may be written"
    with refuse_unwritable_file(f"the planning page {str(path)!r}", step, code="OD-FORECAST-PAGE"):
        write_text(path, page)


def forecast(
    release: str,
    period: str | None = None,
    epsilon: list[str] | None = None,
    runs: int | None = None,
    to: Path | None = None,
    as_json: bool = False,
) -> None:
    """Print the expected errors of a release, simulated on data that is already public. Spends nothing."""
    from od_assets.cli.target_plan import make_forecast

    series, planned = _plan_series(release, period)
    with console.status("Simulating releases"):
        errors = make_forecast(series, planned, epsilon, runs)
    if to is not None:
        errors.write(to)
    if as_json:
        print_json(errors.facts())
        return
    for title, frame in errors.make_tables().items():
        print_frame(title, frame)
    console.print(errors.source, soft_wrap=True)
    if to is not None:
        console.print(f"Table and figure: {to}", soft_wrap=True)


def invent(release: str, period: str | None = None, rows: int = 1000, seed: int = 0, to: Path | None = None) -> None:
    """Write invented records of a period, made from public lists alone, for development and staging.

    No record is read. The same seed makes the same records. A file is never replaced, nothing is written beside real
    records, and the environment `production` is refused.
    """
    from od_assets.runs.period_status import choose_period_to_plan
    from od_assets.series.invented import write_invented_records
    from od_assets.series.reading import read_declared_series
    from od_core.periods import Period

    if project_folders().environment == "production":
        message = "this is the environment production, whose records are real"
        raise OdError("OD-INVENT", message, next_step="invent records in another environment")
    series = read_declared_series(release)
    chosen = choose_period_to_plan(series, period)
    file = write_invented_records(series, Period(chosen), to, rows, seed)
    console.print(f"Invented records of {series.stated_name} for {chosen}: {file}", soft_wrap=True)


def decide(
    release: str,
    period: str | None = None,
    epsilon: list[str] | None = None,
    target: list[str] | None = None,
    table: str | None = None,
    runs: int = 5,
    to: Path | None = None,
) -> None:
    """Write a page for those who must agree to a series: accuracy in named flows, risk, cost, and what is refused.

    It is one HTML file to print, made from the plan, a public table and the ledger. No record is read, and no budget is
    spent.
    """
    from od_assets.cli.target_plan import (
        SIMULATED,
        choose_public_table,
        count_payable_periods,
        plan_for_targets,
        require_flow_plan,
    )
    from od_core.evaluation.decision import Option, iterate_options, render_decision_page, select_example_flows
    from od_core.meaning.subject import Subject

    folders = project_folders()
    series, plan = _plan_series(release, period)
    folders.hold_to_declared(series.domain)
    subject = Subject.from_plan(plan, series.about_facts)
    compared = [*iterate_options(plan, epsilon or (), subject)]
    facts: dict[str, Any] = {"runs": runs, "flows": [], "source": ""}
    if target or table is not None or plan.compared_levels:
        flow_plan = require_flow_plan(series, plan, "targets and tables of flows", "leave out --target and --table")
        if target:
            least_budget_plan = plan_for_targets(series, plan, target, table, SIMULATED).plan
            compared.insert(1, Option(f"the least budget for {'; '.join(target)}", least_budget_plan))
        known, facts["source"] = choose_public_table(series, flow_plan, table)
        facts["flows"] = [*select_example_flows(flow_plan, known)]
        with console.status("Releases are simulated on a public table."):
            compared = [option.with_simulated_errors(known, runs) for option in compared]
    facts["published"] = folders.find_published_periods(series)
    periods, facts["paid"], facts["left"] = count_payable_periods(series, plan, facts["published"])
    path = to or find_current_project().var / "decisions" / f"{series.name}.html"
    step = "name a file in a folder that may be written"
    with refuse_unwritable_file(f"the page {str(path)!r}", step, code="OD-FORECAST-PAGE"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, render_decision_page(series, plan, compared, periods, **facts))
    console.print(f"Decision page: {path}\nNo record was read, and no budget was spent.", soft_wrap=True)


def run(
    release: str, period: str | None = None, every: bool = False, explain: bool = False, as_json: bool = False
) -> None:
    """Release one period with the Dagster job, in this process, or read it back if it is already released."""
    if every and period is not None:
        raise OdError("OD-PERIOD", "--all and --period cannot be used together", next_step="give one of them")
    from od_assets.series.reading import find_series

    find_series(release)  # refused before anything else is imported
    with run_expectation_process():  # it imports Great Expectations while this process imports Dagster
        series, job, periods = _load_release_job(release, period, every=every)
        outcomes = _run_periods(series, job, periods, explain=explain, as_json=as_json)
    if not all(outcome.facts["published"] for outcome in outcomes):
        raise typer.Exit(ExitCode.FAULT_FOUND)


def _load_release_job(
    name: str, period: str | None, *, every: bool
) -> tuple[Series[Any, Any], JobDefinition, list[str]]:
    """Import Dagster, load the project, and return a series, the job that releases it, and the periods to run.

    Raises OdError if there is no such series or period, or the project cannot be loaded.
    """
    gc.disable()  # imported code and definitions stay, and collecting garbage in them took 0.4 of 9.4 s of a small run
    try:
        with console.status("Loading the project"):
            from od_assets.runs.jobs import find_release_job
            from od_assets.runs.period_status import choose_periods, refuse_without_file
            from od_assets.series.reading import read_declared_series

            series = read_declared_series(name)
            periods = choose_periods(series, period, every=every)
            if period is None and not every:
                refuse_without_file(series, periods[0])
            prepare_dagster_home()
            return series, find_release_job(series), periods
    finally:
        gc.freeze()  # later collections leave it out, too
        atexit.register(gc.unfreeze)  # DuckDB would say at the end that its objects were never freed
        gc.enable()


def _run_periods(
    series: Series[P, G], job: JobDefinition, periods: list[str], *, explain: bool, as_json: bool
) -> list[Outcome]:
    """Run a job for each period, print the outcomes, and return them.

    Each outcome is printed as text after its run or, if ``as_json``, all of them as JSON at the end, also after an
    interrupt. Raises Interrupted if there was one.
    """
    from od_assets.runs.jobs import run_period

    not_done = "period was not run" if len(periods) == 1 else "periods were not run"
    outcomes: list[Outcome] = []
    try:
        with iterate_until_interrupt(periods, not_done) as remaining_periods:
            for period in remaining_periods:
                outcome = run_period(series, job, period, quiet=as_json)
                outcomes.append(outcome)
                if not as_json:
                    print_outcome(outcome, explain=explain)
    finally:
        if as_json:
            print_json([outcome.facts for outcome in outcomes])
    return outcomes


def status(every: bool = False, as_json: bool = False) -> None:
    """Print the state, the measured levels and the spent rho of every release, and what its data set has left.

    Releases whose settings were changed since they were published or begun are named. Published releases that are no
    longer declared are listed, too, as are published flows that were derived from releases, which spend nothing. If a
    declaration has a fault, the others are printed all the same, and the exit code is 2.
    """
    from od_assets.runs.period_status import list_release_statuses, read_release_status
    from od_core.ledger.confidential import LOCK_NAME
    from od_core.ledger.release_key import ReleaseKey
    from od_core.published.opening import list_derived_releases

    folders = project_folders()
    series, faults = _read_all_series()
    with folders.open_ledger_or_empty() as ledger, ledger.one_look():
        states = ledger.read_states()
        rows = list_release_statuses(series, ledger, states)
    listed_names = {row["release"] for row in rows}
    public = (name for name, state in states.items() if state.is_published or state.is_withdrawn)
    rows += [read_release_status(ReleaseKey.parse(name), states[name]) for name in public if name not in listed_names]
    rows += [  # the ledger does not know them
        read_release_status(key, None) | {"state": "published", "measured_levels": "none, derived"}
        for key in list_derived_releases(folders.releases)
    ]
    rows.sort(key=lambda row: ReleaseKey.parse(row["release"]))
    if as_json:
        print_json(rows)
    else:
        print_status(rows, may_run=is_locked(folders.var / LOCK_NAME), every=every)
    for fault in faults:
        typer.echo(escape_unprintable(fault), err=True)
    if faults:
        raise typer.Exit(ExitCode.REFUSED)


def _read_all_series() -> tuple[list[Series[Any, Any]], list[str]]:
    """Return the declared series without faults, and the distinct texts of the faults of other declarations."""
    from od_assets.series.reading import list_declared, list_series, read_series, refuse_doubles, refuse_unlisted
    from od_assets.series.section import list_declaration_files

    series = []
    faults = dict[str, None]()  # the keys, in order: two files may have the same fault
    for path in list_declaration_files():
        try:
            refuse_unlisted(path)  # another component is no fault, but a misspelt one is
        except OdError as error:
            faults[str(error)] = None
    declared = list_declared()
    for source in list_series():
        try:
            refuse_doubles(source.name, declared)
            series.append(read_series(source))
        except OdError as error:
            faults[str(error)] = None
    return series, [*faults]


def compare_mechanisms(
    comparison: str | None = None,
    flows: Path | None = None,
    zones: Path | None = None,
    levels: str = "",
    trips: str | None = None,
    one_row_a_trip: bool = False,
    marked: str | None = None,
    mechanism: list[str] | None = None,
    epsilon: list[str] | None = None,
    runs: int | None = None,
    to: Path | None = None,
) -> None:
    """Compare the errors of mechanisms on synthetic or public data. Run it again to resume a stopped comparison."""
    from od_assets.runs.jobs import run_comparison
    from od_assets.series.comparison import KnownTableSection, TableColumns
    from od_assets.series.reading import read_comparison

    if flows is None and zones is None:
        component = read_comparison(comparison or "comparison")
    elif flows is None or zones is None or not levels or comparison:
        message = "your own table needs --flows, --zones and --levels, without the name of a declared comparison"
        raise OdError("OD-EVALUATION-TABLE", message, next_step="give all three options, or none of them")
    else:
        table = KnownTableSection(
            name=re.sub(r"\W+", "_", flows.stem).strip("_").lower() or "table",
            marked=marked,
            flows=str(flows.resolve()),
            zones=str(zones.resolve()),
            levels=[level.strip() for level in levels.split(",")],
            columns=TableColumns(trips=trips),
            one_row_a_trip=one_row_a_trip,
        )
        component = _declare_comparison_on_table(table)
    choices = {"mechanisms": mechanism, "epsilons": epsilon, "runs": runs}
    chosen = {name: choice for name, choice in choices.items() if choice}
    component = component.model_copy(update=chosen).require_valid()
    prepare_dagster_home()
    failures = run_comparison(component, to)
    if failures:
        for line in failures:
            typer.echo(escape_unprintable(line), err=True)
        raise typer.Exit(ExitCode.FAULT_FOUND)
    console.print(f"Tables and figures: {to or component.folder}", soft_wrap=True)


def _declare_comparison_on_table(table: KnownTableSection) -> Comparison:
    """Return a comparison on one table. Raises OdError if the table is not marked as public or synthetic."""
    from od_assets.series.comparison import Comparison
    from od_core.evaluation.comparison import EPSILONS

    table.make_reader(find_current_project())
    return Comparison(
        name=f"table_{table.name}", owners=["team:statistics"], tables=[table], mechanisms=None, epsilons=[*EPSILONS]
    )
