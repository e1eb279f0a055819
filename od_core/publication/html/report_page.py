"""Lay out the page of a report, with its styles and tables.

The page is one file of plain HTML, without scripts or external resources. It does not mention the software that made
it, and no library lays it out, so its bytes are the same whenever it is made.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile

from markupsafe import Markup

from od_core.publication.markup import element, joined

SHADES = ("#f4f8fc", "#dce9f5", "#c1daee", "#97c4e2", "#6aaed6", "#4796c9", "#2070b0", "#0b4f8f", "#08306b")
"""Background colours from light to dark. :func:`ink_on` returns the legible text colour for each."""

INK, PAPER, ACCENT, MUTED = "#17212b", "#ffffff", "#1c6ca8", "#55616e"

_DARK_SHADES = 3

_STYLE = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:62rem;color:#17212b;background:#fff;
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"Liberation Sans",sans-serif}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .25rem;letter-spacing:-.01em}
h2{font-size:1.3rem;line-height:1.3;margin:3rem 0 .75rem;padding-top:.9rem;border-top:2px solid #17212b}
h3{font-size:1.02rem;margin:1.6rem 0 .4rem}
p{margin:.6rem 0;max-width:46rem;overflow-wrap:anywhere}
a{color:#1a5f94}
.under{color:#55616e;margin:0 0 1.25rem}
nav ul{list-style:none;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.25rem 1.1rem;font-size:.92rem}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(9.5rem,1fr));gap:.75rem;margin:0 0 1.25rem}
.figures div{background:#f2f6fa;border-left:3px solid #1c6ca8;padding:.6rem .8rem}
.figures dt{font-size:.85rem;color:#4a5663}
.figures dd{margin:0;font-size:1.35rem;font-weight:600;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.facts{margin:.6rem 0}
.facts dt{font-weight:600;margin-top:.7rem}
.facts dd{margin:.1rem 0 0;max-width:46rem}
.scroll{overflow-x:auto;margin:.9rem 0;max-width:100%}
.scroll:focus-visible,a:focus-visible{outline:3px solid #1c6ca8;outline-offset:2px}
table{border-collapse:collapse;font-size:.92rem;font-variant-numeric:tabular-nums lining-nums;min-width:60%}
caption{text-align:left;font-weight:600;padding:0 0 .45rem}
caption span{display:inline-block;max-width:min(46rem,calc(100vw - 2.2rem))}
th,td{padding:.32rem .7rem;text-align:left;vertical-align:baseline;border-bottom:1px solid #dde3e9}
thead th,thead td{border-bottom:1.5px solid #17212b;vertical-align:bottom}
thead th{font-weight:600;line-height:1.3;white-space:normal;max-width:9rem}
tbody th{font-weight:500;min-width:6rem}
td small{display:block;font-size:.85em;color:#4a5663;white-space:nowrap}
.n{text-align:right}
td.n{white-space:nowrap}
.bar{min-width:9rem;width:34%;vertical-align:middle}
.bar svg{display:block;width:100%;height:1.1em}
.heat{font-size:.84rem}
.heat td{text-align:right;padding:.42rem .4rem;border:1px solid #fff;white-space:nowrap}
.heat tbody th{white-space:nowrap;padding-left:0}
.heat thead th{font-size:.8rem;max-width:7rem;min-width:3.5rem;padding:.3rem .4rem;text-align:right;
overflow-wrap:break-word}
.heat thead th:first-child{text-align:left;padding-left:0}
.heat .sum{font-weight:600;border-left:1px solid #17212b}
.key{display:flex;flex-wrap:wrap;gap:.2rem .9rem;list-style:none;margin:.2rem 0 .8rem;padding:0;font-size:.85rem;
font-variant-numeric:tabular-nums}
.key i{display:inline-block;width:1.15em;height:1.15em;margin-right:.35em;vertical-align:-.2em;border:1px solid #8793a0}
figure{margin:1rem 0}
figcaption{font-size:.92rem;color:#3c4854;max-width:46rem;margin-top:.3rem}
.picture{min-width:30rem;display:block;width:100%;height:auto}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,18rem),1fr));gap:1rem}
.maps svg{display:block;width:100%;height:auto}
.mark{color:#8a3a00;font-weight:700}
.note{font-size:.92rem;color:#3c4854}
blockquote{margin:.8rem 0;padding:.7rem 1rem;background:#f2f6fa;border-left:3px solid #1c6ca8;max-width:46rem;
overflow-wrap:anywhere}
code{font:.92em ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere}
@media(max-width:34rem){body{padding:1.1rem .9rem 3rem}h1{font-size:1.5rem;overflow-wrap:anywhere}
th,td{padding:.3rem .24rem}table{min-width:100%;font-size:.82rem}.bar{min-width:3rem}
.bar:nth-child(n+5),.spare{display:none}
tbody th{min-width:0}td.n,td small{white-space:normal}
table:not(.heat) tbody :is(th,td:not(.n,.bar)){min-width:4.2rem;overflow-wrap:anywhere}}
@media print{body{max-width:none;padding:0;font-size:10pt}nav{display:none}h2{margin-top:1.6rem;break-after:avoid}
.figures{grid-template-columns:repeat(auto-fit,minmax(7rem,1fr))}
.heat{font-size:6.5pt}.heat td,.heat thead th,.heat tbody th{padding:.15rem .2rem;min-width:0}
.heat thead th{font-size:6.5pt}tbody th,.bar{min-width:0}td small,td.n{white-space:normal}th,td{padding:.3rem .35rem}
table{font-size:.85rem}tr,figure,.figures,blockquote{break-inside:avoid}.scroll{overflow:visible}.picture{min-width:0}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}@page{margin:16mm}}
"""


