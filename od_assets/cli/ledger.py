"""The command ``od-release ledger``: print the budget of every data set, and verify the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from od_assets.cli.options import Json
from od_assets.terminal import console

if TYPE_CHECKING:
    from od_core.ledger.balance import Balance

ledger_app = typer.Typer(help="The budget ledger: the spent and the remaining budget of every data set.")


@ledger_app.callback(invoke_without_command=True)
def ledger(context: typer.Context, as_json: Json = False) -> None:
    """Print the cap, spent and remaining budget, and lost draws of every data set and elementary period.

    For a data set with a bound for a user's trips of a year, print those of every year, and what its elementary periods
    have spent.
    """
    if context.invoked_subcommand is not None:
        return
    from od_assets.cli.tables import print_rows
    from od_assets.resources.folders import Folders
    from od_core.privacy.accounting import text_above, text_below

    balances = Folders().existing_ledger().balances()
    if as_json:
        typer.echo(json.dumps([_balance_facts(balance) for balance in balances], indent=2))
        return
    table: list[dict[str, Any]] = []
    for balance in balances:
        table.append(
            {
                "domain": balance.domain,
                "period": balance.period,
                "cap_rho": text_above(balance.cap),
                "spent_rho": text_above(balance.spent),
                "left_rho": text_below(balance.left),
                "releases": balance.releases,
                "lost_draws": balance.lost_draws,
            }
        )
        for period, rho in balance.parts.items():
            own = {"domain": balance.domain, "period": period, "spent_rho": text_above(rho)}
            table.append({name: own.get(name) for name in table[-1]})
    print_rows("Ledger", table)
    if any(balance.parts for balance in balances):
        console.print(
            "A year costs less than the sum of its periods, as far as the trips of a user in a year allow.",
            soft_wrap=True,
        )


@ledger_app.command("verify")
def verify_ledger(as_json: Json = False) -> None:
    """Check that no ledger entry was edited or lost, and that every charge is the cost of its noise."""
    from od_assets.resources.folders import Folders

    entries = Folders().verify_ledger()
    if as_json:
        typer.echo(json.dumps({"whole": True, "entries": entries}))
    else:
        console.print(
            f"The ledger is intact: {entries} entries; none was edited, and it has every entry that a public"
            " certificate names."
        )


@ledger_app.command("schema")
def print_schema(
    writer: Annotated[str, typer.Option(help="PostgreSQL role of the releases, which must exist and own nothing.")],
) -> None:
    """Print the SQL statements with which the owner of a PostgreSQL database creates a ledger in it."""
    from od_core.ledger.chain import schema

    typer.echo(schema(writer), nl=False)


@ledger_app.command("copy")
def copy_ledger(
    target: Annotated[str, typer.Argument(help="A new SQLite file, or the address of a PostgreSQL database.")],
) -> None:
    """Copy all entries to a ledger that has none: for a backup, or to move the ledger to or from PostgreSQL."""
    from od_assets.resources.folders import Folders
    from od_core.ledger.chain import SCHEMES, chain_of

    folders = Folders()
    folders.existing_ledger()  # verifies it
    file, _ = folders.ledger_place
    new = chain_of(file, target) if target.startswith(SCHEMES) else chain_of(Path(target).absolute())
    entries = folders.ledger_chain.copy_to(new)
    console.print(f"{entries} entries were copied and verified. This ledger is still the one that is charged.")


def _balance_facts(balance: Balance) -> dict[str, Any]:
    amounts = {"cap": balance.cap, "spent": balance.spent, "left": balance.left}
    return {
        "domain": balance.domain,
        "period": balance.period,
        **{name: {"rho": float(rho), "rho_exact": str(rho)} for name, rho in amounts.items()},
        "releases": balance.releases,
        "lost_draws": balance.lost_draws,
        **({"periods": parts} if (parts := _parts(balance)) else {}),
    }


def _parts(balance: Balance) -> dict[str, dict[str, Any]]:
    """Return what each elementary period of a year has spent."""
    return {period: {"rho": float(rho), "rho_exact": str(rho)} for period, rho in balance.parts.items()}
