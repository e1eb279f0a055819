"""Publish flows that are derived from releases: sums, and model-assisted flows."""

from __future__ import annotations

import datetime
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from markupsafe import Markup

from od_core.errors import OdError
from od_core.flows.derived_flows import AssistedFlows, D, DerivedFlows, FlowSum, assist_of, not_of_flows, sum_of
from od_core.flows.publishing.chosen_rule import estimation_text
from od_core.flows.publishing.flow_files import BUNDLE_FORMAT, derived_files, flow_notes
from od_core.flows.publishing.kind import FLOWS, uncounted_facts
from od_core.flows.publishing.report_flows import (
    LISTED,
    areas_sections,
    distance_sections,
    heat_section,
    largest_flows_section,
    leaf_flows,
    map_sections,
    sizes_section,
    total_sentences,
    trips_title,
)
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Length, Period, following
from od_core.privacy.accounting import float_above, text_above
from od_core.privacy.budget import Cap, SpentDirectly
from od_core.privacy.neighbours import change_of
from od_core.privacy.person_year import largest_rho
from od_core.privacy.posterior import Guarantee
from od_core.privacy.unit import PrivacyUnit
from od_core.publication.bundle import faulty_files
from od_core.publication.certificate import KNOWN_LIMITATIONS, certificate_digest, software_versions
from od_core.publication.html.certificate_page import confidence, how_to_cite, limitations, protected
from od_core.publication.html.report_page import between, number, page, paragraph, table
from od_core.publication.kind import BundleKind
from od_core.publication.markup import element, joined
from od_core.publication.read_back import REPAIR, certificate_of, changed, named, refuse_incomplete
from od_core.publication.tables import BundleFile


