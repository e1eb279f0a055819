"""State in sentences what a release protects, and what it does not protect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from od_core.privacy.accounting import text_above
from od_core.privacy.budget import Spent
from od_core.privacy.domain import alike
from od_core.privacy.neighbours import Acceptance, Neighbours, change_of
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.templates import filled_data

TRIPS_OF_A_PERSON = 40
"""Number of trips of the person in the certificate's example of what unit ``trip`` does not protect."""

PERIODS_OF_A_YEAR = 12
"""Number of periods in the certificate's example of a person with a privacy unit in each month of a year."""


def guarantee_sentences(neighbours: Neighbours, spent: Spent, public: Sequence[str]) -> dict[str, str]:
    """Return sentences, by name, on what a release protects and does not protect. Numbers are rounded up.

    ``public`` has clauses on numbers that are published exactly, besides settings and areas.
    """
    unit = neighbours.unit
    return _sentences(
        unit,
        spent,
        change=neighbours.change(),
        public=["the period, the areas and all settings of the release", *public],
        unprotected=[*public],
        input=neighbours.acceptance.sentence("records" if unit.max_weight is not None else "trips"),
    )


def pure_sentences(
    unit: PrivacyUnit, spent: Spent, acceptance: Acceptance, *, public: str, with_it: str = ""
) -> dict[str, str]:
    """Return the sentences of a release of single trips whose delta is 0; see :func:`guarantee_sentences`.

    ``public`` is a clause on the data that are public beforehand, and ``with_it`` on what is protected with a trip.
    """
    anywhere = ", whether or not that record is counted in this release" if unit.neighbours == "bounded" else ""
    return _sentences(
        unit,
        spent,
        change=change_of(unit, anywhere) + with_it,
        public=[f"{public}, which was public beforehand", "the period and all settings of the release"],
        unprotected=[f"{public}, which is public beforehand"],
        input=acceptance.sentence("trips"),
    )


def _sentences(unit: PrivacyUnit, spent: Spent, **clauses: object) -> dict[str, str]:
    given = {"unit": unit, "spent": spent, "one": Guarantee.of(spent), "in_words": partial(_in_words, spent=spent)}
    example = {"trips": TRIPS_OF_A_PERSON, "periods": PERIODS_OF_A_YEAR}
    filled = filled_data("guarantee.yaml", **given, **example, **clauses)["sentences"]
    return {name: text for name, text in filled.items() if text}


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
