"""A picture of bars, for where a table cannot draw them itself."""

from __future__ import annotations

from collections.abc import Sequence

from od_core.publication.markup import Markup, element
from od_core.publication.report_page import INK, SHADES, number

_ROW, _NAME, _LENGTH, _VALUE = 26, 130, 420, 130


def bars(title: str, rows: Sequence[tuple[str, int]]) -> Markup:
    """One bar a row, with its name and its number."""
    most = max((value for _, value in rows), default=0) or 1
    drawn = []
    for place, (name, value) in enumerate(rows):
        middle = _ROW * place + _ROW / 2
        length = _LENGTH * value / most
        drawn += [
            element("text", name, x=str(_NAME - 8), y=f"{middle + 5:g}", text_anchor="end"),
            element("rect", x=str(_NAME), y=f"{middle - 8:g}", width=f"{length:.1f}", height="16", fill=SHADES[5]),
            element("text", number(value), x=f"{_NAME + length + 6:.1f}", y=f"{middle + 5:g}"),
        ]
    return element(
        "svg",
        element("title", title),
        element("g", *drawn, font_size="14", fill=INK),
        viewBox=f"0 0 {_NAME + _LENGTH + _VALUE} {_ROW * len(rows)}",
        width=_NAME + _LENGTH + _VALUE,
        height=_ROW * len(rows),
        role="img",
        font_family="system-ui,-apple-system,'Segoe UI',Roboto,Arial,'Liberation Sans',sans-serif",
    )
