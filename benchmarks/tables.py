"""Write tables as Markdown and as CSV, and format the figures in them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any


def markdown_table(lines: Iterable[dict[str, str]]) -> list[str]:
    """Return the lines of a table and a blank line. The columns are those of the first row."""
    rows = list(lines)
    head = list(rows[0])
    cells = [head, ["---"] * len(head), *(list(row.values()) for row in rows)]
    return [*(f"| {' | '.join(line)} |" for line in cells), ""]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the rows of a table, unless there are none. The columns are those of the first row."""
    if rows:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def write_tables(folder: Path, tables: Mapping[str, Sequence[dict[str, Any]]]) -> None:
    """Write the rows of tables to files in a folder, by their names, as :func:`write_csv` does."""
    for name, rows in tables.items():
        write_csv(folder / name, rows)


def csv_figure(value: float | None) -> str:
    """Return a value as :func:`figure` does, without commas; the empty text for None."""
    return "" if value is None else figure(value, ".0f")


def csv_flag(value: object) -> str:
    """Return ``true`` or ``false``."""
    return str(bool(value)).lower()


def figure(value: float | None, whole: str = ",.0f") -> str:
    """Return a value with two digits, or in the format ``whole`` if it is 0 or at least 10; a dash for None."""
    if value is None:
        return "-"
    return format(value, whole) if value >= 10 or value == 0 else f"{value:.2g}"
