"""Publish flows that are derived from releases: sums, and model-assisted flows."""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.derived_flows import (
    AssistedFlows,
    D,
    DerivedFlows,
    FlowSum,
    assist_release,
    make_source_kind_error,
    sum_releases,
)
from od_core.flows.estimation.rule_choice import RULES
from od_core.flows.estimation.shrinkage import LEAST_SQUARES
from od_core.flows.publishing.flow_files import list_flow_files, list_flow_notes
from od_core.flows.publishing.kind import FLOWS, describe_uncounted_trips
from od_core.flows.publishing.report import LISTED, describe_estimation, make_flow_facts
from od_core.flows.release import Release
from od_core.languages import localise_number, message, translate
from od_core.ledger.chain import BUNDLE_FORMAT
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.features import list_usual_formats
from od_core.meaning.subject import Subject
from od_core.periods import Length, Period, iterate_periods
from od_core.privacy.accounting import format_rounded_up, round_up_to_float
from od_core.privacy.budget import Cap
from od_core.privacy.domain import Charged, bound_rho_of_year
from od_core.privacy.plan import with_fields
from od_core.privacy.posterior import Guarantee
from od_core.publication.bundle_differences import reword_as_published
from od_core.publication.bundle_files import check_checksums
from od_core.publication.certificate import (
    Certificate,
    add_translations,
    compute_certificate_digest,
    has_intervals,
    is_derived,
    is_selected,
    read_subject,
    translate_certificate,
)
from od_core.publication.certify import list_software_versions
from od_core.publication.kind import BundleKind
from od_core.publication.read_back import (
    REPAIR,
    make_changed_data_error,
    name_bundle,
    read_bundle_certificate,
    refuse_incomplete,
)
from od_core.publication.templates import render_clauses, render_data, render_template


@dataclass(frozen=True)
class Source:
    """A release that flows are derived from, read from its bundle, with its certificate."""

    key: ReleaseKey
    release: Release
    certificate: Certificate

    def facts(self) -> dict[str, object]:
        """Return the facts of this release that the certificate of derived flows states."""
        spent = dict(self.certificate["spent"])
        return {
            "release": str(self.key),
            "certificate": compute_certificate_digest(self.certificate),
            "measured_at": self.certificate["measured_at"],
            **{name: spent[name] for name in ("rho_exact", "epsilon", "delta")},
        }


def open_published_sources(bundle: Path, certificate: Certificate) -> list[Source]:
    """Return the releases that the flows of a bundle are derived from, read from their bundles below the same folder.

    Raises:
        OdError: a release is missing, damaged or not the one that the certificate names.
    """
    releases = bundle.resolve().parents[2]
    sources = []
    with refuse_incomplete(name_bundle(bundle)):
        for source_facts in certificate["sources"]:
            key = ReleaseKey.parse(source_facts["release"])
            source = open_published_source(releases, key)
            if source.facts() != source_facts:
                raise _make_source_error(f"{key} is not the release that was used: its certificate differs")
            sources.append(source)
    return sources


def open_published_source(releases: Path, key: ReleaseKey) -> Source:
    """Return a published release of flows below the folder ``releases``, with its certificate.

    Raises OdError if it is missing, damaged or not of flows.
    """
    folder = releases / key.folder
    if not folder.is_dir():
        raise _make_source_error(f"{key} is not published below the same folder as what is derived from it")
    faults = [f"{name} {fault}" for name, fault in check_checksums(folder)]
    if faults:
        raise _make_source_error(f"the bundle of {key} is damaged: {'; '.join(faults)}")
    certificate = read_bundle_certificate(folder)
    if certificate.get("format") != FLOWS.format:
        raise make_source_kind_error(
            str(key), "derived itself" if is_derived(certificate) else "not a release of flows"
        )
    with refuse_incomplete(name_bundle(folder)):
        return Source(key, FLOWS.open(folder), certificate)


def index_releases_by_name(sources: Sequence[Source]) -> Mapping[str, Release]:
    """Return the releases by the texts of their keys, by which error messages name them."""
    return {str(source.key): source.release for source in sources}


