"""Show numbers to people: as text, in classes of size, and as shades of a colour."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from typing import TYPE_CHECKING

from od_core.languages import localise_number, translate

if TYPE_CHECKING:  # commands that print need no NumPy
    import numpy as np
    from numpy.typing import NDArray

SHADES = ("#f4f8fc", "#dce9f5", "#c1daee", "#97c4e2", "#6aaed6", "#4796c9", "#2070b0", "#0b4f8f", "#08306b")
"""Background colours from light to dark. Text is legible on the darkest in ``PAPER``, else in ``INK``."""

INK, PAPER, ACCENT, MUTED = "#17212b", "#ffffff", "#1c6ca8", "#55616e"

_DARK_SHADES = 3
"""Number of shades at the end of ``SHADES`` on which text is legible in ``PAPER``."""


def format_number(value: int) -> str:
    """Return a whole number with thousands separators."""
    return localise_number(f"{int(value):,}")


def format_change(value: float) -> str:
    """Return a change with its sign, 0 without one. A float is formatted by :func:`format_rounded`.

    The sign of a decrease is a minus sign (U+2212), not a hyphen.
    """
    text = format_rounded(value) if isinstance(value, float) else format_number(int(value))
    return ("+" if value > 0 else "") + text.replace("-", "\u2212")


def format_rounded(value: float) -> str:
    """Return a number with three significant digits, its whole part in full, and at most three decimal places."""
    size = abs(value)
    if size == 0:
        return "0"
    whole_digits = sum(size >= bound for bound in (1, 10, 100))
    return localise_number(f"{value:,.{3 - whole_digits}f}")


def format_trips_rounded_up(width: float, times: int = 1) -> str:
    """Return a half-width in trips, rounded by :func:`round_up_trips` and then multiplied by ``times``, as text."""
    return format_number(times * round_up_trips(width))


def round_up_trips(width: float) -> int:
    """Return a half-width in trips, rounded up to two significant digits and to a whole number."""
    width -= 1e-9  # intervals are widened by this much, because floats are rounded
    unit: int = 10 ** max(len(str(math.ceil(width))) - 2, 0)
    return math.ceil(width / unit) * unit


def format_percent(share: float) -> str:
    """Return a share of 1 in percent, with one decimal place."""
    return localise_number(f"{100 * share:.1f} %")


def format_decimals(value: float, places: int = 1) -> str:
    """Return a number with a fixed number of decimal places, as in the attributes of a picture."""
    return f"{value:.{places}f}"


def format_interval(lower: int, upper: int) -> str:
    """Return the text ``lower to upper`` of an interval, with thousands separators."""
    return translate("{lower} to {upper}").format(lower=format_number(lower), upper=format_number(upper))


def choose_reliability_word(value: int, lower: int, upper: int) -> str:
    """Return the word for how reliable a number is, given its interval; see :mod:`od_core.flows.interval_ends`.

    The number is ``solid`` if its interval is at most a quarter of it wide, and otherwise ``rough``. It ``may be none``
    if the interval has 0. The word is empty for a number that is released as 0.
    """
    if value == 0:
        return ""
    if lower <= 0:
        return translate("may be none")
    return translate("solid") if 4 * (upper - lower) <= value else translate("rough")


def format_interval_and_word(value: int, lower: int, upper: int) -> str:
    """Return the text of the interval of a number, with the word for its reliability, such as ``20 to 54, rough``.

    An interval from 0 to 0 is no certainty, so it has a word in place of its ends.
    """
    if value == lower == upper == 0:
        return translate("likely none")
    interval, word = format_interval(lower, upper), choose_reliability_word(value, lower, upper)
    return f"{interval}, {word}" if word else interval


def compute_percent_of_largest(value: float, largest: float) -> float:
    """Return a number in percent of ``largest``, at largest 100, with two decimal places; 0 if ``largest`` is 0."""
    return round(min(100 * value / largest, 100), 2) if largest > 0 else 0.0


def iterate_one_three_ten() -> Iterator[int]:
    """Yield 1, 3, 10, 30, 100 and so on."""
    for power in count():
        yield from (10**power, 3 * 10**power)


def list_size_classes(largest: int) -> list[tuple[int, int]]:
    """Return the first and last number of each class up to ``largest``: 1, 2 to 3, 4 to 10, 11 to 30 and so on."""
    classes = []
    first = 1
    for last in iterate_one_three_ten():
        classes.append((first, last))
        if last >= largest:
            break
        first = last + 1
    return classes


def find_places_of_largest(numbers: NDArray[np.int64], max_count: int) -> NDArray[np.intp]:
    """Return the positions, in ascending order, of the ``max_count`` largest numbers; of all if there are fewer."""
    positions = (-numbers).argsort(kind="stable")[:max_count]
    positions.sort()
    return positions


def format_class(low: int, high: int) -> str:
    """Return the text of the numbers from ``low`` to ``high``, such as ``4 to 10``."""
    return format_number(low) if low == high else format_interval(low, high)


@dataclass(frozen=True)
class Scale:
    """A scale that assigns a darker shade to larger numbers.

    Attributes:
        steps: smallest number of each darker shade, ascending: the last eight of 1, 3, 10, 30 and so on that do not
            exceed the largest number.
    """

    steps: tuple[int, ...]

    @classmethod
    def from_maximum(cls, largest: float) -> Scale:
        """Return the scale for numbers from 0 to ``largest``."""
        steps = takewhile(lambda step: step <= max(largest, 1), iterate_one_three_ten())
        darker_shades = len(SHADES) - 1
        return cls(tuple(steps)[-darker_shades:])

    def find_shade(self, value: float) -> int:
        """Return the index of a number's shade in :data:`SHADES`.

        With fewer than eight steps, the shades are further apart. A number that is below a step only by the rounding
        error of floats has the shade of the step.
        """
        reached = sum(value * (1 + 1e-9) >= step for step in self.steps)
        return reached * (len(SHADES) - 1) // len(self.steps)

    def find_colour(self, value: float) -> str:
        """Return the colour of a number's shade, as in :data:`SHADES`."""
        return SHADES[self.find_shade(value)]

    def format_style(self, value: float) -> str:
        """Return the style of a cell of a table: the shade of its number, and a text colour that is legible on it."""
        ink = PAPER if self.find_shade(value) >= len(SHADES) - _DARK_SHADES else INK
        return f"background:{self.find_colour(value)};color:{ink}"
