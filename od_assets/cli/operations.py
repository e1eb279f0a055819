"""Operate a project: find faults, print and verify the ledger, remove what is no longer needed, and start the UI."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, nullcontext
from fractions import Fraction
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from od_assets.cli import ExitCode, project_folders
from od_assets.cli.printing import format_sentence, print_table, say
from od_assets.project import find_current_project, find_environment_home, locate_dagster_home, prepare_dagster_home
from od_assets.terminal import console, print_json
from od_core.errors import OdError

if TYPE_CHECKING:
    from od_core.ledger.balance import Balance


def doctor(name: str | None = None, period: str | None = None, as_json: bool = False) -> None:
    """Check the installation, the declarations and an input, and print all faults. Changes and spends nothing."""
    from od_assets.cli.diagnosis import inspect_project, print_findings

    with console.status("Checking"):
        findings = inspect_project(name, period)
    if as_json:
        print_json([finding.facts() for finding in findings])
    else:
        print_findings(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(ExitCode.FAULT_FOUND)


def ledger(context: typer.Context, as_json: bool = False) -> None:
    """Print the cap, spent and remaining budget, and lost draws of every data set and elementary period.

    For a data set with a bound for a user's trips of a year, print those of every year, and what its elementary periods
    have spent.
    """
    if context.invoked_subcommand is not None:
        return

    balances = project_folders().open_existing_ledger().balances()
    if as_json:
        print_json([_make_balance_facts(balance) for balance in balances])
        return
    rows: list[object] = []
    for balance in balances:
        rows.append(balance)
        rows += [
            {"domain": balance.domain, "period": period, "measure": "rho", "spent": rho}
            for period, rho in balance.parts.items()
        ]
    print_table("ledger", rows)
    if any(balance.parts for balance in balances):
        console.print(format_sentence("ledger.year"), soft_wrap=True)


def verify_ledger(as_json: bool = False) -> None:
    """Check that no ledger entry was edited or lost, and that every charge is the cost of its noise."""
    entries = project_folders().verify_ledger()
    if as_json:
        print_json({"whole": True, "entries": entries})
    else:
        say("ledger.whole", entries=entries)


def print_schema(writer: str) -> None:
    """Print the SQL statements with which the owner of a PostgreSQL database creates a ledger in it."""
    from od_core.ledger.postgres_chain import make_schema_sql

    typer.echo(make_schema_sql(writer), nl=False)


def copy_ledger(target: str) -> None:
    """Copy all entries to a ledger that has none: for a backup, or to move the ledger to or from PostgreSQL."""
    from od_core.ledger.ledger import make_chain
    from od_core.ledger.postgres_chain import SCHEMES

    folders = project_folders()
    folders.open_existing_ledger()  # verifies it
    file, _ = folders.ledger_place
    in_server = target.startswith(SCHEMES)
    if not in_server and Path(target).exists():
        raise OdError("OD-LEDGER-STATE", f"{target} exists already", next_step="name a new file")
    new = make_chain(file, target) if in_server else make_chain(Path(target).absolute())
    entries = folders.ledger_chain.copy_to(new)
    say("ledger.copied", entries=entries)


def _make_balance_facts(balance: Balance) -> dict[str, object]:
    """Return a balance as a JSON-ready dictionary, with every amount as a float and as the text of a fraction."""

    def make_amount(amount: Fraction, measure: str = "rho") -> dict[str, object]:
        return {measure: float(amount), f"{measure}_exact": str(amount)}

    return {
        "domain": balance.domain,
        "period": balance.period,
        **{name: make_amount(getattr(balance, name), balance.measure) for name in ("cap", "spent", "left")},
        "releases": balance.releases,
        "lost_draws": balance.lost_draws,
        **({"periods": {period: make_amount(rho) for period, rho in balance.parts.items()}} if balance.parts else {}),
    }


def purge(older_than: int = 0, dry_run: bool = False, yes: bool = False, as_json: bool = False) -> None:
    """Remove the copies of records, with their ids, that published releases left in the confidential folder.

    Published releases stay, and `od-release verify` needs no records. To run such a release again, its file of records
    must be the same as before. What else the confidential folder has stays, such as counts and measurements. With
    --json, nothing is removed without --yes.
    """
    folders = project_folders()
    records = folders.find_kept_records(older_than)
    if not as_json and not records:
        console.print(f"No published release{' of that age' if older_than else ''} has a copy of its records.")
        return
    if not as_json:
        for key, file in records.items():
            console.print(f"{key}: {file}", soft_wrap=True)
        console.print(format_sentence("purge.needed"), soft_wrap=True)
    removed = bool(records) and not dry_run
    if removed and not yes:
        removed = not as_json and typer.confirm("Remove these copies?")
    if removed:
        with folders.ledger_chain.lock_for_release():
            folders.purge(older_than)
    if as_json:
        files = [{"release": str(key), "file": str(file)} for key, file in records.items()]
        print_json({"removed": removed, "files": files})
    else:
        console.print(f"{len(records)} removed." if removed else "Nothing was removed.")


def prune(older_than: int = 30, remove: bool = False, as_json: bool = False) -> None:
    """Print what may be removed from the folder of the project's output, with its size; with --remove, remove it.

    That is, at least so many days old: Dagster's logs of runs, of which the runs, the materializations and the results
    of checks stay; the counts and estimates of published releases, which a run makes again; and what killed runs left.
    Pages that Great Expectations made for earlier versions are removed at any age. The ledger, measurements,
    certificates, bundles, keys and counters stay, and `od-release verify` needs no more. For copies of records, see
    `od-release purge`.
    """
    from od_assets.failures import open_dagster_instance
    from od_assets.resources import pruning

    folders = project_folders()
    lock = folders.ledger_chain.lock_for_release() if remove and folders.var.is_dir() else nullcontext()
    with lock, ExitStack() as opened:
        has_runs = (locate_dagster_home(folders.var) / "history").is_dir() and prepare_dagster_home()
        instance = opened.enter_context(open_dagster_instance()) if has_runs else None
        removable = pruning.find_removable_paths(folders, instance, older_than)
        sizes = pruning.sum_sizes_by_folder(removable, folders.var)
        if remove:
            for path in chain.from_iterable(removable.values()):
                pruning.remove_path(path)
    total = sum(row["bytes"] for row in sizes)
    if as_json:
        print_json({"removed": remove, "bytes": total, "folders": sizes})
        return
    if sizes:
        print_table("prunable", sizes)
    say("prune.total", total=total, removed=remove)


def ui(
    port: int = 3000, listen: str = "127.0.0.1", allow_host: list[str] | None = None, workspace: Path | None = None
) -> None:
    """Start the Dagster UI and its daemon with the project's run history. Access requires the printed address."""
    if workspace is None and find_environment_home() not in (
        None,
        locate_dagster_home(find_current_project().var).resolve(),
    ):
        message = "DAGSTER_HOME is that of another Dagster deployment, whose own daemon must not run twice"
        step = "name its workspace file with --workspace, or start dg dev, or unset DAGSTER_HOME"
        raise OdError("OD-UI-HOME", message, next_step=step)
    prepare_dagster_home()
    workspace_argument = "" if workspace is None else str(workspace.resolve())
    os.chdir(find_current_project().root)
    modules = ["-m", "od_assets.cli.process_session", sys.executable, "-m", "od_assets.cli.ui_server"]
    os.execv(sys.executable, [sys.executable, *modules, str(port), listen, workspace_argument, *(allow_host or [])])  # noqa: S606  # our own command