def _make_source_error(message: str) -> OdError:
    """Return the OdError for a release that flows are derived from, and that is missing, damaged or another one."""
    return OdError("OD-DERIVED-SOURCE", message, next_step=REPAIR)


_COPIED = (
    "data_set",
    "unit",
    "neighbours",
    "contribution_bound",
    "records",
    "geographies",
    "geography_versions",
    "repeated_levels",
)
"""Names of the fields that derived flows have from one of their releases."""

_COPIED_SENTENCES = {"contribution", "levels", "segments"}
"""Names of the sentences of the guarantee that derived flows have from the same release. The one on ``segments`` is
copied only if the derived flows have breakdowns."""


def make_derived_certificate(
    kind: DerivedKind[D],
    key: ReleaseKey,
    flows: D,
    sources: Sequence[Source],
    published: Path | None = None,
) -> Certificate:
    """Return the certificate of derived flows, JSON-ready and of public values alone.

    The certificate follows from the bundles of the releases, and states intervals if all releases state some. Facts
    that releases share, such as how records were read, are copied from the first of ``flows.parts``.

    Args:
        kind: the kind of derived flows.
        key: key of the derived flows.
        flows: the derived flows.
        sources: the releases that they are derived from.
        published: folder in which the flows are published already; None if they are not. If another version of this
            library wrote the certificate there, the result has the sentences and the bundle format of that version.
    """
    languages = _find_main_certificate(flows, sources).get("translations", {})
    certificate = _make_certificate_in_language(kind, key, flows, sources)
    certificate = add_translations(
        certificate, languages, lambda _: _make_certificate_in_language(kind, key, flows, sources)
    )
    return certificate if published is None else _keep_published_wording(certificate, published)


def _find_main_certificate(flows: DerivedFlows, sources: Sequence[Source]) -> Certificate:
    """Return the certificate of the release from which derived flows have the facts that all their releases share."""
    releases = [source.release for source in sources]
    return sources[releases.index(flows.parts[0])].certificate


def _make_certificate_in_language(
    kind: DerivedKind[D], key: ReleaseKey, flows: D, sources: Sequence[Source]
) -> Certificate:
    """Return the certificate of derived flows with its sentences in the language that is used, and in no other."""
    releases = [source.release for source in sources]
    main = translate_certificate(_find_main_certificate(flows, sources))
    first_part = flows.parts[0]
    plan = first_part.plan
    trips = int(flows.leaves.trips.sum())
    guarantees = {
        "one_period": _make_one_period_guarantee(releases),
        "all_periods": _make_all_periods_guarantee(sources),
    }
    uncounted, subject = describe_uncounted_trips(flows.parts, trips), read_subject(main)
    promises = {name: _format_guarantee(guarantee) for name, guarantee in guarantees.items()}
    sentences = _describe_guarantee(kind, subject, sources, promises, uncounted.get("uncounted"))
    copied_names = _COPIED_SENTENCES if flows.breakdowns else _COPIED_SENTENCES - {"segments"}
    release_sentences = FLOWS.describe_guarantee(plan, first_part.spent, subject)
    guarantee_sentences = sentences["guarantee"] | {
        name: text for name, text in release_sentences.items() if name in copied_names
    }
    if uncounted:
        guarantee_sentences["uncounted"] = sentences["uncounted"]
    has_intervals_in_all = all(source.certificate["interval"] is not None for source in sources)
    facts = {
        "format": kind.format,
        "bundle_format": BUNDLE_FORMAT,
        "formats": main.get("formats", sorted(list_usual_formats(plan.table, plan.features))),
        "release": str(key),
        "period": key.period,
        "revision": key.revision,
        "measured_at": max(source.certificate["measured_at"] for source in sources),
        **{name: dict(main)[name] for name in _COPIED},
        "subject": subject.facts(),
        **_make_about_field(kind, main),
        "sources": [source.facts() for source in sources],
        "guarantee": guarantee_sentences,
        **_make_spending_facts(sources, guarantees),
        "contents": {"flows": len(flows.leaves), "trips": trips},
        **kind.facts(flows),
        **uncounted,
        "interval": main["interval"] if has_intervals_in_all else None,
        "exact": {} if flows.exact_trips is None else {"trips": flows.exact_trips},
        "invariants": [] if flows.exact_trips is None else [sentences["total"]],
        "software": dict(list_software_versions()),
        "known_limitations": render_data("limitations.yaml"),
    }
    return cast("Certificate", facts)


