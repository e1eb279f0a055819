"""The certificate of a release: what is protected, what was spent, how it was made and checked (spec 6)."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from importlib.metadata import version
from typing import Any

from od_core.archive.ledger import ReleaseRecord
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.privacy.accounting import epsilon_tight, float_above, text_above
from od_core.privacy.budget import Spent
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.kind import Certified, Kind, R

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
"""A person with so many trips stands as the example of what unit ``trip`` does not protect."""

PERIODS_OF_A_YEAR = 12
"""A person in every month of a year stands as the example of what a promise for one period does not say."""

KNOWN_LIMITATIONS = (
    "The operating system's random generator is taken to be a cryptographic one, and the operator to be trusted.",
    "Other tables made from the same people elsewhere are not accounted for.",
    "Timing and memory of a run, and that a run failed, are not protected.",
    "A rollback or a copy of the whole machine, ledger included, cannot be found without a counter outside it.",
)


@dataclass(frozen=True)
class CheckResult:
    """Outcome of one blocking check.

    Attributes:
        subject: what was checked, as ``levels/estimate_3``.
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
    fault_threshold: Fraction,
    records: dict[str, Any] | None = None,
    intervals: bool = True,
) -> dict[str, Any]:
    """The certificate of a release of any kind as JSON-ready public facts.

    Args:
        kind: what kind of release it is: its guarantee in words, and the facts that it alone has.
        release: the release, made from noise of this library.
        key: its name.
        data_set: name of the privacy domain that was charged.
        checks: outcomes of all blocking checks.
        record: what the ledger says of the release.
        fault_threshold: share of faulty records above which the input is refused.
        records: how they were read, as JSON-ready public facts: which of a file's rows are records, in which time zone
            days begin; None where they were handed over.
        intervals: whether flows are published with their intervals, where their mechanism has any.

    Raises:
        OdError: the release carries no guarantee.
    """
    _refuse_without_guarantee(release)
    plan, spent = release.plan, release.spent
    planned, own = plan.facts(), kind.facts(release)
    if "interval" in own and not intervals:
        own["interval"] = None
    return {
        "format": kind.format,
        **_identity(key, data_set, record),
        "records": json.loads(json.dumps(records, sort_keys=True)),  # in the order in which the file is read back
        "guarantee": kind.guarantee(plan, spent, fault_threshold),
        "unit": plan.unit.kind,
        "neighbours": plan.unit.neighbours,
        "contribution_bound": plan.unit.contribution_bound,
        "spent": _spent(spent, plan.spent, record),
        "mechanism": {"name": planned["mechanism"], "options": planned["mechanism_options"]},
        "noise": release.noise,
        "plan": planned,
        "plan_digest": plan.digest,
        "fault_threshold": str(fault_threshold),
        "checks": [{"subject": c.subject, "check": c.check, "passed": c.passed} for c in checks],
        "software": {name: version(name) for name in SOFTWARE},
        "known_limitations": list(KNOWN_LIMITATIONS),
        **own,
    }


def _refuse_without_guarantee(release: Certified) -> None:
    """A test double's release is never certified. Raises OdError."""
    if release.noise is None:
        raise OdError(
            "OD-RELEASE-NO-GUARANTEE",
            "the noise of this release came from no backend of this library, so it cannot be certified",
            next_step="release with a named noise backend",
        )


def _identity(key: ReleaseKey, data_set: str, record: ReleaseRecord) -> dict[str, Any]:
    """Which release it is, and the ledger's entry of its last measurement."""
    return {
        "release": str(key),
        "data_set": data_set,
        "period": key.period,
        "revision": key.revision,
        "measured_at": record.measured_at,
        "ledger": {"entry": record.entry.number, "hash": record.entry.hash},
    }


def _spent(spent: Spent, planned: Spent, record: ReleaseRecord) -> dict[str, Any]:
    """What was charged, and every epsilon that bounds it, rounded up."""
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


