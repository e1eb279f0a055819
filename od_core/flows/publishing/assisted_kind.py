"""Define the bundle of model-assisted flows: its periods, the notes of its codebook, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from od_core.errors import OdError
from od_core.flows.assisted_flows import AssistedFlows, assist_of
from od_core.flows.publishing.chosen_rule import estimation_text
from od_core.flows.publishing.derived_kind import DerivedKind, by_period, derived_page, sources_section
from od_core.flows.publishing.flow_files import flow_notes
from od_core.flows.publishing.report_flows import LISTED
from od_core.flows.release import Release
from od_core.flows.released_flows import ReleasedFlows
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.html.certificate_page import confidence
from od_core.publication.html.report_page import between, number, paragraph, table
from od_core.publication.markup import Markup, joined

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
            f" learn from {_named(certificate)}. They are biased towards what these and the other flows of the table"
            " suggest."
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
            f"These are estimates of the flows of {own}, which also learn from {_named(certificate)}. Nothing was"
            " charged, because they were computed from the bundles of these releases alone."
            f" {estimation_text(certificate) if flows.rule.learns else _UNCHANGED}"
        )
        intro = f"model-assisted estimates of {own} of data set {certificate['data_set']}."
        sources = "The releases that were used", sources_section(certificate, text)
        differing = "Where the estimates differ from the release", _differences(flows, own, confidence(certificate))
        return derived_page(flows, certificate, intro, sources, [differing])


ASSISTED = AssistedKind()


def _named(certificate: dict[str, Any]) -> str:
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
