"""Functions that make a page, a table and a paragraph for modules that have no template yet."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import takewhile

from markupsafe import Markup

from od_core.publication.markup import element, joined
from od_core.publication.number_formats import (
    ACCENT,
    INK,
    MUTED,
    PAPER,
    SHADES,
    Scale,
    between,
    class_text,
    ink_on,
    number,
    one_three_ten,
    rounded,
    signed,
    size_classes,
)
from od_core.publication.templates import filled

__all__ = [
    "ACCENT",
    "INK",
    "MUTED",
    "PAPER",
    "SHADES",
    "Scale",
    "between",
    "class_text",
    "ink_on",
    "number",
    "one_three_ten",
    "rounded",
    "signed",
    "size_classes",
]
"""For modules that have no template yet."""

_NOTHING = joined()


def page(
    title: str,
    under: str,
    figures: Sequence[tuple[str, object]],
    sections: Sequence[tuple[str, Markup]],
    *,
    head: Markup = _NOTHING,
) -> str:
    """Return the HTML text of a whole page; see ``templates/page.html``."""
    return filled("page.html", title=title, under=under, figures=figures, sections=sections, head=head)


def paragraph(*content: object, note: bool = False) -> Markup:
    """Return a paragraph of text; ``note`` makes its text smaller."""
    return element("p", *content, class_="note" if note else None)


def with_interval(value: str, reach: str | None) -> Markup:
    """Return a number with its interval below it, if it has one, which keeps the columns of tables narrow."""
    return joined(value) if reach is None else joined(value, element("small", f" ({reach})"))


def table(
    caption: str,
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    numbers: Collection[int] = (),
    bars: Collection[int] = (),
    spare: Collection[int] = (),
) -> Markup:
    """Return a table whose first column names its rows; on a narrow screen, only the table scrolls.

    Args:
        caption: title of the table.
        headers: headers of the columns.
        rows: cells of each row, one per header.
        numbers: indices of the columns that are aligned right.
        bars: indices of the columns with bars. Screen readers skip them, because they repeat numbers of other columns.
        spare: indices of the columns that a narrow screen leaves out, because they follow from others.
    """

    def kind(column: int) -> str | None:
        classes = {"n": numbers, "bar": bars, "spare": spare}
        return " ".join(name for name, columns in classes.items() if column in columns) or None

    head = [
        element("th", header, scope="col", class_=kind(column))
        if header
        else element("td", class_=kind(column), aria_hidden="true" if column in bars else None)
        for column, header in enumerate(headers)
    ]
    lines = [
        element(
            "tr",
            *(
                element("th", cell, scope="row", class_=kind(0))
                if column == 0
                else element("td", cell, class_=kind(column), aria_hidden="true" if column in bars else None)
                for column, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    whole = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *head)),
        element("tbody", *lines),
    )
    return scrolled(caption, whole)


def heat_table(
    caption: str,
    corner: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[int], int]],
    unit: str,
    may_be_zero: Sequence[Sequence[bool]] | None = None,
) -> Markup:
    """Return a table whose cells are darker for larger numbers, with row sums and a legend of the shades.

    Args:
        caption: title of the table.
        corner: header of the first column, which names the rows.
        columns: names of the columns.
        rows: name, numbers and sum of each row.
        unit: unit of the numbers.
        may_be_zero: for each row, whether each of its numbers may be 0; these are in italics. By default, none is.
    """
    doubtful = [[False] * len(values) for _, values, _ in rows] if may_be_zero is None else may_be_zero
    scale = Scale.up_to(max((value for _, values, _ in rows for value in values), default=0))
    head = [element("th", name, scope="col") for name in (corner, *columns)]
    lines = [
        element(
            "tr",
            element("th", name, scope="row"),
            *(
                element("td", element("em", number(value)) if zero else number(value), style=scale.style(value))
                for value, zero in zip(values, zeros, strict=True)
            ),
            element("td", number(total), class_="sum"),
        )
        for (name, values, total), zeros in zip(rows, doubtful, strict=True)
    ]
    whole = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *head, element("th", "all", scope="col", class_="sum"))),
        element("tbody", *lines),
        class_="heat",
    )
    return joined(scrolled(caption, whole), key(scale, unit))


def scrolled(label: str, content: Markup) -> Markup:
    """Return content in a scrolling region for content wider than the screen, which the keyboard can reach."""
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def bar(value: float, most: float, reach: tuple[float, float] | None = None) -> Markup:
    """Return an SVG bar of length ``value / most``, with a line over the interval ``reach``, if any."""
    scale = 100 / most if most > 0 else 0
    drawn = [element("rect", x="0", y="2", width=f"{scale * value:.2f}", height="10", fill=SHADES[4])]
    if reach is not None:
        ends = [f"{min(scale * end, 100):.2f}" for end in reach]
        drawn.append(
            element(
                "rect", x=ends[0], y="6", width=f"{max(float(ends[1]) - float(ends[0]), 0.5):.2f}", height="2", fill=INK
            )
        )
    return element("svg", *drawn, viewBox="0 0 100 14", preserveAspectRatio="none", focusable="false")


def key(scale: Scale, unit: str) -> Markup:
    """Return the legend of the shades."""
    words = [f"below {number(scale.steps[0])} {unit}", *(f"from {number(step)}" for step in scale.steps)]
    return element(
        "ul",
        *(
            element("li", element("i", style=f"background:{scale.colour(value)}"), word)
            for value, word in zip([0, *scale.steps], words, strict=True)
        ),
        class_="key",
    )


_ROW, _NAME, _LENGTH, _VALUE = 26, 130, 420, 130


def bars(title: str, rows: Sequence[tuple[str, int]]) -> Markup:
    """Return an SVG bar chart with a name, a bar and a number per row, for pages whose tables cannot contain bars."""
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


_LEFT, _TOP, _WIDTH, _HEIGHT = 62, 14, 600, 250
_RIGHT, _BELOW = 24, 44
_SHARES = (0, 25, 50, 75, 100)


def band_chart(
    title: str,
    name: str,
    positions: Sequence[int],
    shares: Sequence[float],
    lower: Sequence[float],
    upper: Sequence[float],
) -> Markup:
    """Return an SVG chart of shares that grow along an axis of whole numbers, with a band from ``lower`` to ``upper``.

    The axis is logarithmic from 1 on, so that small and large numbers are both legible.

    Args:
        title: title for screen readers.
        name: name of the axis.
        positions: whole numbers from 0 on, ascending; shape (points,).
        shares: share from 0 to 1 at each position.
        lower, upper: ends of the interval of each share.
    """
    longest = math.log1p(positions[-1]) or 1

    def across(position: float) -> str:
        return f"{_LEFT + _WIDTH * math.log1p(position) / longest:.1f}"

    def up(share: float) -> str:
        return f"{_TOP + _HEIGHT * (1 - min(max(share, 0), 1)):.1f}"

    def path(values: Sequence[float]) -> list[str]:
        return [f"{across(position)},{up(value)}" for position, value in zip(positions, values, strict=True)]

    lines, texts = [], []
    for percent in _SHARES:
        height = up(percent / 100)
        lines.append(element("line", x1=str(_LEFT), x2=str(_LEFT + _WIDTH), y1=height, y2=height))
        texts.append(element("text", f"{percent} %", x=str(_LEFT - 8), y=f"{float(height) + 4:.1f}", text_anchor="end"))
    bottom = _TOP + _HEIGHT
    for position in (0, *takewhile(lambda step: step <= positions[-1], one_three_ten())):
        place = across(position)
        lines.append(element("line", x1=place, x2=place, y1=str(bottom), y2=str(bottom + 5)))
        texts.append(element("text", number(position), x=place, y=str(bottom + 20), text_anchor="middle"))
    texts.append(element("text", name, x=f"{_LEFT + _WIDTH / 2:g}", y=str(bottom + 40), text_anchor="middle"))
    width, height_of_all = _LEFT + _WIDTH + _RIGHT, bottom + _BELOW
    return element(
        "svg",
        element("title", title),
        element("g", *lines, stroke=SHADES[1]),
        element("polygon", points=" ".join([*path(lower), *path(upper)[::-1]]), fill=SHADES[3]),
        element("polyline", points=" ".join(path(shares)), fill="none", stroke=ACCENT, stroke_width="2"),
        element("line", x1=str(_LEFT), x2=str(_LEFT + _WIDTH), y1=str(bottom), y2=str(bottom), stroke=MUTED),
        element("g", *texts, font_size="13", fill=INK),
        viewBox=f"0 0 {width} {height_of_all}",
        width=width,
        height=height_of_all,
        role="img",
        class_="picture",
        font_family="system-ui,-apple-system,'Segoe UI',Roboto,Arial,'Liberation Sans',sans-serif",
    )