def _describe_guarantee(
    kind: DerivedKind[D],
    subject: Subject,
    sources: Sequence[Source],
    promises: Mapping[str, str],
    uncounted: Mapping[str, object] | None,
) -> dict[str, Any]:
    """Return the sentences of the certificate of derived flows, by name.

    ``promises`` has epsilon and delta as text for a change in ``one_period`` and in ``all_periods``, and ``uncounted``
    the facts on uncounted trips; None if they were not measured.
    """
    sentences: dict[str, Any] = render_data(
        "derived.yaml",
        kind=kind,
        subject=subject,
        nouns=subject.nouns,
        said=render_clauses(subject),
        sources=[source.key for source in sources],
        one=promises["one_period"],
        every=promises["all_periods"],
        totals=[source.key for source in sources if source.release.plan.publishes_total],
        uncounted=uncounted,
    )
    return sentences


def _make_about_field(kind: DerivedKind[D], main: Certificate) -> dict[str, object]:
    """Return the field ``about``: the publisher's texts on a release, with the kind of derived flows in the title.

    Return an empty dictionary if the publisher gave no texts.
    """
    about = main.get("about", {})
    return {"about": about | {"title": f"{about['title']} ({translate(kind.name)})"}} if about else {}


def _make_spending_facts(sources: Sequence[Source], guarantees: Mapping[str, Guarantee]) -> dict[str, object]:
    """Return the fields ``spent``, ``privacy_loss`` and ``account`` of the certificate of derived flows.

    The privacy loss is stated only of guarantees with rho. The account is that of the release with the largest cap, and
    is left out unless all releases state one. Derived flows charge nothing.
    """
    rho = sum((source.release.spent.rho for source in sources), start=Fraction(0))
    spent: dict[str, object] = {"charged_rho_exact": "0", "rho_exact": str(rho)}
    for name, guarantee in guarantees.items():
        spent[name] = {"epsilon": round_up_to_float(guarantee.epsilon), "delta": round_up_to_float(guarantee.delta)}
    facts: dict[str, object] = {"spent": spent}
    with_rho = {name: guarantee for name, guarantee in guarantees.items() if guarantee.rho is not None}
    if with_rho:
        facts["privacy_loss"] = {name: _make_loss_facts(guarantee) for name, guarantee in with_rho.items()}
    if all("account" in source.certificate for source in sources):
        accounts = [source.certificate["account"] for source in sources]
        facts["account"] = max(accounts, key=_order_by_cap)
    return facts


def _order_by_cap(account: Mapping[str, Any]) -> tuple[Fraction, Fraction]:
    """Return the sort key of the account of a release: the rho that its cap allows, then the epsilon of the cap."""
    cap = Cap.from_facts(account["cap"])
    return cap.allowed_rho(), cap.epsilon or Fraction(0)


_WORDED_BY = "od-release of the sentences"
"""Name in ``software`` of the version of this library that wrote the sentences, if it is another one."""


def _keep_published_wording(certificate: Certificate, published: Path) -> Certificate:
    """Return a certificate with the sentences of the version of this library that published it in ``published``.

    The bundle of the same flows then has the same bytes after an update of this library.
    """
    public, software = read_bundle_certificate(published), certificate["software"]
    worded_by = public["software"].get(_WORDED_BY, public["software"].get("od-release", ""))
    if worded_by == software.get("od-release", ""):  # the sentences are made again and compared
        return certificate
    worded = reword_as_published(certificate, published, compute_certificate_digest(public))
    worded["software"] = software | {_WORDED_BY: worded_by}
    return worded


def _format_guarantee(guarantee: Guarantee) -> str:
    """Return epsilon, or (epsilon, delta) if delta is above 0, both rounded up."""
    epsilon, delta = (localise_number(format_rounded_up(number)) for number in (guarantee.epsilon, guarantee.delta))
    return f"({epsilon}, {delta})" if guarantee.delta else epsilon


