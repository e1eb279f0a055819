"""Define the bundle of a sum of releases of flows: its periods, the notes of its codebook, and its report."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

from od_core.errors import OdError
from od_core.flows.flow_sum import FlowSum, sum_of
from od_core.flows.publishing.derived_kind import DerivedKind, by_period, derived_page, sources_section
from od_core.flows.publishing.flow_files import flow_notes
from od_core.flows.release import Release
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Length, Period, following
from od_core.publication.html.report_page import number

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
        missing = [text for begin, until in gaps for text in _named(begin, until, length)]
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


def _named(begin: datetime.date, until: datetime.date, length: Length | None) -> Iterator[str]:
    """Yield the periods between two days: by the given length if it fits, and otherwise as one span of days."""
    if length is not None:
        parts = list(takewhile(lambda part: part.first < until, following(begin, length)))
        if parts[0].first == begin and parts[-1].end == until:
            yield from (part.text for part in parts)
            return
    last = until - datetime.timedelta(days=1)
    yield begin.isoformat() if begin == last else f"{begin}--{last}"
