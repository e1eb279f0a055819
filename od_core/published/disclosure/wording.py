"""Say in words what several disclosure documents say of a release: its unit, its noise, its sources and its version."""

from __future__ import annotations

from od_core.privacy import accounting
from od_core.privacy.neighbours import SPANS
from od_core.privacy.posterior import Guarantee
from od_core.publication.certificate import TRIPS_OF_A_PERSON
from od_core.published.disclosure.facts import Facts


def promise_text(facts: Facts) -> str:
    """Return the promise, such as ``epsilon 1 at delta 1e-8``, rounded up."""
    return _promise(facts.guarantee)


GUESS = "between two cases that are equally likely beforehand, a best guess is right at most {} times in 100"
"""What a bound on guesses says. Without the equal odds beforehand it would not be true."""


def loss_text(facts: Facts) -> str:
    """Return sentences on each of :attr:`Facts.losses`, everything that may be published about the unit first."""
    return " ".join(
        [f"{one.of}: {_promise(one.guarantee)}; {GUESS.format(one.guess)}." for one in facts.losses]
        + [limit_text(facts)] * bool(limit_text(facts))
    )


def limit_text(facts: Facts) -> str:
    """Return a sentence on what the losses leave out; empty if the first one is of everything about the unit."""
    if "account" in facts.certificate:
        return ""
    return "The certificate does not state the cap, up to which the losses of all releases about one unit add up."


def _promise(guarantee: Guarantee) -> str:
    return accounting.promise_text(float(guarantee.epsilon), float(guarantee.delta))


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
