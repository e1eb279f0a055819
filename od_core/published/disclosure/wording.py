"""Say in words what several disclosure documents say of a release: its unit, its noise, its sources and its version."""

from __future__ import annotations

from od_core.privacy import accounting
from od_core.privacy.neighbours import SPANS
from od_core.publication.certificate import TRIPS_OF_A_PERSON
from od_core.published.disclosure.facts import Facts


def promise_text(facts: Facts) -> str:
    """Return the promise, such as ``epsilon 1 at delta 1e-8``, rounded up."""
    return accounting.promise_text(float(facts.guarantee.epsilon), float(facts.guarantee.delta))


def unit_text(facts: Facts) -> str:
    """Return the privacy unit in words, such as ``one trip record``."""
    if facts.unit == "trip":
        weight = f", which counts at most {facts.bound} trips" if "max_weight" in facts.plan else ""
        return f"one trip record{weight}"
    year = facts.plan.get("max_trips_year")
    counted = f"{facts.bound}" if year is None else f"{facts.bound} in each period and {year} in the year"
    return f"all trips of one user{SPANS[facts.unit]}, of which at most {counted} are counted"


def person_text(facts: Facts) -> str:
    """Return what the release promises to a person with many trips, for unit ``trip``."""
    person = facts.person
    if person is None:
        return f"for a person with {TRIPS_OF_A_PERSON} trips in the period, it promises nothing"
    delta = f" with delta {accounting.text_above(float(person.delta))}" if person.delta else ""
    return (
        f"for a person with {TRIPS_OF_A_PERSON} trips in the period, the promise is epsilon"
        f" {accounting.text_above(float(person.epsilon))}{delta}"
    )


def sources_text(facts: Facts) -> str:
    """Return the names of the releases that a derived release follows from."""
    return ", ".join(source["release"] for source in facts.sources)


def software_text(facts: Facts) -> str:
    """Return the name and the version of the software, if the certificate states it."""
    version = facts.certificate["software"].get("od-release")
    return "od-release" if version is None else f"od-release {version}"
