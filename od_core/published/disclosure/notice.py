"""Write the notice for the people in the data: one page in plain words, without mathematics.

Every number on it follows from the plan of the release.
"""

from __future__ import annotations

from markupsafe import Markup

from od_core.publication.certificate import TRIPS_OF_A_PERSON
from od_core.publication.html.report_page import number, page, paragraph
from od_core.publication.markup import element, joined
from od_core.published.disclosure.facts import TO_COMPLETE, Facts, limit_text, of_100, sources_text

_THINGS = {"flows": "trips between areas", "group sizes": "groups by their size", "boxes": "trips by where they went"}

_ALL_OF = {
    "user": "all your trips of all periods together, and gets weaker with each release, up to the common limit",
    "user_year": "all your trips of a year together",
}

_STYLE = """<style>
h2{margin-top:1.4rem;padding-top:.5rem}nav{display:none}
@media print{body{font-size:9.5pt;line-height:1.4}h1{font-size:16pt}
h2{font-size:12pt;margin-top:.7rem;padding-top:.3rem}p,li{margin:.25rem 0}ul{margin:.25rem 0}}
</style>"""


def notice(facts: Facts) -> str:
    """Return the notice as an HTML page."""
    contents = _THINGS.get(facts.contents, facts.contents)
    sections = [
        ("What is published", _published(facts, contents)),
        ("What is done to protect you", _protection(facts)),
        ("What somebody could learn about you", _risk(facts)),
        ("What is not protected", _not_protected(facts)),
        ("Who is responsible, and your rights", _organisation()),
    ]
    return page(
        "Are you in these statistics?",
        f"For people whose trips may be counted in {facts.key.release}, {_period(facts)}.",
        [],
        sections,
        head=Markup(_STYLE),  # noqa: S704 - a constant
    )


def _period(facts: Facts) -> str:
    """Return the period in words: a span of periods is written with ``to``."""
    return facts.key.period.replace("--", " to ")


def _published(facts: Facts, contents: str) -> Markup:
    made = (
        f"They are {facts.derivation} statistics that were published before ({sources_text(facts)}). Nobody looked at"
        " the records again to make them."
        if facts.is_derived
        else f"They were made from the records of data set {facts.certificate['data_set']} for {_period(facts)}."
    )
    exact = (
        " One number is published as it was counted: how many trips there are in all."
        if facts.has_exact_numbers
        else ""
    )
    return paragraph(
        f"Tables of {contents} are published for everyone. {made} No record of a trip, no name and no identifier is"
        f" published.{exact}"
    )


def _protection(facts: Facts) -> Markup:
    points = []
    if not facts.is_derived:
        detailed = (
            ""
            if facts.reach is None
            else " For the most detailed counts, this number is at most"
            f" {number(facts.reach)} up or down in 9 of 10 cases."
        )
        counts = "every other count" if facts.has_exact_numbers else "every count"
        points.append(f"A number drawn by chance was added to {counts} before anyone outside could see it.{detailed}")
        points.append(_counted(facts))
        points.append("How these numbers are drawn was fixed before any record was read, and is published.")
    else:
        points.append("The earlier statistics contain changes by chance. These follow from them, and reveal no more.")
    points.append("All statistics that the software makes from these records have a common limit, which it enforces.")
    return element("ul", *(element("li", point) for point in points))


def _counted(facts: Facts) -> str:
    if facts.unit == "trip":
        if "max_weight" in facts.plan:
            return f"A record counts as at most {number(facts.bound)} trips."
        return "The protection is for each single trip."
    period = " in each release" if facts.unit == "user" else " in each period"
    if "max_trips_year" in facts.plan:
        period += f", and at most {number(facts.plan['max_trips_year'])} in a year"
    uncounted = facts.certificate.get("uncounted")
    considered = (
        ""
        if uncounted is None
        else " The number of trips that are not counted is published, too, changed by chance; at most"
        f" {number(uncounted['max_trips'])} of your trips are considered in it."
    )
    return (
        f"At most {number(facts.bound)} of your trips are counted{period}. The protection is for"
        f" {_ALL_OF.get(facts.unit, 'all of them together')}.{considered}"
    )


def _risk(facts: Facts) -> Markup:
    if facts.unit == "trip":
        known = "all other trips, yours and those of everyone else"
        asked = f"made a certain trip{' or another one' if facts.is_bounded else ''}"
    else:
        known = "everything about everyone else"
        asked = "made these trips or others" if facts.is_bounded else "are in the records"
    first, *others = facts.losses
    more = "".join(f" {one.of}: at most {one.guess} of 100 cases." for one in others)
    limit = f" {limit_text(facts)}" if facts.unit == "user" and limit_text(facts) else ""
    parts = [
        paragraph(
            f"Suppose that somebody knows {known}, and wants to find out whether you {asked}. If they find both equally"
            " likely, they can only toss a coin without the statistics: they are right in 50 of 100 cases. With these"
            f" statistics, the best method there can be is right in at most {first.guess} of 100 cases. This holds for:"
            f" {first.of[:1].lower()}{first.of[1:].rstrip(',')}.{more}{limit}"
        )
    ]
    if facts.unit == "trip" and not facts.is_derived:
        person = facts.person
        many = 100 if person is None else of_100(person.best_guess())
        parts.append(
            paragraph(
                "If you made many trips, more can be learned about all of them together: from this release alone, with"
                f" {TRIPS_OF_A_PERSON} trips in the period, such a guess may be right in up to {many} of 100 cases."
            )
        )
    return joined(*parts)


def _not_protected(facts: Facts) -> Markup:
    points = ["What holds for many people, such as that a road is busy, can be learned even if you are not counted."]
    if facts.has_exact_numbers:
        points.append("The number of all trips is exact.")
    if facts.unit == "trip":
        points.append("Your trips are protected one by one, so a person who makes very many is protected less.")
    else:
        points.append("If you use several cards or accounts, each of them is protected by itself.")
    if facts.unit == "user_year":
        points.append("Each year is protected by itself; what can be learned from several years adds up.")
    elif facts.unit != "user" or facts.is_derived:
        points.append("Each period is protected by itself; what can be learned from many periods adds up.")
    else:
        points.append("What can be learned from several periods adds up, within the limit.")
    points.append("Other statistics about the same people, whoever publishes them, are not part of this promise.")
    points.append("The people who run the software see the records, and must be trusted to keep them safe.")
    return element("ul", *(element("li", point) for point in points))


def _organisation() -> Markup:
    asked = ("Organisation and contact", "Why the records are used, and on which legal ground", "Your rights")
    return element(
        "dl",
        *(joined(element("dt", name), element("dd", f"{TO_COMPLETE}.")) for name in asked),
        class_="facts",
    )
