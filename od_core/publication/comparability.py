"""Decide whether the numbers of two releases are compared: as they are, per day, or not at all, and then why not.

Reports, sites, atlases, ``od-release compare`` and sums ask :func:`check_comparability`. It knows public facts alone,
those that certificates state. The one step is that to numbers per day. Between different areas, bounds, columns or
selections of records no change is told, because nothing in two releases says what the other one would have counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from od_core.languages import message
from od_core.periods import Period
from od_core.publication.certificate import Certificate

_BOUNDS = ("unit", "contribution_bound", "max_trips_pair", "max_trips_year", "max_weight")
"""Facts of a plan that say which trips of a user, or how many of a record, are counted."""


@dataclass(frozen=True)
class Comparability:
    """Whether and how the numbers of two releases are compared.

    Attributes:
        differing: what differs so that they are not compared, in words that follow "different"; empty if they are.
        days: numbers of days of the two periods; (1, 1) if they are not stated.
    """

    differing: tuple[str, ...] = ()
    days: tuple[int, int] = (1, 1)

    @property
    def is_possible(self) -> bool:
        """Whether the numbers are compared."""
        return not self.differing

    @property
    def per_day(self) -> bool:
        """Whether changes are told per day, because the periods have different numbers of days."""
        return self.days[0] != self.days[1]


def check_comparability(before: Certificate, after: Certificate, breakdowns: Collection[str] = ()) -> Comparability:
    """Return whether and how two releases are compared, given their certificates.

    Args:
        before, after: the certificates. Derived flows, which state no plan, are taken to have the bounds of the other.
        breakdowns: names of the breakdowns whose categories are compared, too.
    """
    facts_before, facts_after = (
        list_compared_facts(certificate) | _list_categories(certificate, breakdowns) for certificate in (before, after)
    )
    stated_by_both = [name for name in facts_before if name in facts_after]
    differing = [name for name in stated_by_both if facts_before[name] != facts_after[name]]
    if not (before.get("period") and after.get("period")):
        return Comparability(tuple(differing))
    return Comparability(tuple(differing), (count_period_days(before), count_period_days(after)))


def _list_categories(certificate: Certificate, breakdowns: Collection[str]) -> dict[str, object]:
    """Return the definitions of the categories of some breakdowns, by the words that name a difference in them."""
    definitions = read_category_definitions(certificate)
    return {name_breakdown_categories(name): definitions.get(name, {}) for name in breakdowns}


def count_period_days(certificate: Certificate) -> int:
    """Return the number of days of the period of a release."""
    return Period(certificate["period"]).days


def name_breakdown_categories(breakdown: str) -> str:
    """Return the words that :attr:`Comparability.differing` has for the categories of a breakdown."""
    return f"categories of {breakdown!r}"


def list_compared_facts(certificate: Certificate) -> dict[str, object]:
    """Return the facts that must be equal in two compared releases, if both state them, by words for a difference.

    Other columns and files are not compared, because their names may change with each period; nor are the codes that
    name no place, which only say in which area a record is counted. A breakdown selects records only if it leaves out
    unlisted ones. Under user units, a user's trips are bounded for the whole period, so a month is not compared with a
    quarter.
    """
    plan, records = certificate.get("plan", {}), certificate.get("records") or {}
    definitions = read_category_definitions(certificate)
    selecting = {name: facts for name, facts in definitions.items() if facts["unknown"] is None}
    bounds: dict[str, object] = {}
    if plan:
        bounds[message("bounds of what is counted")] = [plan.get(name) for name in _BOUNDS]
    if plan.get("unit", "trip") != "trip":
        period = Period(certificate["period"])
        months = len(period.split_into("month"))
        length = f"{months} months" if months else f"{period.days} days"  # not of whole months
        bounds[message("lengths of the periods in which a user's records are bounded")] = length
    return {
        message("areas"): certificate.get("geographies"),
        **bounds,
        message("columns of what is counted"): [records.get("columns", {}).get(name) for name in ("trips", "weight")],
        message("selections of records"): [
            {column: sorted(values) for column, values in records.get("categories", {}).items()},
            selecting,
        ],
    }


def read_category_definitions(certificate: Certificate) -> dict[str, dict[str, object]]:
    """Return, by breakdown, the facts that assign records to categories: all but the name of the column.

    The categories are sorted, so that their order does not matter.
    """
    sources = (certificate.get("records") or {}).get("columns", {}).get("segments", {})
    declared = certificate.get("plan", {}).get("segments", {}).get("breakdowns", [])
    definitions = {}
    for breakdown in declared:
        name, categories = breakdown["name"], sorted(breakdown["categories"])
        definitions[name] = breakdown | sources.get(name, {}) | {"column": None, "categories": categories}
    return definitions