@dataclass(frozen=True)
class Source:
    """A release that flows are derived from.

    Attributes:
        key: the release.
        release: the release, read from its bundle.
        certificate: its certificate.
    """

    key: ReleaseKey
    release: Release
    certificate: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return what the certificate of derived flows states of this release."""
        spent = self.certificate["spent"]
        return {
            "release": str(self.key),
            "certificate": certificate_digest(self.certificate),
            "measured_at": self.certificate["measured_at"],
            "rho_exact": spent["rho_exact"],
            "epsilon": spent["epsilon"],
            "delta": spent["delta"],
        }


def sources_of(bundle: Path, certificate: dict[str, Any]) -> list[Source]:
    """Return the releases that a bundle's flows are derived from, from the bundles below the same folder.

    Raises:
        OdError: a release is missing, damaged or not the one that the certificate names.
    """
    releases, found = bundle.resolve().parents[2], []
    with refuse_incomplete(named(bundle)):
        for stated in certificate["sources"]:
            key = ReleaseKey.parse(stated["release"])
            source = published_source(releases, key)
            if source.facts() != stated:
                raise _unsound(f"{key} is not the release that was used: its certificate differs")
            found.append(source)
    return found


def published_source(releases: Path, key: ReleaseKey) -> Source:
    """Return a published release of flows. Raises OdError if it is missing, damaged or not of flows."""
    folder = releases / key.folder
    if not folder.is_dir():
        raise _unsound(f"{key} is not published below the same folder as what is derived from it")
    if faults := [f"{name} {fault}" for name, fault in faulty_files(folder)]:
        raise _unsound(f"the bundle of {key} is damaged: {'; '.join(faults)}")
    certificate = certificate_of(folder)
    if certificate.get("format") != FLOWS.format:
        raise not_of_flows(str(key), "derived itself" if "sources" in certificate else "not a release of flows")
    with refuse_incomplete(named(folder)):
        return Source(key, FLOWS.open(folder), certificate)


def by_name(sources: Sequence[Source]) -> Mapping[str, Release]:
    """Return the releases by their keys, which errors name."""
    return {str(source.key): source.release for source in sources}


def _unsound(message: str) -> OdError:
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


def derived_certificate(
    kind: DerivedKind[Any], key: ReleaseKey, flows: DerivedFlows, sources: Sequence[Source]
) -> dict[str, Any]:
    """Return the certificate of derived flows as a JSON-ready dictionary of public values.

    It states intervals if all releases state some. It follows from the bundles of the releases alone, so it is the same
    whenever it is made.
    """
    main, releases = sources[kind.main].certificate, [source.release for source in sources]
    exact, one, every = flows.exact_trips, _one_period(releases), _all_periods(sources)
    intervals = {source.certificate["interval"] for source in sources}
    trips = int(flows.leaves.trips.sum())
    uncounted = uncounted_facts(releases if kind.adds_up else [releases[kind.main]], trips)
    return {
        "format": kind.format,
        "bundle_format": BUNDLE_FORMAT,
        "release": str(key),
        "period": key.period,
        "revision": key.revision,
        "measured_at": max(source.certificate["measured_at"] for source in sources),
        **{name: main[name] for name in _COPIED},
        "sources": [source.facts() for source in sources],
        "guarantee": _guarantee(kind, sources, one, every) | _uncounted_sentence(uncounted),
        "spent": {
            "charged_rho_exact": "0",
            "rho_exact": str(sum((release.spent.rho for release in releases), start=Fraction(0))),
            "one_period": _facts(one),
            "all_periods": _facts(every),
        },
        **_loss_facts({"one_period": one, "all_periods": every}),
        **_account([source.certificate for source in sources]),
        "contents": {"flows": len(flows.leaves), "trips": trips},
        **kind.facts(flows),
        **uncounted,
        "interval": None if None in intervals else main["interval"],
        "exact": {} if exact is None else {"trips": exact},
        "invariants": [] if exact is None else [f"the total number of valid trips of {kind.total_of}"],
        "software": software_versions(),
        "known_limitations": list(KNOWN_LIMITATIONS),
    }


def _one_period(releases: Sequence[Release]) -> Guarantee:
    """Return a guarantee that holds for every change in the records of one of the periods."""
    every = [Guarantee.of(one.spent) for one in releases]
    rho, variances = [one.rho for one in every if one.rho is not None], {one.variances for one in every}
    return Guarantee(
        max(one.epsilon for one in every),
        max(one.delta for one in every),
        max(rho) if len(rho) == len(every) else None,
        variances.pop() if len(variances) == 1 else None,
    )


def _all_periods(sources: Sequence[Source]) -> Guarantee:
    """Return a guarantee that holds for changes in the records of all periods together.

    Rho adds up; under unit ``user_year``, as far as the trips of a user in a year allow. If the periods are of several
    years, a change concerns some of them only, so the same number is an upper bound. A mechanism that promises
    (epsilon, delta) directly has no rho; then epsilons and deltas add up.
    """
    unit, spent = sources[0].release.plan.unit, [source.release.spent for source in sources]
    if any(isinstance(one, SpentDirectly) for one in spent):
        epsilon, delta = (sum((getattr(one, name) for one in spent), Fraction(0)) for name in ("epsilon", "delta"))
        return Guarantee(epsilon, delta)
    delta = max(one.delta for one in spent)
    by_period: dict[str, Fraction] = {}
    for source, one in zip(sources, spent, strict=True):
        by_period[source.key.period] = by_period.get(source.key.period, Fraction(0)) + one.rho - one.every_period
    rho = sum(by_period.values(), Fraction(0))
    if unit.max_trips_year is not None:
        rho = largest_rho(by_period.values(), unit.contribution_bound, unit.max_trips_year)
    rho += sum((one.every_period for one in spent), Fraction(0))
    return Guarantee.of_rho(rho, delta)


def _facts(promise: Guarantee) -> dict[str, float]:
    return {"epsilon": float_above(promise.epsilon), "delta": float_above(promise.delta)}


def _loss_facts(promises: Mapping[str, Guarantee]) -> dict[str, Any]:
    """Return the field ``privacy_loss`` by its name; empty if no release has a rho."""
    found = {}
    for name, one in promises.items():
        if one.rho is not None:
            exact = {} if one.variances is None else {"variances": [str(each) for each in one.variances]}
            found[name] = {"rho_exact": str(one.rho), **exact}
    return {"privacy_loss": found} if found else {}


def _account(certificates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the field ``account`` with the largest cap of the releases, by its name; empty if one states none."""
    stated = [one["account"] for one in certificates if "account" in one]
    if len(stated) < len(certificates):
        return {}
    return {"account": max(stated, key=lambda one: Cap.from_facts(one["cap"]).allowed_rho())}


def _in_words(promise: Guarantee) -> str:
    epsilon, delta = text_above(promise.epsilon), text_above(promise.delta)
    return f"({epsilon}, {delta})" if promise.delta else epsilon


