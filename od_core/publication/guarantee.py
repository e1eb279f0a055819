"""State in sentences what a release protects, and what it does not protect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from od_core.privacy.accounting import text_above
from od_core.privacy.budget import Spent
from od_core.privacy.neighbours import Acceptance, Neighbours, change_of
from od_core.privacy.person_year import alike
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import PrivacyUnit

TRIPS_OF_A_PERSON = 40
"""Number of trips of the person in the certificate's example of what unit ``trip`` does not protect."""

PERIODS_OF_A_YEAR = 12
"""Number of periods in the certificate's example of a person with a privacy unit in each month of a year."""


def guarantee_sentences(neighbours: Neighbours, spent: Spent, public: Sequence[str]) -> dict[str, str]:
    """Return sentences, by name, on what a release protects and does not protect. Numbers are rounded up.

    Args:
        neighbours: the neighbour relation between inputs, with the privacy unit.
        spent: budget that the release has spent.
        public: clauses on numbers that are published exactly, besides settings and areas.
    """
    unit = neighbours.unit
    sentences = {
        "protected": _protected(neighbours.change(), spent),
        "public": _public(["the period, the areas and all settings of the release", *public]),
        "not_protected": _not_protected([*public, _person(unit, spent)]),
        "input": neighbours.acceptance.sentence("records" if unit.max_weight is not None else "trips"),
    }
    if unit.max_weight is not None:
        sentences["contribution"] = (
            "A record counts as many trips as its weight, rounded to the nearest whole number (halves up), but at"
            f" most {unit.max_weight}. A record whose weight is missing, negative, not finite or not a number is not"
            " counted."
        )
    if unit.kind != "trip":
        year, users = unit.max_trips_year, "a user id" if unit.id_pattern is None else "a valid user id"
        in_year = "" if year is None else f" in a release, and at most {year} in all periods of a year together"
        sentences["contribution"] = (
            f"At most {unit.contribution_bound} trips of each user are counted{in_year}. The others are removed before"
            f" anything is counted: a secret key and the trips of that user alone decide which. Records without {users}"
            " are not counted."
        )
    return sentences


def pure_sentences(
    unit: PrivacyUnit, spent: Spent, acceptance: Acceptance, *, public: str, with_it: str = ""
) -> dict[str, str]:
    """Return the sentences of a release of single trips whose delta is 0; see :func:`guarantee_sentences`.

    Args:
        unit, spent: as in :func:`guarantee_sentences`.
        acceptance: which records are counted, and which inputs are refused.
        public: a clause on the data that are public beforehand.
        with_it: text on what is protected together with a trip.
    """
    anywhere = ", whether or not that record is counted in this release" if unit.neighbours == "bounded" else ""
    return {
        "protected": _protected(change_of(unit, anywhere) + with_it, spent),
        "public": _public([f"{public}, which was public beforehand", "the period and all settings of the release"]),
        "not_protected": _not_protected([f"{public}, which is public beforehand", _person(unit, spent)]),
        "input": acceptance.sentence("trips"),
    }


def _protected(change: str, spent: Spent) -> str:
    epsilon, delta = text_above(spent.epsilon), text_above(spent.delta)
    measure = f"({epsilon}, {delta})" if spent.delta else epsilon
    return (
        "Anyone who sees everything that this release publishes, even with knowledge of every other record, learns"
        f" almost nothing about whether {change}: the release is {measure}-differentially private for that change."
    )


def _public(facts: Sequence[str]) -> str:
    return f"The following are public, without noise: {'; '.join(facts)}."


def _not_protected(facts: Sequence[str]) -> str:
    others = "what other releases from the same records reveal, beyond the cap of the privacy domain"
    return f"{'; '.join(['the period itself', *facts, others])}."


def _person(unit: PrivacyUnit, spent: Spent) -> str:
    """Return clauses on what the unit does not protect of a person, with the guarantee for several units."""
    if unit.kind == "user":
        return (
            "a person with several user ids as a whole; a user across this and other releases: the losses of"
            " all periods of the data set add up"
        )
    if unit.kind == "user_year":
        return "a person with several user ids as a whole; a user in several years as a whole"
    one = Guarantee.of(spent)
    of_year = _in_words(one.in_periods(PERIODS_OF_A_YEAR), spent)
    year = f"in each of {PERIODS_OF_A_YEAR} such periods, all released like this one: {of_year}"
    if unit.kind == "user_period":
        return f"a person with several user ids as a whole; a user in several periods as a whole (one {year})"
    of_many = _in_words(one.of_units(TRIPS_OF_A_PERSON), spent)
    return (
        f"a person with many trips as a whole (one with {TRIPS_OF_A_PERSON} trips in the period: {of_many};"
        f" one with a trip {year})"
    )


def year_sentence(unit: PrivacyUnit, spent: Spent, periods: int) -> str:
    """Return a sentence on what a whole year costs under unit ``user_year``, with one release in each period."""
    year = Guarantee.of_rho(alike(unit, spent, periods), spent.delta)
    epsilon, delta = text_above(year.epsilon, 4), text_above(year.delta)
    return (
        "All releases from the records of a year together stay within the cap of the privacy domain, which holds for"
        f" the trips of a user in the whole year. If each of the {periods} periods of a year is released once, like"
        f" this one, all of them together are ({epsilon}, {delta})-differentially private for that change."
    )


def _in_words(guarantee: Guarantee | None, spent: Spent) -> str:
    """Return a guarantee in words; delta is stated if it is not that of the release."""
    if guarantee is None:
        return "no promise"
    stated = f"epsilon {text_above(guarantee.epsilon, digits=4)}"
    return stated if guarantee.delta == spent.delta else f"{stated} with delta {text_above(guarantee.delta, digits=4)}"


def promise(guarantee: Mapping[str, str]) -> str:
    """Return the sentences of a certificate's guarantee on what is protected and what is public, as one text."""
    return f"{guarantee['protected']} {guarantee['public']}"
