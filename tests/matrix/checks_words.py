"""Words: nouns that do not belong to what a release counts, promises that are not whole, and faults of English.

The nouns are those of this module, and not of the product, so that a noun of the product can be wrong.
"""

import re
from collections.abc import Iterator

from tests.matrix.declared import ABOUT, unit_of
from tests.matrix.findings import Finding
from tests.matrix.made import Made
from tests.matrix.pages import Page
from tests.matrix.prose import words_of

_OTHERS = ("planning page", "nist-sp-800-226.json", "nist-sp-800-226.html")
"""Pages that also speak of other units and other kinds of tables than their own."""

_ALTERNATIVES = re.compile(
    r"users who|data users|a user, at most|a user in one|unit .?user|user id|user or household|needs a user",
    re.IGNORECASE,
)
"""Words of other decisions, with which an explanation and a decision compare."""

_EXCEPTED = re.compile(r"release of flows|flows can be derived|release flows|OD-[A-Z-]+:")
"""Messages that name another kind, to say that something needs it."""


def foreign_nouns(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each block with a noun of another kind, unit or publisher: a table of patients has no trips."""
    patterns = {name: re.compile(rf"\b(?:{text})\b", re.IGNORECASE) for name, text in foreign_to(made).items()}
    for page in pages:
        for block in page.blocks:
            words = words_of(block)
            if _EXCEPTED.search(words):
                continue
            for name, pattern in patterns.items():
                if name == "user" and (page.name in _OTHERS or page.of == "plan" or _ALTERNATIVES.search(words)):
                    continue
                if found := pattern.search(words):
                    yield Finding(page.file, f"noun of another kind: {name}", _around(words, found.start()))


def foreign_to(made: Made) -> dict[str, str]:
    """Return patterns of the nouns that no page of a row may have, by what they are."""
    row, about = made.row, ABOUT[made.row["words"]]
    kind, foreign = row["kind"], dict[str, str]()
    if kind == "counts":
        foreign |= {"trip": "trips?", "flow": "flows?", "end": "origins?|destinations?"}
        foreign |= {
            "pair": "(?:same )?two (?:zones|areas|places)|pairs? (?:of (?:zones|areas|levels)|with a noisy|that did)"
            "|between (?:areas|zones)"
        }
    if kind == "group sizes":
        foreign |= {
            "trip": "trips?",
            "flow": "flows?",
            "end": "origins?|destinations?",
            "pair": "pairs? of (?:zones|areas)|between (?:areas|zones)",
        }
    if kind == "boxes":
        foreign |= {"flow": "flows?", "pair": "pairs? of (?:zones|areas)|between (?:areas|zones)"}
        if row["geography"] == "codes":
            foreign |= {"end": "origins?|destinations?", "map": "maps?"}
    if "counted" in about:
        foreign |= {"trip": "trips?"}
    if row["unit"] in ("trip", "weights"):
        foreign |= {"user": "users?"}
    if "trip" in foreign:
        foreign |= {"deed": "you made|who made"}
    return foreign


def whole_promises(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that promises something for a unit, and does not state all bounds within which it holds."""
    unit = unit_of(made.row)
    bounds = {"the pair cap": unit.max_trips_pair, "the bound of a year": unit.max_trips_year}
    if unit.max_weight is not None:
        bounds["the bound of weights"] = unit.max_weight
    elif unit.kind != "trip":
        bounds["the contribution bound"] = unit.max_trips
    words = {
        "the pair cap": "same|pair",
        "the bound of a year": "year",
        "the bound of weights": "weight|units|record",
        "the contribution bound": "at most|largest",
    }
    whole = ("certificate.html", "certificate.json", "codebook.md", "report.html", "notice.html", "explain", "decide")
    for page in pages:
        if page.name in (*whole, "impact-assessment.md", "registry-entry.yaml", "plan --explain"):
            text = page.text
            if page.name == "decide":  # its tables have the bounds of other decisions, too
                text = "\n".join(block for block in page.blocks if "The promise is for" in block)
            for name, bound in bounds.items():
                stated = rf"(?:{words.get(name, '')})[^.]*\b{bound}\b|\b{bound}\b[^.]*(?:{words.get(name, '')})"
                if bound is not None and not re.search(stated, text, re.IGNORECASE):
                    yield Finding(page.file, f"{name} is not stated", str(bound))


def plain_sentences(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each block with a large epsilon that does not say, too, how often a guess about a person is right."""
    for page in pages:
        if page.name in ("certificate.html", "report.html", "notice.html", "impact-assessment.md"):
            for block in page.blocks:
                large = [float(found) for found in re.findall(r"epsilon (?:of )?(\d+\.?\d*)", block)]
                if large and max(large) > 10 and not re.search(r"in 100|of 100|guess", block):
                    yield Finding(page.file, "a large epsilon is stated without a plain sentence", f"{max(large):g}")


def days_of_periods(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each page that tells a change between periods of different length, and says nothing of days."""
    if made.row["series"] != "two" or made.row["period"] != "month":
        return
    for page in pages:
        tells = page.name in ("compare", "report.html", "atlas.html") or page.name.endswith("over_time.html")
        tells = tells and (page.of in ("site", "release")) and re.search(r"\b(?:grew|fell)\b", page.text)
        if tells and not re.search(r"per day|\b3[01] days\b|a day", page.text):
            yield Finding(page.file, "a change between 31 and 30 days is told without days")
        of_users = made.row["unit"] not in ("trip", "weights")
        if tells and of_users and not re.search(r"bound of [^.]* period[^.]* per day may change", page.text):
            yield Finding(page.file, "a change per day is told without the bound of a user in a period")


_FAULTS = {
    "two spaces": re.compile(r"(?<=[a-z,.;]) {2,}(?=[A-Za-z])"),
    "a space before a comma": re.compile(r"\w ,|\w ;|\w \.(?:\s|$)|\( | \)"),
    "empty parentheses": re.compile(r"\(\s*\)|\[\s*\]"),
    "a brace": re.compile(r"\{\{|\}\}|\{%|%\}"),
    "a value of Python": re.compile(r"\bNone\b(?!:)|\bnan\b|\bNaN\b|<NA>|Fraction\(|\bUndefined\b"),
    "a double sign": re.compile(r"[,;:]{2}|(?<!\.)\.\.(?!\.)(?=\s|$)|,\."),
    "a word twice": re.compile(r"\b(the|a|of|and|to|in|is|one|all|by) \1\b"),
    "one of many": re.compile(r"(?<![\d.,/+-] )(?<![\d.,/^-])\b1 (?!is\b|has\b|was\b|times\b|does\b)[a-z]{3,}s\b"),
    "no space after a sentence": re.compile(r"[a-z]{2}\.[A-Z][a-z]"),
    "a period of all time": re.compile(r"\bperiod all\b"),
    "no plural": re.compile(r"\b(?:journeyss|flightss|recordss|tripss|areass|zoness)\b"),
    "a range to itself": re.compile(r"(?<![\d.,])0 \(0 to 0\)"),
}


def faults_of_english(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each block with a leftover of a template or of Python, and each page that writes percent in two ways."""
    for page in pages:
        for block in page.blocks:
            words = words_of(block)
            for name, pattern in _FAULTS.items():
                if found := pattern.search(words):
                    yield Finding(page.file, name, _around(words, found.start()))
        joined, spaced = re.search(r"\d%", page.text), re.search(r"\d[ \u00a0]%", page.text)
        if joined and spaced:
            yield Finding(page.file, "percent in two ways", _around(page.text, joined.start()))


_CLAIMS = {
    "a bound is told as if it were usual": (
        r"[Aa] (?:flow|count)[^.]{0,40} has a 90 % interval of about ±|as often as they say"
    ),
    "a share of the error is told that was not measured": r"\b(?:half|third|quarter|twice) (?:of )?the errors?\b",
}


def untrue_claims(text: str) -> Iterator[tuple[str, str]]:
    """Yield each claim of accuracy that does not hold for every release: what is wrong with it, and where it is."""
    for what, pattern in _CLAIMS.items():
        for found in re.finditer(pattern, text):
            yield what, _around(text, found.start())


def claims_of_accuracy(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each block that gives the widest interval as if it were that of any number, or a share of the error."""
    for page in pages:
        for block in page.blocks:
            for what, claim in untrue_claims(block):
                yield Finding(page.file, what, claim)


def lists_of_noise(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each list of the largest numbers that has numbers which may be none."""
    for name, bundle in made.bundles.items():
        for table in re.findall(
            r"<table.*?</table>", bundle.file("report.html").read_text(encoding="utf-8"), re.DOTALL
        ):
            rows = [row for row in table.split("<tr")[2:] if re.search(r"\d", row)]
            caption = " ".join(re.sub(r"<[^>]*>", "", table.partition("</caption>")[0]).split())
            if "argest" in caption and any(re.search(r"may\W+be\W+none|may&nbsp;be", row) for row in rows):
                yield Finding(f"{name}/report.html", "a largest number may be none", caption)


def descriptions(made: Made, pages: list[Page]) -> Iterator[Finding]:
    """Yield each report without the description, the source or the coverage that its publisher has given."""
    about = ABOUT[made.row["words"]]
    for page in pages:
        if page.name == "report.html":
            for name in ("description", "source", "coverage"):
                if name in about and about[name].rstrip(".") not in page.text:
                    yield Finding(page.file, f"the publisher's {name} is missing")


def _around(text: str, place: int) -> str:
    line = " ".join(text[max(place - 70, 0) : place + 70].split(" "))
    return repr(line.replace("\n", " ").strip())
