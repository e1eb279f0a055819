"""Define the certificate of a release, as its JSON file states it.

Everything that writes or reads a certificate has its fields from here. ``certificate.schema.json`` describes the same
fields for programs of others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

from od_core.files.durable import compute_facts_digest
from od_core.geography.geography import Geography
from od_core.languages import ENGLISH, get_language, use_language
from od_core.meaning.subject import Subject
from od_core.periods import Period
from od_core.privacy.plan import Table
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import RECORDS_OF, Neighbours, UnitKind

T = TypeVar("T")


class Rounded(TypedDict):
    """An epsilon and a delta, rounded up."""

    epsilon: float
    delta: float


class StatedSpent(TypedDict, total=False):
    """The budget of a release; of derived flows, that of the releases that they are derived from."""

    rho: float
    rho_exact: str
    rho_by_level_exact: list[str]
    rho_planned_exact: str
    charged_rho_exact: str
    lost_draws: int
    delta: float
    epsilon: float
    epsilon_tight: float | None
    epsilon_bun_steinke: float | None
    epsilon_exact: float | None
    one_period: Rounded
    all_periods: Rounded


class StatedAccount(TypedDict):
    """The cap that a release was charged to; under a unit of a year also the number of its elementary periods."""

    cap: dict[str, str]
    periods_of_year: NotRequired[int]


class StatedEstimation(TypedDict):
    """The rule of estimation that was chosen for a release, with its parameter."""

    rule: str
    u: NotRequired[str | None]


class StatedLoss(TypedDict, total=False):
    """The privacy loss of releases together, from which their promise follows."""

    rho_exact: str
    variances: list[str]


class StatedLedgerEntry(TypedDict):
    """The ledger's entry of the last measurement."""

    entry: int
    hash: str


class StatedMechanism(TypedDict):
    """A mechanism, with its options as text."""

    name: str
    options: dict[str, str]
    tree: NotRequired[str]


class StatedSource(TypedDict):
    """A release from which flows are derived."""

    release: str
    certificate: str
    measured_at: str
    rho_exact: str
    epsilon: float
    delta: float


class CheckResult(TypedDict):
    """The outcome of one check of a subject, such as ``levels/estimate_3``.

    A check that the publisher declares also has its severity, and what it requires in the publisher's words. Those of
    severity ``warn`` may have failed in a published release; all others passed.
    """

    subject: str
    check: str
    passed: bool
    severity: NotRequired[Literal["block", "warn"]]
    requires: NotRequired[str]


def list_failed_checks(checks: Iterable[CheckResult]) -> list[str]:
    """Return the subjects and names of the failed checks that hold back a publication."""
    failed = [check for check in checks if not check["passed"] and check.get("severity") != "warn"]
    return [f"{check['subject']}: {check['check']}" for check in failed]


class Certificate(TypedDict):
    """All fields of certificates. Derived flows lack those that only a measured release has."""

    format: str
    release: str
    data_set: str
    period: str
    revision: int
    measured_at: str
    records: dict[str, Any] | None
    guarantee: dict[str, str]
    unit: UnitKind
    neighbours: Neighbours
    contribution_bound: int
    spent: StatedSpent
    contents: dict[str, int]
    exact: dict[str, int]
    invariants: list[str]
    software: dict[str, str]
    known_limitations: list[str]

    about: NotRequired[dict[str, str]]
    translations: NotRequired[dict[str, dict[str, Any]]]
    account: NotRequired[StatedAccount]
    bundle_format: NotRequired[int]
    checks: NotRequired[list[CheckResult]]
    estimation: NotRequired[StatedEstimation]
    evidence: NotRequired[dict[str, Any]]
    fault_threshold: NotRequired[str]
    formats: NotRequired[list[str]]
    geographies: NotRequired[dict[str, str]]
    geography_versions: NotRequired[dict[str, str | None]]
    interval: NotRequired[str | None]
    ledger: NotRequired[StatedLedgerEntry]
    levels: NotRequired[list[dict[str, object]]]
    mechanism: NotRequired[StatedMechanism]
    noise: NotRequired[str]
    plan: NotRequired[dict[str, Any]]
    plan_digest: NotRequired[str]
    privacy_loss: NotRequired[dict[str, StatedLoss]]
    promises: NotRequired[dict[str, bool]]
    repeated_levels: NotRequired[dict[str, list[str]]]
    sources: NotRequired[list[StatedSource]]
    subject: NotRequired[dict[str, object]]
    uncounted: NotRequired[dict[str, int]]