_NOTHING = joined()


def page(
    title: str,
    under: str,
    figures: Sequence[tuple[str, object]],
    sections: Sequence[tuple[str, Markup]],
    *,
    head: Markup = _NOTHING,
) -> str:
    """Return the HTML text of a whole page.

    Args:
        title, under: heading of the page, and the line below it.
        figures: names and values of the most important numbers.
        sections: heading and content of each section.
        head: further elements of the head.
    """
    names = [f"part-{number}" for number in range(1, len(sections) + 1)]
    links = [
        element("li", element("a", heading, href=f"#{name}"))
        for name, (heading, _) in zip(names, sections, strict=True)
    ]
    parts = [
        element("section", element("h2", heading), content, id=name)
        for name, (heading, content) in zip(names, sections, strict=True)
    ]
    tiles = [element("div", element("dt", name), element("dd", value)) for name, value in figures]
    body = joined(
        element(
            "header",
            element("h1", title),
            element("p", under, class_="under"),
            element("dl", *tiles, class_="figures"),
            element("nav", element("ul", *links), aria_label="Contents"),
        ),
        element("main", *parts),
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"{element('title', title)}\n<style>{_STYLE}</style>{head}\n</head>\n{element('body', body)}\n</html>\n"
    )


def paragraph(*content: object, note: bool = False) -> Markup:
    """Return a paragraph of text; ``note`` makes its text smaller."""
    return element("p", *content, class_="note" if note else None)


def number(value: int) -> str:
    """Return a whole number with thousands separators."""
    return f"{int(value):,}"


def signed(value: int) -> str:
    """Return a change with its sign and thousands separators; 0 without a sign."""
    return f"{int(value):+,}".replace("-", "\u2212") if value else "0"


def rounded(value: float) -> str:
    """Return a number with three significant digits, its whole part in full, and at most three decimal places."""
    size = abs(value)
    if size == 0:
        return "0"
    places = 0 if size >= 100 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{value:,.{places}f}"


def between(lower: int, upper: int) -> str:
    """Return the text ``lower to upper`` of an interval, with thousands separators."""
    return f"{number(lower)} to {number(upper)}"


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
                element(
                    "td", element("em", number(value)) if zero else number(value), style=_shaded(scale.shade(value))
                )
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
    return joined(scrolled(caption, whole), scale.key(unit))


def _shaded(shade: int) -> str:
    return f"background:{SHADES[shade]};color:{ink_on(shade)}"


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


def one_three_ten() -> Iterator[int]:
    """Yield 1, 3, 10, 30, 100 and so on."""
    for power in count():
        yield from (10**power, 3 * 10**power)


def size_classes(most: int) -> list[tuple[int, int]]:
    """Return the first and last number of each class up to ``most``: 1, 2 to 3, 4 to 10, 11 to 30 and so on."""
    steps = one_three_ten()
    classes = [(1, next(steps))]
    while classes[-1][1] < most:
        classes.append((classes[-1][1] + 1, next(steps)))
    return classes


def class_text(low: int, high: int) -> str:
    """Return the text of the numbers from ``low`` to ``high``, such as ``4 to 10``."""
    return number(low) if low == high else f"{number(low)} to {number(high)}"


@dataclass(frozen=True)
class Scale:
    """A scale that assigns a darker shade to larger numbers.

    Attributes:
        steps: smallest number of each darker shade, ascending: the last eight of 1, 3, 10, 30 and so on that do not
            exceed the largest number.
    """

    steps: tuple[int, ...]

    @classmethod
    def up_to(cls, most: float) -> Scale:
        """Return the scale for numbers from 0 to ``most``."""
        steps = list(takewhile(lambda step: step <= max(most, 1), one_three_ten()))
        return cls(tuple(steps[-(len(SHADES) - 1) :]))

    def shade(self, value: float) -> int:
        """Return the index of a number's shade in :data:`SHADES`, with a tolerance for rounding errors of floats."""
        reached = sum(value * (1 + 1e-9) >= step for step in self.steps)
        return reached * (len(SHADES) - 1) // len(self.steps)

    def key(self, unit: str) -> Markup:
        """Return the legend of the shades."""
        words = [f"below {number(self.steps[0])} {unit}", *(f"from {number(step)}" for step in self.steps)]
        values = [0, *self.steps]
        return element(
            "ul",
            *(
                element("li", element("i", style=f"background:{SHADES[self.shade(value)]}"), word)
                for value, word in zip(values, words, strict=True)
            ),
            class_="key",
        )


def ink_on(shade: int) -> str:
    """Return the text colour that is legible on a shade."""
    return PAPER if shade >= len(SHADES) - _DARK_SHADES else INK


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