def certificate_digest(certificate: dict[str, Any]) -> str:
    """SHA-256 of all facts but the software, which differs where a release is made anew years later."""
    facts = {name: fact for name, fact in certificate.items() if name != "software"}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def guarantee_sentences(unit: PrivacyUnit, spent: Spent, fault_threshold: Fraction) -> dict[str, str]:
    """What is protected, against whom, and what is not, in sentences that say their numbers, rounded up."""
    epsilon = text_above(spent.epsilon)
    sentences = {
        "protected": (
            "Whoever sees all that this release publishes, even knowing every other record, learns next to nothing"
            f" about whether {change_of(unit)}: the release is ({epsilon}, {text_above(spent.delta)})-differentially"
            " private for that change."
        ),
        "not_protected": (
            "the period itself; "
            + (
                "the total number of valid trips, which is published exactly; that all other records are valid ones, of"
                " the period and of this release's categories; "
                if unit.publishes_total
                else ""
            )
            + _person(unit, spent)
            + "; what other releases from the same records reveal, beyond the cap of the privacy domain."
        ),
        "input": (
            f"Inputs are refused in which more than {text_above(100 * fault_threshold)} % of the"
            + (" trips were faulty, or that hold counts that are no whole numbers" if unit.max_weight is None else "")
            + (" records were faulty" if unit.max_weight is not None else "")
            + "; the promise holds between inputs that are both accepted."
        ),
    }
    if unit.max_weight is not None:
        sentences["contribution"] = (
            f"A record counts as many trips as its weight, rounded to the nearest whole number (halves up), and at most"
            f" {unit.max_weight}; one whose weight is missing, negative, not finite or no number is not counted."
        )
    if unit.kind != "trip":
        sentences["contribution"] = (
            f"Of one user at most {unit.contribution_bound} trips are counted. The others are cut before anything is"
            " counted, by a rule that a secret key decides among the trips of that user alone; records without a user"
            " id are not counted."
        )
    return sentences


def pure_sentences(
    unit: PrivacyUnit, spent: Spent, fault_threshold: Fraction, *, public: str, with_it: str = ""
) -> dict[str, str]:
    """The sentences of a release of single trips that promises a pure epsilon; see :func:`guarantee_sentences`.

    Args:
        unit, spent, fault_threshold: as there.
        public: what is public beforehand, in words that end a list.
        with_it: what a trip has beside itself that is protected with it.
    """
    many, year = (text_above(times * spent.epsilon, digits=4) for times in (TRIPS_OF_A_PERSON, PERIODS_OF_A_YEAR))
    return {
        "protected": (
            "Whoever sees all that this release publishes, even knowing every other record, learns next to nothing"
            f" about whether {change_of(unit)}{with_it}: the release is {text_above(spent.epsilon)}-differentially"
            " private for that change."
        ),
        "not_protected": (
            f"the period itself; {public}, which is public beforehand; a person with many trips as a whole (one with"
            f" {TRIPS_OF_A_PERSON} trips in the period: epsilon {many}; one with a trip in each of {PERIODS_OF_A_YEAR}"
            f" such periods, all released like this one: epsilon {year}); what other releases from the same records"
            " reveal, beyond the cap of the privacy domain."
        ),
        "input": (
            f"Inputs are refused in which more than {text_above(100 * fault_threshold)} % of the trips were faulty;"
            " the promise holds between inputs that are both accepted."
        ),
    }


def change_of(unit: PrivacyUnit) -> str:
    """What may have happened to the data without anybody learning it."""
    if unit.kind == "trip":
        change = "replaced by any other of the same period" if unit.neighbours == "bounded" else "added or removed"
        weight = "" if unit.max_weight is None else f", which counts at most {unit.max_weight} trips,"
        return f"one trip record{weight} was {change}"
    period = " in one elementary period" if unit.kind == "user_period" else ""
    within = " in the same period" if unit.kind == "user_period" else ""
    change = f"replaced by any of another user{within}" if unit.neighbours == "bounded" else "added or removed"
    return f"all trips of one user{period}, of which at most {unit.contribution_bound} are counted, were {change}"


def _person(unit: PrivacyUnit, spent: Spent) -> str:
    """What the unit does not protect of a person, with the numbers of those who have more than one unit."""
    if unit.kind == "user":
        return (
            "a person with several user ids as a whole; a user in this and other releases together: those of all"
            " periods of the data set add up"
        )
    year = text_above(epsilon_tight(PERIODS_OF_A_YEAR * spent.rho, spent.delta), digits=4)
    every_month = f"in each of {PERIODS_OF_A_YEAR} such periods, all released like this one: epsilon {year}"
    if unit.kind == "user_period":
        return f"a person with several user ids as a whole; a user in several periods as a whole (one {every_month})"
    many = text_above(epsilon_tight(spent.rho * TRIPS_OF_A_PERSON**2, spent.delta), digits=4)
    return (
        f"a person with many trips as a whole (one with {TRIPS_OF_A_PERSON} trips in the period: epsilon {many};"
        f" one with a trip {every_month})"
    )