def read_certificate(file: Path) -> Certificate:
    """Return the certificate in a file. Raises OSError or ValueError if there is none that can be read."""
    certificate: Certificate = json.loads(file.read_text(encoding="utf-8"))
    return certificate


def read_bundle_format(certificate: Certificate) -> int:
    """Return the format of a release's bundle, which the first certificates do not state."""
    return certificate.get("bundle_format", 1)


def read_publisher_texts(certificate: Certificate) -> dict[str, Any]:
    """Return the publisher's words about a series, by name; empty if there are none.

    Under the name ``translations``, they have those in the other languages of a certificate, if it has some.
    """
    words: dict[str, Any] = dict(certificate.get("about", {}))
    translations = certificate.get("translations", {})
    if translations:
        words["translations"] = {language: facts.get("about", {}) for language, facts in translations.items()}
    return words


def write_in_languages(certificate: Certificate, write: Callable[[Certificate], T]) -> dict[str, T]:
    """Return what ``write`` makes of a certificate in English and in each of its other languages, by language.

    In another language, it is called while this language is used, with a certificate that has its fields in this
    language, and the certificate itself as ``original``.
    """
    written = {ENGLISH: write(certificate)}
    for language in certificate.get("translations", {}):
        with use_language(language):
            written[language] = write(translate_certificate(certificate))
    return written


def translate_certificate(certificate: Certificate) -> Certificate:
    """Return a certificate with its fields in the language that is used, and the certificate itself as ``original``.

    A certificate that has no such fields, and any in English, is returned as it is.
    """
    facts = certificate.get("translations", {}).get(get_language())
    return certificate if facts is None else cast("Certificate", {**certificate, **facts, "original": certificate})


def add_translations(
    certificate: Certificate, languages: Iterable[str], build: Callable[[str], Certificate]
) -> Certificate:
    """Return a certificate with those of its fields that differ in other languages, as the field ``translations``.

    Args:
        certificate: certificate in English.
        languages: codes of the other languages. Without any, the certificate is returned as it is.
        build: function that returns the same certificate in a language, which is used while it is called.
    """
    translations: dict[str, dict[str, Any]] = {}
    for language in languages:
        with use_language(language):
            translated = build(language)
        translations[language] = {name: fact for name, fact in translated.items() if fact != certificate.get(name)}
    return cast("Certificate", {**certificate, "translations": translations}) if translations else certificate


def is_derived(certificate: Certificate) -> bool:
    """Return whether a bundle follows from those of releases, so that nothing was measured for it."""
    return "sources" in certificate


def count_summed_releases(certificate: Certificate) -> int:  # a filter
    """Return the number of releases whose sum a bundle has; 1 for a bundle that is no sum."""
    return len(certificate["sources"]) if is_derived(certificate) and "estimation" not in certificate else 1


def has_intervals(certificate: Certificate) -> bool:
    """Return whether a release is published with intervals, which the first bundles of some kinds do not have."""
    return certificate.get("interval") is not None


FIRST_WITH_SELECTION = 9
"""Format of the first bundles whose intervals hold for numbers that are read because they were released above 0."""


FIRST_WITH_SUBJECT = 10
"""Format of the first bundles whose certificate states what they are about, and whose files are named for it."""


def is_selected(certificate: Certificate) -> bool:  # a filter
    """Return whether the intervals of a bundle hold for numbers that are read because they were released above 0."""
    return read_bundle_format(certificate) >= FIRST_WITH_SELECTION


