"""Certify a release, with sentences on what it protects, and state what the ledger knows of it for its report."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from od_core.errors import STAYS_CHARGED, OdError
from od_core.languages import localise_number, translate
from od_core.ledger.chain import BUNDLE_FORMAT
from od_core.ledger.ledger import Ledger, ReleaseRecord
from od_core.ledger.release_key import ReleaseKey, select_earlier_releases
from od_core.meaning.features import list_usual_formats
from od_core.meaning.subject import Subject
from od_core.noise.backends import DRY_RUN
from od_core.periods import Period
from od_core.privacy.accounting import format_rounded_up, round_up_to_float
from od_core.privacy.budget import Spent
from od_core.privacy.domain import bound_periods_per_year
from od_core.privacy.neighbours import Acceptance
from od_core.privacy.plan import Plan
from od_core.privacy.posterior import Guarantee
from od_core.publication.bundle_files import CERTIFICATE, WITHDRAWN_COPIES
from od_core.publication.certificate import (
    Certificate,
    CheckResult,
    add_translations,
    bound_right_guesses_of_100,
    read_certificate,
)
from od_core.publication.kind import Kind, R, ReleaseContext
from od_core.publication.read_back import REPAIR
from od_core.publication.templates import render_clauses, render_data

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


def build_certificate(
    kind: Kind[R],
    release: R,
    key: ReleaseKey,
    data_set: str,
    checks: list[CheckResult],
    *,
    record: ReleaseRecord,
    records: dict[str, object] | None = None,
    about: Mapping[str, Any] | None = None,
    formats: Sequence[str] | None = None,
    intervals: bool = True,
) -> Certificate:
    """Return the certificate of a release of any kind, which is JSON-ready and has public values only.

    Args:
        kind, release: kind of the release, and its result.
        key: key of the release.
        data_set: name of the privacy domain that was charged.
        checks: outcomes of all blocking checks.
        record: the ledger's record of the release.
        records: JSON-ready public settings with which the records were read, such as the time zone; None if the records
            were not read from a file.
        about: words about the series for its readers, by name, such as its title; None if not stated. Under the name
            ``translations``, it has those in other languages, by language and name; the certificate then has its
            sentences in these languages, too.
        formats: formats of the tables of the bundle, beside Parquet; None for those of :func:`list_usual_formats`.
        intervals: whether the release is published with its intervals, if its mechanism has any.

    Raises:
        OdError: the noise of the release does not come from a backend of this library, but from a test double.
    """
    if release.noise is None:
        raise OdError(
            "OD-RELEASE-NO-GUARANTEE",
            "the noise of this release did not come from a backend of this library, so the release cannot be certified",
            next_step="use one of the named noise backends",
        )
    about = dict(sorted((about or {}).items()))  # in the order of the JSON file
    translations = about.pop("translations", {})
    plan, planned = release.plan, release.plan.facts()
    subject = Subject.from_plan(plan, about)
    if DRY_RUN in release.noise:
        guarantee = render_data("dry_run.yaml")  # public noise promises nothing
    else:
        guarantee = _describe_promise_of_release(kind, release, key, subject, record)
    facts_of_kind = kind.facts(release, subject)
    if "interval" in facts_of_kind and not intervals:
        facts_of_kind["interval"] = None
    facts = {
        "format": kind.format,
        "bundle_format": BUNDLE_FORMAT,
        "formats": sorted(list_usual_formats(plan.table, plan.features) if formats is None else formats),
        "release": str(key),
        "subject": subject.facts(),
        **({"about": about} if about else {}),
        "data_set": data_set,
        "period": key.period,
        "revision": key.revision,
        "measured_at": record.measured_at,
        "ledger": {"entry": record.entry.number, "hash": record.entry.hash},
        "records": json.loads(json.dumps(records, sort_keys=True)),  # with the names in the order of the JSON file
        **({"account": dict(record.account)} if record.account else {}),
        "guarantee": guarantee,
        "unit": plan.unit.kind,
        "neighbours": plan.unit.neighbours,
        "contribution_bound": plan.unit.contribution_bound,
        "spent": _list_spent_facts(release.spent, plan.spent.rho, record.lost_draws),
        "mechanism": {"name": planned["mechanism"], "options": planned["mechanism_options"]},
        "noise": release.noise,
        "exact": {},  # unless the facts of the kind state numbers that are published exactly
        "plan": planned,
        "plan_digest": plan.digest,
        "fault_threshold": str(plan.acceptance.fault_threshold),
        "checks": checks,
        "software": dict(list_software_versions()),
        "known_limitations": render_data("limitations.yaml"),
        **facts_of_kind,
    }

    def build(language: str) -> Certificate:
        words = about | translations[language]
        options: dict[str, Any] = {"records": records, "formats": formats, "intervals": intervals}
        return build_certificate(kind, release, key, data_set, checks, record=record, about=words, **options)

    return add_translations(cast("Certificate", facts), translations, build)


def _describe_promise_of_release(
    kind: Kind[R], release: R, key: ReleaseKey, subject: Subject, record: ReleaseRecord
) -> dict[str, str]:
    """Return the sentences of a certificate on what a release protects, by name.

    The arguments are those of :func:`build_certificate`. A unit with a bound for a year has a further sentence.
    """
    plan, spent = release.plan, release.spent
    guarantee = kind.describe_guarantee(plan, spent, subject)
    if plan.unit.max_trips_year is not None:
        periods = record.account.get("periods_of_year") or bound_periods_per_year(Period(key.period))
        guarantee["year"] = describe_year_cost(plan, spent, periods, subject)
    return guarantee


def _list_spent_facts(spent: Spent, planned_rho: Fraction, lost_draws: int) -> dict[str, object]:
    """Return what a release spent as JSON-ready facts: floats are rounded up, and exact numbers are text."""
    return {
        "rho": round_up_to_float(spent.rho),
        "rho_exact": str(spent.rho),
        "rho_by_level_exact": [str(rho) for rho in spent.levels],
        "rho_planned_exact": str(planned_rho),
        "lost_draws": lost_draws,
        "delta": round_up_to_float(spent.delta),
        "epsilon": round_up_to_float(spent.epsilon),
        "epsilon_tight": spent.epsilon_tight,
        "epsilon_bun_steinke": spent.epsilon_bun_steinke,
        "epsilon_exact": spent.epsilon_exact,
    }


@cache  # to find a version takes milliseconds, and what a process has imported stays
def list_software_versions() -> Mapping[str, str]:
    """Return the version of each installed package of :data:`SOFTWARE`, by name.

    The version of this package ends with the digest of its files, because a development version may change them.
    """
    versions = {}
    for name in SOFTWARE:
        with suppress(PackageNotFoundError):  # a library alone has no Dagster
            versions[name] = version(name)
    if "od-release" in versions:
        versions["od-release"] += f"+{compute_package_digest(Path(__file__).parents[1])}"
    return versions


def compute_package_digest(package: Path) -> str:
    """Return 12 hexadecimal digits that identify the names and bytes of a package's files, compiled ones excluded."""
    paths = []
    for folder, _, names in os.walk(package):
        if "__pycache__" not in folder:
            paths += [f"{folder}/{name}" for name in names]
    digest = sha256()
    for path in sorted(paths):
        content = Path(path).read_bytes()
        digest.update(f"{path.removeprefix(f'{package}/')}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:12]


def read_release_context(
    kind: Kind[R], ledger: Ledger, key: ReleaseKey, data_set: str, releases: Path
) -> ReleaseContext[R]:
    """Return the context of a release that has been measured, from the ledger and the folder of all public bundles.

    ``data_set`` is the domain that was charged, and ``releases`` the folder of all bundles.

    Raises:
        OdError: the release is not measured, or the bundle of the previous release is missing or damaged.
    """
    until = ledger.record(key).entry.number
    previous, previous_certificate = None, cast("Certificate", {})
    earlier = select_earlier_releases(key, ledger.list_compared_releases(key))
    if earlier:
        newest, *_ = earlier
        folder = releases.parent / WITHDRAWN_COPIES / newest.folder  # if it was withdrawn later
        if not folder.exists():
            folder = releases / newest.folder
        try:
            certificate = read_certificate(folder / CERTIFICATE)
            if certificate["format"] == kind.format:
                previous, previous_certificate = (newest, kind.open(folder)), certificate
        except (OdError, OSError, ValueError, KeyError, TypeError):
            raise OdError(
                "OD-PREVIOUS-ABSENT",
                f"the bundle of {newest}, with which this release is compared, is missing or damaged",
                next_step=REPAIR,
                spent=STAYS_CHARGED,
            ) from None
    return ReleaseContext(ledger.balance(data_set, key.period, until), previous, previous_certificate)


TRIPS_OF_A_PERSON = 40
"""Number of trips of the person in the certificate's example of what unit ``trip`` does not protect."""

PERIODS_OF_A_YEAR = 12
"""Number of periods in the certificate's example of a person with a privacy unit in each month of a year."""


def describe_guarantee(
    subject: Subject,
    spent: Spent,
    acceptance: Acceptance,
    *,
    public: Sequence[str] = (),
    states_total: bool = False,
) -> dict[str, str]:
    """Return sentences, by name, on what a release protects and does not protect. Numbers are rounded up.

    Args:
        subject: what the release is about.
        spent: budget of the release, with lost draws.
        acceptance: rules by which records are counted or refused.
        public: further facts that are public beforehand, as clauses.
        states_total: whether the release publishes the total exactly, as an invariant.
    """
    settings = translate("the period and all settings of the release")
    if not public:  # with further clauses, the list of areas is taken as one of the settings
        settings = translate("the period, the areas and all settings of the release")
    beforehand = translate("{clause}, which was public beforehand")
    still_public = translate("{clause}, which is public beforehand")
    public_facts = [*(beforehand.format(clause=clause) for clause in public), settings]
    sentences = render_data(
        "guarantee.yaml",
        subject=subject,
        nouns=subject.nouns,
        said=render_clauses(subject),
        spent=spent,
        one=Guarantee.from_spent(spent),
        in_words=_format_guarantee,
        many=TRIPS_OF_A_PERSON,
        periods=PERIODS_OF_A_YEAR,
        public=public_facts,
        unprotected=[still_public.format(clause=clause) for clause in public],
        states_total=states_total,
        acceptance=acceptance,
    )["sentences"]
    return {name: text for name, text in sentences.items() if text}


def describe_year_cost(plan: Plan, spent: Spent, periods: int, subject: Subject) -> str:
    """Return a sentence on the cost to a user of a year of ``periods`` releases that each spend ``spent``."""
    year = Guarantee.from_rho(plan.rho_of_year(spent, periods), spent.delta)
    return str(render_data("year.yaml", subject=subject, year=year, periods=periods)["sentence"])


def _format_guarantee(guarantee: Guarantee | None) -> str:
    """Return a guarantee in words: epsilon, delta if there is one, and how many guesses of 100 are right at most."""
    if guarantee is None:
        return translate("no promise")
    epsilon, delta = (
        localise_number(format_rounded_up(value, digits=4)) for value in (guarantee.epsilon, guarantee.delta)
    )
    text = translate("epsilon {epsilon} with delta {delta}") if guarantee.delta else translate("epsilon {epsilon}")
    right = translate("so a guess is right at most {times} times in 100")
    return f"{text.format(epsilon=epsilon, delta=delta)}, {right.format(times=bound_right_guesses_of_100(guarantee))}"


def describe_promise(guarantee: Mapping[str, str]) -> str:
    """Return what a certificate says is protected and what is public, as one text; ``guarantee`` is its field."""
    return f"{guarantee['protected']} {guarantee['public']}"
