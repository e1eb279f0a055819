"""Draw a distribution as a line with the band of its intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from od_core.publication.html.report_page import ACCENT, INK, MUTED, SHADES, number, one_three_ten
from od_core.publication.markup import Markup, element

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