def read_subject(certificate: Certificate) -> Subject:  # a filter
    """Return what a release is about, as its certificate states it.

    Certificates of formats before ``FIRST_WITH_SUBJECT`` state it in several other fields. Those of derived flows do
    not state their bounds, so these are None.
    """
    about, plan = read_publisher_texts(certificate), certificate.get("plan", {})
    if "subject" in certificate:
        return Subject.from_facts(certificate["subject"], about)
    table = _TABLES.get(certificate.get("format", ""), "flows")
    if certificate.get("geographies", {}).get("destination") == Geography.whole().digest:
        table = "counts"
    bounds: dict[str, object] = {name: plan.get(name) for name in ("max_trips_pair", "max_trips_year", "max_weight")}
    if RECORDS_OF[certificate["unit"]].is_of_users:
        bounds["max_trips"] = certificate["contribution_bound"]
    elif "contribution" in certificate["guarantee"]:
        bounds["max_weight"] = certificate["contribution_bound"]
    facts = {"table": table, "unit": certificate["unit"], "neighbours": certificate["neighbours"], **bounds}
    return Subject.from_facts(facts, about)


_TABLES: Mapping[str, Table] = MappingProxyType(
    {"od-release group-size certificate 1": "group sizes", "od-release stops certificate 1": "boxes"}
)
"""What releases have, by the format of their certificates. Releases of all other formats have flows."""


def format_release_title(certificate: Certificate, otherwise: str) -> str:
    """Return the title of a release for its readers: the title of its series, and the period in words.

    If the series has no title, ``otherwise`` and the text of the period take their place.
    """
    title, period = read_publisher_texts(certificate).get("title"), certificate["period"]
    return f"{otherwise}, {period}" if title is None else f"{title}, {Period(period).in_words}"


def format_confidence(certificate: Certificate) -> str | None:
    """Return the confidence of a release's intervals, such as ``90 %``; None for a release without intervals."""
    stated_confidence = certificate.get("interval")
    return None if stated_confidence is None else f"{float(100 * Fraction(stated_confidence)):g} %"


def read_guarantee_for_one_unit(certificate: Certificate) -> Guarantee:
    """Return what a certificate promises to one privacy unit.

    Derived flows have the joint promise of all their releases if a unit spans periods, and otherwise that of the
    release with the weakest promise. Raises KeyError if the certificate lacks a field.
    """
    if is_derived(certificate):
        return _read_derived_guarantee(certificate)
    spent, plan = certificate["spent"], certificate["plan"]
    steps, epsilon = plan["steps"], Fraction(spent["epsilon"])
    if not all("variance" in step for step in steps):  # Laplace noise
        delta = Fraction(spent["delta"] if spent["lost_draws"] else plan["delta"])
        return Guarantee(epsilon, delta, None if delta else Fraction(spent["rho_exact"]))
    variances = None
    shift = certificate["contribution_bound"]
    if spent["epsilon_exact"] is not None:
        variances = ()
        for step in steps:  # each cell that differs between neighbours differs by the contribution bound
            differing_cells = step["sensitivity_squared"] // shift**2
            variances += (Fraction(step["variance"]),) * differing_cells
    return Guarantee(epsilon, Fraction(plan["delta"]), Fraction(spent["rho_exact"]), variances, shift=shift)


def _read_derived_guarantee(certificate: Certificate) -> Guarantee:
    """Return the promise of derived flows for one privacy unit; see :func:`read_guarantee_for_one_unit`."""
    name: Literal["all_periods", "one_period"] = "one_period"
    if RECORDS_OF[certificate["unit"]].spans_periods:
        name = "all_periods"
    promise = certificate["spent"][name]
    loss = certificate.get("privacy_loss", {}).get(name, {})
    rho, variances = loss.get("rho_exact"), loss.get("variances")
    return Guarantee(
        Fraction(promise["epsilon"]),
        Fraction(promise["delta"]),
        None if rho is None else Fraction(rho),
        None if variances is None else tuple(map(Fraction, variances)),
        shift=certificate["contribution_bound"],
    )


def bound_right_guesses_of_100(guarantee: Guarantee | None) -> int:
    """Return how many of 100 best guesses between two equally likely cases are right, at most; rounded up."""
    return 100 if guarantee is None else math.ceil(100 * guarantee.bound_guess_probability())


def compute_certificate_digest(certificate: Mapping[str, object]) -> str:
    """Return the SHA-256 of all fields of a certificate except ``software``, which differs after a later rebuild.

    In another language, it is that of the original.
    """
    stated = cast("Mapping[str, object]", certificate.get("original", certificate))
    return compute_facts_digest({name: fact for name, fact in stated.items() if name != "software"})