def _make_loss_facts(guarantee: Guarantee) -> dict[str, object]:
    """Return the facts from which the exact privacy loss of a guarantee is computed: rho and, if known, variances."""
    variances = {"variances": [*map(str, guarantee.variances)]} if guarantee.variances else {}
    return {"rho_exact": str(guarantee.rho), **variances}


def _make_one_period_guarantee(releases: Sequence[Release]) -> Guarantee:
    """Return the guarantee for a change in the records of a single period: the largest epsilon and delta of a release.

    Rho is stated if all guarantees have one, and variances if they are the same in all.
    """
    guarantees = [Guarantee.from_spent(release.spent) for release in releases]
    rhos = [guarantee.rho for guarantee in guarantees if guarantee.rho is not None]
    variances = {guarantee.variances for guarantee in guarantees}
    return Guarantee(
        epsilon=max(guarantee.epsilon for guarantee in guarantees),
        delta=max(guarantee.delta for guarantee in guarantees),
        rho=max(rhos) if len(rhos) == len(guarantees) else None,
        variances=variances.pop() if len(variances) == 1 else None,
        shift=guarantees[0].shift,
    )


def _make_all_periods_guarantee(sources: Sequence[Source]) -> Guarantee:
    """Return the guarantee for a change in the records of all periods together.

    The rho of the releases is added up. With a bound of a user's trips in a year, the largest rho of a year under this
    bound is used instead. If the periods are of several years, a change concerns only some of them, so the same number
    is an upper bound. If a mechanism promises epsilon directly, epsilons and deltas are added up.
    """
    unit, spending = sources[0].release.plan.unit, [source.release.spent for source in sources]
    if len(spending) == 1:
        return Guarantee.from_spent(spending[0])
    rho = sum((spent.rho for spent in spending), Fraction(0))
    if any(spent.promise is not None for spent in spending):
        epsilon = sum((spent.epsilon for spent in spending), Fraction(0))
        delta = sum((spent.delta for spent in spending), Fraction(0))
        return Guarantee(epsilon, delta, None if delta else rho)
    if unit.max_trips_year is not None:
        by_period: dict[str, list[Charged]] = {}
        for source, spent in zip(sources, spending, strict=True):
            by_period.setdefault(source.key.period, []).extend(source.release.plan.list_noise_charges(spent))
        m, c = unit.bounds
        rho = bound_rho_of_year(by_period.values(), m, unit.max_trips_year, c)
    return Guarantee.from_rho(rho, max(spent.delta for spent in spending))


