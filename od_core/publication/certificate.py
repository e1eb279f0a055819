"""Build the certificate of a release: what is protected, what was spent, how the release was made and checked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from od_core.errors import OdError
from od_core.ledger.ledger import ReleaseRecord
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.privacy.accounting import float_above, text_above
from od_core.privacy.budget import Spent
from od_core.privacy.neighbours import Acceptance, Neighbours, change_of
from od_core.privacy.person_year import alike, most_in_a_year
from od_core.privacy.plan import PlannedRelease
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.kind import Kind, R

SOFTWARE = (
    "od-release",
    "opendp",
    "cryptography",
    "python-flint",
    "numpy",
    "numba",
    "pandas",
    "pyarrow",
    "openmatrix",
    "tables",
    "pysdmx",
    "duckdb",
    "dagster",
    "great-expectations",
)

TRIPS_OF_A_PERSON = 40
"""Number of trips of the person in the certificate's example of what unit ``trip`` does not protect."""

PERIODS_OF_A_YEAR = 12
"""Number of periods in the certificate's example of a person with a privacy unit in each month of a year."""

KNOWN_LIMITATIONS = (
    "The operating system's random generator is assumed to be cryptographically secure, and the operator trustworthy.",
    "Other tables made elsewhere from data on the same people are not taken into account.",
    "The time and memory that a run takes, and the fact that a run failed, are not protected.",
    "A rollback or a copy of the whole machine, including the ledger, cannot be detected without a counter outside it.",
)


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one blocking check.

    Attributes:
        subject: the checked asset, such as ``levels/estimate_3``.
        check: name of the check.
        passed: whether it passed.
    """

    subject: str
    check: str
    passed: bool


def certificate(
    kind: Kind[R],
    release: R,
    key: ReleaseKey,
    data_set: str,
    checks: list[CheckResult],
    *,
    record: ReleaseRecord,
    records: dict[str, Any] | None = None,
    intervals: bool = True,
) -> dict[str, Any]:
    """Return the certificate of a release of any kind as a JSON-ready dictionary of public values.

    Args:
        kind: kind of the release, with its guarantee in words and its own fields.
        release: the release; its noise must come from a backend of this library.
        key: key of the release.
        data_set: name of the privacy domain that was charged.
        checks: outcomes of all blocking checks.
        record: the ledger's record of the release.
        records: JSON-ready public settings with which the records were read, such as the time zone; None if the records
            were not read from a file.
        intervals: whether the release is published with its intervals, if its mechanism has any.

    Raises:
        OdError: the noise of the release does not come from a backend of this library.
    """
    _refuse_without_guarantee(release)
    plan, spent = release.plan, release.spent
    planned, own, guarantee = plan.facts(), kind.facts(release), kind.guarantee(plan, spent)
    if plan.unit.max_trips_year is not None:
        periods = record.account.get("periods_of_year") or most_in_a_year(Period(key.period))
        guarantee["year"] = year_sentence(plan.unit, spent, periods)
    if "interval" in own and not intervals:
        own["interval"] = None
    return {
        "format": kind.format,
        **_identity(key, data_set, record),
        "records": json.loads(json.dumps(records, sort_keys=True)),  # with the names in the order of the JSON file
        **({"account": dict(record.account)} if record.account else {}),
        "guarantee": guarantee,
        "unit": plan.unit.kind,
        "neighbours": plan.unit.neighbours,
        "contribution_bound": plan.unit.contribution_bound,
        "spent": _spent(spent, plan.spent, record),
        "mechanism": {"name": planned["mechanism"], "options": planned["mechanism_options"]},
        "noise": release.noise,
        "exact": {},
        "plan": planned,
        "plan_digest": plan.digest,
        "fault_threshold": str(plan.acceptance.fault_threshold),
        "checks": [{"subject": c.subject, "check": c.check, "passed": c.passed} for c in checks],
        "software": software_versions(),
        "known_limitations": list(KNOWN_LIMITATIONS),
        **own,
    }


def _refuse_without_guarantee(release: PlannedRelease) -> None:
    """Raise OdError if the noise of a release did not come from a backend of this library, but from a test double."""
    if release.noise is None:
        raise OdError(
            "OD-RELEASE-NO-GUARANTEE",
            "the noise of this release did not come from a backend of this library, so the release cannot be certified",
            next_step="use one of the named noise backends",
        )


def _identity(key: ReleaseKey, data_set: str, record: ReleaseRecord) -> dict[str, Any]:
    """Return the fields that identify a release, and the ledger entry of its last measurement."""
    return {
        "release": str(key),
        "data_set": data_set,
        "period": key.period,
        "revision": key.revision,
        "measured_at": record.measured_at,
        "ledger": {"entry": record.entry.number, "hash": record.entry.hash},
    }


def _spent(spent: Spent, planned: Spent, record: ReleaseRecord) -> dict[str, Any]:
    """Return fields on the budget: rho planned and spent, delta, lost draws, and epsilon by each accounting method."""
    return {
        "rho": float_above(spent.rho),
        "rho_exact": str(spent.rho),
        "rho_by_level_exact": [str(rho) for rho in spent.levels],
        "rho_planned_exact": str(planned.rho),
        "lost_draws": record.lost_draws,
        "delta": float_above(spent.delta),
        "epsilon": float_above(spent.epsilon),
        "epsilon_tight": spent.epsilon_tight,
        "epsilon_bun_steinke": spent.epsilon_bun_steinke,
        "epsilon_exact": spent.epsilon_exact,
    }


def has_intervals(certificate: dict[str, Any]) -> bool:
    """Return whether a release is published with intervals. Certificates of the first bundles of some kinds lack this.

    Bundles of group sizes and of boxes that were published before these kinds had intervals are verified, and written
    again if they are damaged, without intervals.
    """
    return certificate.get("interval") is not None


def confidence(certificate: dict[str, Any]) -> str | None:
    """Return the confidence of a release's intervals, such as ``90 %``; None for a release without intervals."""
    stated = certificate.get("interval")
    return None if stated is None else f"{float(100 * Fraction(stated)):g} %"


def certificate_digest(certificate: dict[str, Any]) -> str:
    """Return the SHA-256 of all fields of a certificate except ``software``, which differs after a later rebuild."""
    facts = {name: fact for name, fact in certificate.items() if name != "software"}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


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


def promise(guarantee: dict[str, str]) -> str:
    """Return the sentences of a certificate's guarantee on what is protected and what is public, as one text."""
    return f"{guarantee['protected']} {guarantee['public']}"


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


def software_versions() -> dict[str, str]:
    """Return the version of each installed package of :data:`SOFTWARE`, by name."""
    return dict(_versions())


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    """Return each installed package of :data:`SOFTWARE` with its version: a library alone has no Dagster."""
    found = []
    for name in SOFTWARE:
        with suppress(PackageNotFoundError):
            found.append((name, version(name)))
    return tuple(found)


def _in_words(guarantee: Guarantee | None, spent: Spent) -> str:
    """Return a guarantee in words; delta is stated if it is not that of the release."""
    if guarantee is None:
        return "no promise"
    stated = f"epsilon {text_above(guarantee.epsilon, digits=4)}"
    return stated if guarantee.delta == spent.delta else f"{stated} with delta {text_above(guarantee.delta, digits=4)}"