def _guarantee(kind: DerivedKind[Any], sources: Sequence[Source], one: Guarantee, every: Guarantee) -> dict[str, str]:
    """Return sentences, by name, on what derived flows and their releases together protect. Numbers are rounded up."""
    unit, number = sources[0].release.plan.unit, len(sources)
    releases = f"{number} published release{'s' * (number > 1)}"
    change = change_of(unit)
    by_user = unit.spans_periods
    as_far = "" if unit.max_trips_year is None else ", as far as the trips of a user that a year counts allow"
    where = (
        f"The losses of all these releases add up{as_far}."
        if by_user
        else "The records of this change are of one of the periods, so the promise is that of the release of that"
        " period; the largest numbers of all releases are stated."
    )
    person = (
        "a person with several records as a whole (one with a single record in each of the periods:"
        f" {_in_words(every)}-differentially private)"
    )
    named = ["the periods themselves", *([] if by_user else [person]), "what the certificates of the releases name"]
    totals = _with_total(sources)
    stated: Mapping[str, str] = sources[kind.main].certificate["guarantee"]
    return {
        "protected": (
            f"These numbers are {kind.what} {releases} and follow from these alone: no record was read, no noise was"
            " drawn and no budget was spent for them, and they reveal nothing beyond those releases. Anyone who sees"
            " all of those releases and these numbers, even with knowledge of every other record, learns almost nothing"
            f" about whether {change}: together they are {_in_words(every if by_user else one)}-differentially"
            f" private for that change. {where}"
        ),
        "public": (
            "The following are public, without noise: the periods, the areas and all settings of the releases"
            f"{'; the total numbers of trips of ' if totals else ''}{', '.join(totals)}."
        ),
        "not_protected": (
            f"{'; '.join(named)}; what other releases from the same records reveal, beyond the cap of the privacy"
            " domain."
        ),
        "input": "The certificate of each release states which inputs it accepts.",
        **{name: stated[name] for name in ("contribution", "levels", "segments") if name in stated},
    }


def _uncounted_sentence(uncounted: Mapping[str, Any]) -> dict[str, str]:
    """Return the sentence of the guarantee on the number of uncounted trips, by its name; empty if it is not known."""
    if not uncounted:
        return {}
    sentence = (
        "The number of trips that are not counted because of the contribution bounds follows from the noisy numbers of"
        f" the releases. Of each user, at most {uncounted['uncounted']['max_trips']} trips of a release are considered."
    )
    return {"uncounted": sentence}


def _with_total(sources: Sequence[Source]) -> list[str]:
    """Return the keys of the releases whose total number of trips is published exactly, as text."""
    return [str(source.key) for source in sources if source.release.plan.publishes_total]


