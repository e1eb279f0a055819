"""The command ``od-release explain``: what a release protected and spent, and what other decisions would have cost."""

from __future__ import annotations

import json
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from typing import TYPE_CHECKING, Any

import typer

from od_assets.cli.options import BundleOrRelease, Json
from od_core.privacy.accounting import text_above

if TYPE_CHECKING:
    from od_core.published.explanation import Explanation


def explain(
    release: BundleOrRelease,
    as_json: Json = False,
) -> None:
    """Explain a published release: what it protected and spent, what an attacker learns, and which decisions mattered.

    For an attacker who knows all other records, or any number of them, a table states how far a belief about one unit
    can move. For other units, neighbours, bounds, deltas and epsilons, another table states the epsilon with the same
    noise, and the noise with the same promise. Only public facts are used: the bundle and, if it is here, the ledger.
    """
    from od_assets.cli.named_bundles import bundle_named
    from od_assets.resources.folders import Folders
    from od_core.published.explanation import explain_release

    bundle = bundle_named(release)
    found = explain_release(bundle, Folders().ledger_at_hand())
    if as_json:
        typer.echo(json.dumps(found.to_facts(), indent=2))
    else:
        _print(found)


def _print(found: Explanation) -> None:
    from od_assets.cli.tables import print_rows
    from od_assets.terminal import console

    console.rule(str(found.facts.key))
    console.print(found.said["protected"])
    console.print(f"{found.said['spent']}\n")
    print_rows("What may be learned about one unit", [_loss(row) for row in found.losses()])
    console.print(f"{found.facts.said['limit']}\n")
    console.print(f"{found.said['statement']}\n")
    print_rows(
        "What an attacker believes about one unit, from this release alone", [_belief(row) for row in found.beliefs()]
    )
    console.print(
        "Best guess: how often a guess between the two cases is right, over all outcomes; without the release, it is"
        " the likelier case.\n"
    )
    print_rows("A person with several units, from this release alone", [_person(row) for row in found.persons()])
    console.print(f"Not protected: {found.facts.sentence('not_protected')}\n")
    if found.chosen is None:
        names = ", ".join(source["release"] for source in found.facts.sources)
        console.print(
            f"The decisions are those of its releases: od-release explain {names.split(', ')[0]} (of {names})."
        )
        return
    print_rows("What other decisions would have cost", [_choice(one) for one in (found.chosen, *found.others)])
    console.print(
        "Epsilon: with the same noise in the most detailed table. Noise: its standard deviation in that table, with the"
        " same promise; in the rows of delta and epsilon, with the promise of the row. Error: the root mean square that"
        " is expected of the most detailed published flows, if no estimate is cut at 0."
    )
    notes: dict[str, list[str]] = {}
    for one in (found.chosen, *found.others):
        if one.note:
            notes.setdefault(one.note, []).append(one.choice)
    for note, choices in notes.items():
        console.print(f"- {' / '.join(choices)}: {note}.")


def _loss(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "of": row["of"].rstrip(","),
        "epsilon": _bound(row["epsilon"]),
        "delta": _bound(row["delta"]),
        "best guess at even odds, at most": _percent(row["best_guess_after"], ROUND_CEILING),
    }


def _belief(row: dict[str, float]) -> dict[str, str]:
    return {
        "before": _percent(row["prior"], ROUND_HALF_EVEN),
        "after, at least": _percent(row["posterior_at_least"], ROUND_FLOOR),
        "after, at most": _percent(row["posterior_at_most"], ROUND_CEILING),
        "best guess before": _percent(row["best_guess_before"], ROUND_HALF_EVEN),
        "best guess after, at most": _percent(row["best_guess_after"], ROUND_CEILING),
    }


def _person(row: dict[str, float | None]) -> dict[str, Any]:
    guess = row["best_guess_after"]
    return {
        "units": row["units"],
        "epsilon": _bound(row["epsilon"]),
        "delta": _bound(row["delta"]),
        "best guess at even odds, at most": None if guess is None else _percent(guess, ROUND_CEILING),
    }


def _choice(one: Any) -> dict[str, Any]:
    return {
        "decision": one.decision,
        "choice": one.choice,
        "epsilon": _bound(one.epsilon),
        "noise": _rounded(one.noise),
        "times": _rounded(one.times),
        "error": _rounded(one.error),
    }


def _bound(value: float | None) -> str | None:
    return None if value is None else text_above(value)


def _rounded(value: float | None) -> str | None:
    from od_core.publication.number_formats import rounded

    return None if value is None else rounded(value)


def _percent(value: float, rounding: str) -> str:
    """Return a probability in percent with four significant digits, so rounded that a bound stays one."""
    return f"{Context(prec=4, rounding=rounding).create_decimal(100 * Decimal(value)).normalize():f} %"
