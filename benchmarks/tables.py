"""Tables in Markdown, and figures as they stand in them."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(lines: Iterable[dict[str, str]]) -> list[str]:
    """The lines of a table and a blank one: its columns are those of the first row."""
    rows = list(lines)
    head = list(rows[0])
    cells = [head, ["---"] * len(head), *(list(row.values()) for row in rows)]
    return [*(f"| {' | '.join(line)} |" for line in cells), ""]


def figure(value: float | None, whole: str = ",.0f") -> str:
    """To two digits or whole, in the form that is given for whole ones; a dash for none."""
    if value is None:
        return "-"
    return format(value, whole) if value >= 10 or value == 0 else f"{value:.2g}"
