"""Promises: each sentence of one is whole by itself, and what follows from its numbers is told right."""

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from statistics import NormalDist

from tests.matrix.declared import MOST_UNCOUNTED, unit_of
from tests.matrix.findings import Finding
from tests.matrix.made import Made
from tests.matrix.options import Row
from tests.matrix.pages import Page

_CHANGE = "knowledge of every other record, about whether"
_BOUNDED = rf"{_CHANGE}|The promise is for|The unit is (?!not)|at most \d+ \w+ of (?:each user|your)\b[^.]* are counted"
_OF_USER = r"one user|all counted \w+ of a user"
"""What a sentence has that says what may change; what a unit is, or what of it is counted; and that it is a user."""


def whole_sentences(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each sentence that says what a unit is, and leaves out its time, a bound, or what may happen to it.

    Another sentence of the page may have what is left out: who reads this one alone is told something untrue. Pages of
    a site that are also about another series, of which a record may not be left out, are not looked at.
    """
    clauses = clauses_of(made.row)
    for page in [page for page in pages if page.of != "site" or "other" not in made.bundles]:
        for sentence in [one for block in page.blocks for one in re.split(r"(?<=\.) (?=[A-Z])", block)]:
            if page.of != "plan" or page.name == "plan --explain" or "The promise is for" in sentence:
                for (where, name), pattern in clauses.items():
                    if re.search(where, sentence, re.IGNORECASE) and not re.search(pattern, sentence, re.IGNORECASE):
                        yield Finding(page.file, f"a promise does not state {name}", sentence[:300])


def clauses_of(row: Row) -> dict[tuple[str, str], str]:
    """Return patterns of what sentences must have, by a pattern of these sentences and its name."""
    unit, of_user = unit_of(row), row["unit"] not in ("trip", "weights")
    clauses = dict[tuple[str, str], str]()
    for name, bound, words in (
        ("the contribution bound", unit.max_trips if of_user else unit.max_weight, "at most {}\\b"),
        ("the pair cap", unit.max_trips_pair, "\\b{} (?:with|in) the same"),
        ("the bound of a year", unit.max_trips_year, "\\b{} in (?:the|a|all)\\b"),
    ):
        if bound is not None:
            clauses[_BOUNDED, name] = words.format(bound)
    is_bounded = row["neighbours"] == "bounded"
    clauses[_CHANGE, "whether a unit is replaced or removed"] = "replaced by" if is_bounded else "added or removed"
    if span := {"user_period": "period", "user_year": "year"}.get(unit.kind):
        clauses[_OF_USER, "the time of a user"] = rf"(?:one|a) user in one [a-z ]*{span}"
        if is_bounded:
            clauses[_CHANGE, "the time of another user"] = rf"another user in the same {span}"
    if is_bounded and not of_user and row["total"] == "records may be left out":
        clauses[_CHANGE, "that a record may be left out"] = "whether or not that record is counted"
    return clauses


_GUESSED = re.compile(
    r"whoever guesses wh[^.]*? right at most (\d+) times in 100|[Tt]his release alone: at most (\d+) of 100 cases"
)


def guesses(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page on which a best guess about a release is right more or less often than its promise says.

    Of Gaussian noise, the bounds are those of a normal distribution and of Pinsker. Of a pure epsilon, the limit is the
    least of those by epsilon, Pinsker, and Bretagnolle and Huber.
    """
    spent, normal = made.main.facts["spent"], NormalDist()
    deviations = math.sqrt(spent["rho"] / 2)
    low, high = 100 * normal.cdf(deviations), 50 + 50 * deviations
    if not spent["delta"]:
        low = high = min(
            high, 100 / (1 + math.exp(-spent["epsilon"])), 50 + 50 * math.sqrt(1 - math.exp(-spent["rho"]))
        )
    for page in pages:
        if page.of == "release":
            for found in _GUESSED.findall(page.text):
                if not math.ceil(low - 1e-9) <= int("".join(found)) <= math.ceil(high - 1e-9):
                    yield Finding(page.file, "a guess is right another number of times", "".join(found))


def accepted_inputs(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that states another rule for faulty records than the certificate does."""
    percent = 100 * float(Fraction(made.main.facts["fault_threshold"]))
    for page in pages:
        for text in re.findall(r"refused if (?:more than ([\d.]+) % of its|any of its)", page.text):
            if page.of == "release" and not math.isclose(float(text or 0), percent):
                yield Finding(page.file, "another rule for faulty records", f"{text or 0} %, not {percent:g} %")


def considered(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that does not say how many records of a user a number of uncounted ones has at most."""
    names = ("certificate.html", "codebook.md", "notice.html", "report.html")
    stated = re.compile(rf"at most {MOST_UNCOUNTED} [^.]* considered", re.IGNORECASE)
    for page in pages if made.row["unit"] == "user_year uncounted" else ():
        if page.name in names and not stated.search(page.text):
            yield Finding(page.file, "how many uncounted records are considered is not stated")