class DerivedKind(BundleKind[D]):
    """Base class of the bundles of derived flows. They have no measurements: those are in the bundles of the releases.

    Attributes:
        suffix: end of the series name of these flows, after the name of the series of the releases.
        main: position of the release whose facts, such as how its records were read, the certificate repeats.
        what: what the flows are, in words that end before the number of releases.
        total_of: the releases whose exact total number of trips the flows have, in words.
        adds_up: whether the flows are those of all releases together; otherwise, they are those of the main one.
    """

    contents = "flows"
    suffix: ClassVar[str]
    main: ClassVar[int]
    what: ClassVar[str]
    total_of: ClassVar[str]
    adds_up: ClassVar[bool]

    @abstractmethod
    def derived(self, named: Mapping[str, Release]) -> D:
        """Return the flows that follow from releases, given by the names that messages use."""

    @abstractmethod
    def in_sequence(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return releases in the order in which these flows are derived from them.

        Args:
            keys: the releases.
            period: period of the flows; None for the one that follows from the releases.

        Raises:
            OdError: the periods of the releases do not fit each other or the period.
        """

    @abstractmethod
    def report(self, flows: D, certificate: dict[str, Any]) -> str:
        """Return the HTML text of the page that presents these flows to their readers."""

    def facts(self, _flows: D) -> dict[str, Any]:
        """Return the fields of the certificate that only these flows have."""
        return {}

    def files(self, flows: D, certificate: dict[str, Any]) -> Sequence[BundleFile]:
        """Return the files of the bundle: the flows in every format, and the areas."""
        return derived_files(flows, certificate)

    def open(self, bundle: Path) -> D:
        """Return the flows in a bundle's folder, derived from the bundles of their releases, below the same folder.

        Raises:
            OdError: a release is missing or is not the one that was used, or the flows differ from the published ones.
        """
        stated = certificate_of(bundle)
        flows = self.derived(by_name(sources_of(bundle, stated)))
        if stated["contents"] != {"flows": len(flows.leaves), "trips": int(flows.leaves.trips.sum())}:
            raise changed("flows")
        return flows


def by_period(keys: Iterable[ReleaseKey], code: str, reason: str = "") -> list[ReleaseKey]:
    """Return keys in the order of their periods. Raises OdError with the given code if two periods overlap.

    ``reason`` ends the message.
    """
    spans = sorted(((Period(key.period), key) for key in keys), key=lambda one: (one[0].first, one[0].end, one[1]))
    for (one, earlier), (other, later) in pairwise(spans):
        if other.first < one.end:
            raise OdError(
                code,
                f"{earlier} and {later} cover the same days{reason}",
                next_step="name one release for each period",
            )
    return [key for _, key in spans]


def derived_page(
    flows: D,
    certificate: dict[str, Any],
    intro: str,
    sources: tuple[str, Markup],
    others: Sequence[tuple[str, Markup]] = (),
) -> str:
    """Return the HTML text of a page on derived flows.

    Args:
        flows, certificate: The flows and their certificate.
        intro: What the flows are, in a sentence that follows the number of the revision.
        sources: Title and text of the section on the releases.
        others: Further sections, which follow it.
    """
    series, period, _ = certificate["release"].split("/")
    leaves = leaf_flows(flows, certificate)
    return page(
        f"Flows: {series}, {period}",
        f"Revision {certificate['revision']}, {intro} All numbers contain noise, except those that are stated as"
        " exact.",
        [
            (
                trips_title(flows.releases[0].plan.unit, exact=flows.exact_trips is not None),
                number(int(flows.leaves.trips.sum())),
            ),
            ("pairs of zones released above 0", number(len(flows.leaves))),
            ("releases", number(len(flows.releases))),
        ],
        [
            ("What is protected", protected(certificate)),
            sources,
            *_counted_section(flows, certificate),
            *others,
            ("The largest flows", largest_flows_section(flows, leaves, confidence(certificate))),
            ("Flows between large areas", heat_section(flows, confidence(certificate))),
            *areas_sections(flows, confidence(certificate)),
            *distance_sections(flows, certificate, confidence(certificate)),
            *map_sections(flows, leaves),
            ("Sizes of flows", sizes_section(flows)),
            ("How to cite", how_to_cite(certificate)),
            ("Assumptions and limitations", limitations(certificate)),
        ],
    )


def _counted_section(flows: D, certificate: dict[str, Any]) -> list[tuple[str, Markup]]:
    """Return the section on the trips that contribution bounds leave out; an empty list if no bound leaves any out."""
    unit = flows.releases[0].plan.unit
    if unit == PrivacyUnit("trip", unit.neighbours):
        return []
    year = unit.max_trips_year
    bound = (
        f" At most {number(unit.contribution_bound)} trips of each user are counted in a release, and at most"
        f" {number(year)} in all periods of a year together."
        if year is not None
        else ""
    )
    return [("Counted trips", paragraph(" ".join(total_sentences(flows, certificate)) + bound))]


def sources_section(certificate: dict[str, Any], text: str) -> Markup:
    """Return a paragraph and a table of the releases that flows are derived from."""
    rows = [
        (
            one["release"],
            one["measured_at"][:10],
            text_above(one["epsilon"]),
            text_above(one["delta"]),
            element("code", one["certificate"]),
        )
        for one in certificate["sources"]
    ]
    return joined(
        paragraph(text),
        table(
            "Releases, by their period",
            ("release", "measured", "epsilon", "delta", "SHA-256 of its certificate"),
            rows,
            numbers={2, 3},
        ),
    )


_NAMED = 3
"""Largest number of periods that a message names."""


class SumKind(DerivedKind[FlowSum]):
    """The bundle of a sum of releases of flows."""

    format = "od-release sum certificate 1"
    suffix = "_sum"
    main = 0
    what = "sums of"
    total_of = "all releases"
    adds_up = True

    def derived(self, named: Mapping[str, Release]) -> FlowSum:
        """Return the sum of releases, given by the names that messages use."""
        return sum_of(named)

    def in_sequence(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return keys in the order of their periods, which must follow each other and fill ``period`` if it is given.

        Raises:
            OdError: two periods overlap, or a part of the period has no release.
        """
        ordered = by_period(keys, "OD-SUM-OVERLAP", ", which would be counted twice")
        spans = [Period(key.period) for key in ordered]
        whole = None if period is None else Period(period)
        length = spans[0].length if spans else None
        first, end = (whole.first, whole.end) if whole else (spans[0].first, spans[-1].end)
        ends, begins = [first, *(span.end for span in spans)], [*(span.first for span in spans), end]
        gaps = [(begin, until) for begin, until in zip(ends, begins, strict=True) if begin < until]
        missing = [text for begin, until in gaps for text in _periods_named(begin, until, length)]
        if missing:
            raise OdError(
                "OD-SUM-PERIOD",
                f"no release is published for {', '.join(missing[:_NAMED])}"
                f"{f' and {len(missing) - _NAMED} more periods' if len(missing) > _NAMED else ''}",
                next_step="release the missing periods, or choose periods that are published and follow each other",
            )
        return ordered

    def notes(self, total: FlowSum, certificate: dict[str, Any]) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        named = ", ".join(f"`{source['release']}`" for source in certificate["sources"])
        return [
            f"The trips are the exact sums of the released trips of {named}. The intervals are those of the sums: the"
            " estimates of the releases add up, and so do the variances of their independent noise. They are not the"
            " sums of the intervals of the releases, which would be too wide. The measurements are in the bundles of"
            " the releases.",
            *flow_notes(total, certificate),
        ]

    def report(self, total: FlowSum, certificate: dict[str, Any]) -> str:
        """Return the HTML text of the page that presents a sum to its readers."""
        text = (
            "The trips are the exact sums of the released trips of these releases. The sum was charged nothing, because"
            " it was computed from their bundles alone."
        )
        intro = f"the sum of {number(len(total.releases))} releases of data set {certificate['data_set']}."
        sources = "The releases that were summed", sources_section(certificate, text)
        return derived_page(total, certificate, intro, sources)


SUMS = SumKind()


def _periods_named(begin: datetime.date, until: datetime.date, length: Length | None) -> Iterator[str]:
    """Yield the periods between two days: by the given length if it fits, and otherwise as one span of days."""
    if length is not None:
        parts = list(takewhile(lambda part: part.first < until, following(begin, length)))
        if parts[0].first == begin and parts[-1].end == until:
            yield from (part.text for part in parts)
            return
    last = until - datetime.timedelta(days=1)
    yield begin.isoformat() if begin == last else f"{begin}--{last}"


_UNCHANGED = "Held-out noise showed no rule of estimation that has less error, so they are the released flows."


class AssistedKind(DerivedKind[AssistedFlows]):
    """The bundle of model-assisted flows of a release."""

    format = "od-release assisted certificate 1"
    suffix = "_assisted"
    main = -1
    what = "estimates from"
    total_of = "the last release"
    adds_up = False

    def derived(self, named: Mapping[str, Release]) -> AssistedFlows:
        """Return the estimates of the flows of the last release, given by the names that messages use."""
        return assist_of(named)

    def in_sequence(self, keys: Sequence[ReleaseKey], period: str | None) -> list[ReleaseKey]:
        """Return keys in the order of their periods, which must not overlap. Gaps are allowed.

        Raises:
            OdError: two periods overlap, or the last one is not ``period``.
        """
        ordered = by_period(keys, "OD-ASSIST-OVERLAP")
        if period is not None and ordered[-1].period != period:
            raise OdError(
                "OD-ASSIST-PERIOD",
                f"{ordered[-1]} is not a release of {period}",
                next_step="name releases of earlier periods, and last the one to estimate",
            )
        return ordered

    def facts(self, flows: AssistedFlows) -> dict[str, Any]:
        """Return how the flows were estimated: the name of the rule, and u if it has one."""
        return {"estimation": flows.rule.facts()}

    def notes(self, flows: AssistedFlows, certificate: dict[str, Any]) -> Sequence[str]:
        """Return further paragraphs of the codebook that users of the files must read."""
        *_, own = (f"`{source['release']}`" for source in certificate["sources"])
        learnt = (
            "They have less error than its released trips on average, most of all for small flows, because they also"
            f" learn from {_learnt_from(certificate)}. They are biased towards what these and the other flows of the"
            " table suggest."
        )
        return [
            f"The trips are model-assisted estimates of the flows of {own}."
            f" {learnt if flows.rule.learns else _UNCHANGED}"
            f" The intervals are those of {own} alone, widened to contain the estimate. For changes between periods,"
            " compare the releases, not these estimates. The measurements are in the bundles of the releases.",
            *flow_notes(flows, certificate),
        ]

    def report(self, flows: AssistedFlows, certificate: dict[str, Any]) -> str:
        """Return the HTML text of the page that presents these estimates to their readers."""
        own = certificate["sources"][-1]["release"]
        text = (
            f"These are estimates of the flows of {own}, which also learn from {_learnt_from(certificate)}. Nothing was"
            " charged, because they were computed from the bundles of these releases alone."
            f" {estimation_text(certificate) if flows.rule.learns else _UNCHANGED}"
        )
        intro = f"model-assisted estimates of {own} of data set {certificate['data_set']}."
        sources = "The releases that were used", sources_section(certificate, text)
        differing = "Where the estimates differ from the release", _differences(flows, own, confidence(certificate))
        return derived_page(flows, certificate, intro, sources, [differing])


ASSISTED = AssistedKind()


def _learnt_from(certificate: dict[str, Any]) -> str:
    """Return the words for what the estimates learn from, beside the measurements of the flow itself."""
    earlier = [source["release"] for source in certificate["sources"][:-1]]
    if not earlier:
        return "the other flows of the same release"
    span = earlier[0] if len(earlier) == 1 else f"{earlier[0]} to {earlier[-1]}"
    return f"the other flows and from {number(len(earlier))} earlier release{'s' * (len(earlier) > 1)} ({span})"


def _differences(flows: AssistedFlows, own: str, interval: str | None) -> Markup:
    """Return a paragraph and a table of the flows between zones whose estimates differ most from the released trips."""
    tree, (released, estimated) = flows.tree, map(_frame, (flows.releases[-1], flows))
    both = released.merge(estimated, on=["origin", "destination"], how="outer", suffixes=("_released", "_estimated"))
    both = both.fillna(0).astype(np.int64)
    moved = (both["trips_estimated"] - both["trips_released"]).abs()
    shown = both.loc[moved.nlargest(LISTED).index]
    shown = shown[shown["trips_estimated"] != shown["trips_released"]]
    if shown.empty:
        return paragraph("All estimates are equal to the released trips.")
    ends = tuple(shown[side].to_numpy(np.int32) for side in ("origin", "destination"))
    reach: list[tuple[str, ...]] = [()] * len(shown)
    if interval is not None:
        lower, upper = flows.intervals.of_cells(tree.origin.depth, tree.destination.depth, *ends)
        reach = [(between(*pair),) for pair in zip(lower.tolist(), upper.tolist(), strict=True)]
    labels = (
        np.array(geography.labels[-1], dtype=object)[end]
        for geography, end in zip((tree.origin, tree.destination), ends, strict=True)
    )
    numbers = (map(number, shown[f"trips_{name}"].tolist()) for name in ("released", "estimated"))
    rows = [(*row[:4], *row[4]) for row in zip(*labels, *numbers, reach, strict=True)]
    headers = (f"from {tree.origin.levels[-1]}", f"to {tree.destination.levels[-1]}", "released", "estimated")
    intervals = () if interval is None else (f"{interval} interval of the measurements",)
    changed = int((moved > 0).sum())
    return joined(
        paragraph(
            f"Of {number(len(both))} flows between zones that have trips in {own} or in these estimates,"
            f" {number(changed)} differ. The release has the number that its own measurements suggest; the estimate is"
            " closer to the truth on average, but not for every flow."
        ),
        table(
            f"The {number(len(rows))} largest differences",
            (*headers, *intervals),
            rows,
            numbers=set(range(2, len(headers) + len(intervals))),
        ),
    )


def _frame(flows: ReleasedFlows) -> pd.DataFrame:
    """Return the flows between zones, with the numbers of their zones."""
    leaves = flows.leaves
    return pd.DataFrame({"origin": leaves.origin, "destination": leaves.destination, "trips": leaves.trips})
