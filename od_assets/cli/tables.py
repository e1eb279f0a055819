"""Print tables and the state of releases on the command line, without importing pandas."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table

from od_assets.terminal import console
from od_core.privacy.accounting import text_above, text_below

if TYPE_CHECKING:
    import pandas as pd


_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?(e-?\d+)?")
"""Pattern of the text of a number."""


def print_status(rows: list[dict[str, Any]], *, may_run: bool = True) -> None:
    """Print the state of releases, and which settings were changed since they were published or begun.

    Args:
        rows: states of releases, as :mod:`od_assets.runs.period_status` returns them.
        may_run: whether a run may be working on a release that is only begun.
    """
    print_rows("Releases", [_shown(row) for row in rows])
    begun = [] if may_run else [row["release"] for row in rows if row["state"] == "begun"]
    for release in begun:
        console.print(f"{release} is only begun, and no run works on it: its last run was interrupted or failed.")
    if begun:
        console.print("Run such a period again: it reads back what was measured.")
    others = [row for row in rows if row["settings_changed"]]
    for row in others:
        names = ", ".join(name.replace("_", " ") for name in row["settings_changed"])
        line = f"{row['release']} was {row['state']} with other settings than those declared now: {names}."
        console.print(line, soft_wrap=True)
    if others:
        console.print(
            "What is published stays as it is. A higher revision releases a period with the new settings, and is"
            " charged; restore the settings to continue a release that is only begun."
        )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed of the state of a release: its rho as everywhere else."""
    left = row["data_set_rho_left"]
    rho = {"rho_spent": text_above(row["rho_spent"]), "data_set_rho_left": None if left is None else text_below(left)}
    return {name: rho.get(name, value) for name, value in row.items() if name != "settings_changed"}


def print_frame(title: str, frame: pd.DataFrame) -> None:
    """Print a data frame as :func:`print_rows` does."""
    rows: list[dict[str, Any]] = frame.to_dict("records")  # type: ignore[assignment]  # columns are named
    print_rows(title, rows)


def print_rows(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows with the same columns. Numbers are aligned right, and the first column is never wrapped."""
    table = Table(title=title, title_justify="left")
    for place, column in enumerate(rows[0] if rows else ()):
        given = [row[column] for row in rows if row[column] is not None]
        numeric = bool(given) and all(_NUMBER.fullmatch(_text(value)) for value in given)
        side: Literal["left", "right"] = "right" if numeric else "left"
        table.add_column(str(column).replace("_", " "), justify=side, overflow="fold", no_wrap=place == 0)
    for row in rows:
        table.add_row(*map(_text, row.values()))
    console.print(table)


def _text(value: object) -> str:
    """Return the text of a cell, with thousands separators in numbers; a dash for a missing value."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