class DerivedKind(BundleKind[D]):
    """Base class of the bundles of derived flows. They have no measurements: those are in the bundles of the releases.

    Attributes:
        name: end of the series name and of the title of these flows, after those of the series of the releases; it
            names their page and their note of the codebook, too.
    """

    contents = "flows"
    is_derived = True
    list_files = staticmethod(list_flow_files)
    name: ClassVar[str]

    @abstractmethod
    def derive_flows(self, named: Mapping[str, Release], /) -> D:
        """Return the flows that follow from releases, in the order of :meth:`sort_releases`.

        ``named`` has each release by the name that messages use. Raises OdError if no such flows follow from them.
        """

    def derive_by_stated_rule(self, named: Mapping[str, Release], _certificate: Certificate, /) -> D:
        """Return these flows by the rule of estimation that their certificate states.

        By default, there is one rule, that of :meth:`derive_flows`. Override this if the rule is chosen, because an
        earlier version of the software may have chosen another one.
        """
        return self.derive_flows(named)

    @abstractmethod
    def sort_releases(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return ``keys`` in the order in which these flows are derived from their releases.

        ``period`` is that of the flows; None for the period that follows from the releases. Raises OdError if the
        releases do not fit the period or each other.
        """

    def render_report(self, flows: D, certificate: Certificate) -> str:
        """Return the HTML text of the page that presents these flows to their readers."""
        facts = make_flow_facts(flows, certificate) | self.make_page_facts(flows, certificate)
        return render_template(f"{self.name}_report.html", **facts)

    def list_notes(self, flows: D, certificate: Certificate) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        return [_describe_derived_flows(flows, certificate)[self.name], *list_flow_notes(flows, certificate)]

    def refuse_comparison(self, key: ReleaseKey) -> None:
        """Raise OdError, because derived flows cannot be compared."""
        why = "two derived tables may share the noise of a release, so only releases themselves are compared"
        step = "compare the releases that it is derived from, which its certificate lists as sources"
        raise OdError("OD-COMPARE-KIND", f"{key} is derived from published releases; {why}", next_step=step)

    def facts(self, _flows: D) -> dict[str, object]:
        """Return the fields of the certificate that only these flows have.

        By default, there are none; override this to add some.
        """
        return {}

    def make_page_facts(self, _flows: D, _certificate: Certificate) -> dict[str, object]:
        """Return the facts that only the page of these flows shows, by name.

        By default, there are none; override this to add some.
        """
        return {}

    def open(self, bundle: Path) -> D:
        """Return the flows in a bundle's folder, derived from the bundles of their releases, below the same folder.

        Raises OdError if a release is missing or has changed, or the flows differ from those of the certificate.
        """
        certificate = read_bundle_certificate(bundle)
        named = index_releases_by_name(open_published_sources(bundle, certificate))
        flows = self.derive_by_stated_rule(named, certificate)
        if certificate["contents"] != {"flows": len(flows.leaves), "trips": int(flows.leaves.trips.sum())}:
            raise make_changed_data_error("flows")
        return with_fields(flows, selected=is_selected(certificate))


def _describe_derived_flows(flows: DerivedFlows, certificate: Certificate) -> dict[str, str]:
    """Return sentences on what derived flows are and what they learn from, by name."""
    sentences = render_data(
        "derived_notes.yaml",
        certificate=certificate,
        interval=has_intervals(certificate),
        learns=isinstance(flows, AssistedFlows) and flows.rule.learns,
        sources=[source["release"] for source in certificate["sources"]],
    )
    return dict(sentences)


def sort_by_period(keys: Iterable[ReleaseKey], code: str, reason: str = "") -> list[ReleaseKey]:
    """Return keys in the order of their periods. Raises OdError with the given code if two periods overlap.

    ``reason`` ends the message.
    """
    spans = sorted((Period(key.period).first, Period(key.period).end, key) for key in keys)
    for (_, end, earlier), (first, _, later) in pairwise(spans):
        if first < end:
            raise OdError(
                code, f"{earlier} and {later} cover the same days{reason}", next_step="name one release for each period"
            )
    return [key for *_, key in spans]


_MAX_NAMED_PERIODS = 3
"""Largest number of periods that a message names."""


class SumKind(DerivedKind[FlowSum]):
    """The bundle of a sum of releases of flows."""

    format = "od-release sum certificate 1"
    name = message("sum")
    what = "sums of"
    derive_flows = staticmethod(sum_releases)

    def sort_releases(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return keys in the order of their periods.

        Raises OdError if two periods overlap, or they leave a gap between them or in ``period``.
        """
        ordered = sort_by_period(keys, "OD-SUM-OVERLAP", ", which would be counted twice")
        missing = _list_missing_periods([Period(key.period) for key in ordered], period)
        if missing:
            further = len(missing) - _MAX_NAMED_PERIODS
            raise OdError(
                "OD-SUM-PERIOD",
                f"no release is published for {', '.join(missing[:_MAX_NAMED_PERIODS])}"
                f"{f' and {further} more periods' if further > 0 else ''}",
                next_step="release the missing periods, or choose periods that are published and follow each other",
            )
        return ordered


SUMS = SumKind()


def _list_missing_periods(spans: Sequence[Period], period: str | None) -> list[str]:
    """Return the names of the gaps between periods, which are sorted, and before and after them in ``period``."""
    length = spans[0].length if spans else None
    whole = None if period is None else Period(period)
    covered_until = spans[0].first if whole is None else whole.first
    missing: list[str] = []
    for span in spans:
        if covered_until < span.first:
            missing += _iterate_period_names(covered_until, span.first, length)
        covered_until = span.end
    if whole is not None and covered_until < whole.end:
        missing += _iterate_period_names(covered_until, whole.end, length)
    return missing


def _iterate_period_names(begin: datetime.date, until: datetime.date, length: Length | None) -> Iterator[str]:
    """Yield the names of the periods of a length from ``begin`` to before ``until``, or that of one span of days.

    It is one span if ``length`` is None, or such periods do not begin and end with these days.
    """
    if length is not None:
        parts = list(takewhile(lambda part: part.first < until, iterate_periods(begin, length)))
        if parts[0].first == begin and parts[-1].end == until:
            yield from (part.text for part in parts)
            return
    last = until - datetime.timedelta(days=1)
    yield begin.isoformat() if begin == last else f"{begin}--{last}"


class AssistedKind(DerivedKind[AssistedFlows]):
    """The bundle of model-assisted flows of a release."""

    format = "od-release assisted certificate 1"
    name = message("assisted")
    what = "estimates from"
    derive_flows = staticmethod(assist_release)

    def derive_by_stated_rule(self, named: Mapping[str, Release], certificate: Certificate, /) -> AssistedFlows:
        """Return the estimates by the rule that their certificate states."""
        for rule in (LEAST_SQUARES, *RULES):
            if rule.facts() == certificate.get("estimation"):
                return assist_release(named, rule)
        return assist_release(named)

    def sort_releases(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return keys in the order of their periods, between which there may be gaps.

        Raises OdError if two periods overlap, or the last one is not ``period``.
        """
        ordered = sort_by_period(keys, "OD-ASSIST-OVERLAP")
        if period is not None and ordered[-1].period != period:
            raise OdError(
                "OD-ASSIST-PERIOD",
                f"{ordered[-1]} is not a release of {period}",
                next_step="name releases of earlier periods, and last the one to estimate",
            )
        return ordered

    def facts(self, flows: AssistedFlows) -> dict[str, object]:
        """Return how the flows were estimated: the name of the rule, and u if it has one."""
        return {"estimation": flows.rule.facts()}

    def make_page_facts(self, flows: AssistedFlows, certificate: Certificate) -> dict[str, object]:
        """Return what the estimates learn from, the rule in words, and how they differ from the release."""
        sentences = _describe_derived_flows(flows, certificate)
        return {
            "learnt_from": sentences["learnt_from"],
            "rule": describe_estimation(certificate) if flows.rule.learns else sentences["unchanged"],
            "differences": _compare_with_release(flows, intervals=has_intervals(certificate)),
        }


ASSISTED = AssistedKind()


def _compare_with_release(flows: AssistedFlows, *, intervals: bool) -> dict[str, object]:
    """Return how many flows between zones differ from the released ones, and those that differ most.

    Returns:
        ``compared`` and ``changed`` are numbers of flows. ``rows`` has the flows that differ most, with the labels of
        their zones, released and estimated trips and, with ``intervals``, the ends of the interval.
    """
    tree = flows.tree
    released, estimated = (
        pd.DataFrame({"origin": leaves.origin, "destination": leaves.destination, "trips": leaves.trips})
        for leaves in (flows.releases[-1].leaves, flows.leaves)
    )
    merged = released.merge(estimated, on=["origin", "destination"], how="outer", suffixes=("_released", "_estimated"))
    merged = merged.fillna(0).astype(np.int64)
    difference = (merged["trips_estimated"] - merged["trips_released"]).abs()
    largest = merged.loc[difference.nlargest(LISTED).index]
    largest = largest[largest["trips_estimated"] != largest["trips_released"]]
    origins, destinations = (largest[side].to_numpy(np.int32) for side in ("origin", "destination"))
    rows = pd.DataFrame({"released": largest["trips_released"], "estimated": largest["trips_estimated"]})
    rows["origin"] = np.array(tree.origin.labels[-1], dtype=object)[origins]
    rows["destination"] = np.array(tree.destination.labels[-1], dtype=object)[destinations]
    if intervals and len(rows):
        levels, estimates = (tree.origin.depth, tree.destination.depth), largest["trips_estimated"].to_numpy()
        lower_ends = flows.make_selection(levels).make_lower_ends(estimates)
        rows["lower"], rows["upper"] = flows.intervals.compute_cell_bounds(*levels, origins, destinations, lower_ends)
    return {"compared": len(merged), "changed": int((difference > 0).sum()), "rows": rows.to_dict("records")}
