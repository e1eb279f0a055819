"""Print tables and the state of releases on the command line, without importing pandas."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jinja2 import DictLoader, Environment, StrictUndefined
from rich.table import Table

from od_assets.terminal import console
from od_core.privacy.accounting import promise_text, text_above, text_below

if TYPE_CHECKING:
    import pandas as pd


_NUMBER = re.compile(r"-?[\d,]+(\.\d+)?(e-?\d+)?")
"""Pattern of the text of a number."""

Columns = Mapping[str, tuple[str, Callable[[Any], object]]]
"""Columns of a printed table: by heading, the name of what it shows, and a function that returns what is printed."""


def print_status(rows: list[dict[str, Any]], *, may_run: bool = True) -> None:
    """Print the state of releases, and which settings were changed since they were published or begun.

    ``may_run`` says whether a run may be working on a release that is only begun.
    """
    print_rows("Releases", [_shown(row) for row in rows])
    begun = [] if may_run else [row["release"] for row in rows if row["state"] == "begun"]
    for release in begun:
        say("status.begun", release=release)
    if begun:
        console.print("Run such a period again: it reads back what was measured.")
    others = [row for row in rows if row["settings_changed"]]
    for row in others:
        names = [name.replace("_", " ") for name in row["settings_changed"]]
        console.print(text("status.changed", names=names, **row), soft_wrap=True)
    if others:
        say("status.stays")


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return what is printed of the state of a release: its rho as everywhere else."""
    left = row["data_set_rho_left"]
    rho = {"rho_spent": text_above(row["rho_spent"]), "data_set_rho_left": None if left is None else text_below(left)}
    return {name: rho.get(name, value) for name, value in row.items() if name != "settings_changed"}


@cache
def sentences() -> Environment:
    """Return the sentences of ``texts.toml`` as templates by their names, such as ``plan.spends``."""
    groups = tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))
    texts = {f"{group}.{name}": each for group, named in groups.items() for name, each in named.items()}
    environment = Environment(loader=DictLoader(texts), undefined=StrictUndefined, trim_blocks=True)  # noqa: S701  # text for a terminal
    promise = {"promise": lambda spent: promise_text(spent.epsilon, spent.delta)}
    environment.filters |= {"above": text_above, "below": text_below, "quoted": repr, **promise}
    return environment


def text(name: str, /, **values: object) -> str:
    """Return a sentence of ``texts.toml``, filled in with values."""
    return " ".join(sentences().get_template(name).render(values).split())


def say(name: str, ending: str = "", /, **values: object) -> None:
    """Print a sentence of ``texts.toml``, filled in with values, and an ending such as an empty line."""
    console.print(text(name, **values) + ending)


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


def print_columns(title: str, rows: Iterable[Mapping[str, Any]], columns: Columns) -> None:
    """Print some columns of rows. A missing value stays missing."""
    print_rows(
        title,
        [
            {shown: None if row[name] is None else form(row[name]) for shown, (name, form) in columns.items()}
            for row in rows
        ],
    )


def _text(value: object) -> str:
    """Return the text of a cell, with thousands separators in numbers; a dash for a missing value."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
