"""Format tables in Markdown, and the figures in them."""

from __future__ import annotations

from collections.abc import Iterable


def markdown_table(lines: Iterable[dict[str, str]]) -> list[str]:
    """Return the lines of a table and a blank line. The columns are those of the first row."""
    rows = list(lines)
    head = list(rows[0])
    cells = [head, ["---"] * len(head), *(list(row.values()) for row in rows)]
    return [*(f"| {' | '.join(line)} |" for line in cells), ""]


def figure(value: float | None, whole: str = ",.0f") -> str:
    """Return a value with two digits, or in the format ``whole`` if it is 0 or at least 10; a dash for None."""
    if value is None:
        return "-"
    return format(value, whole) if value >= 10 or value == 0 else f"{value:.2g}"
