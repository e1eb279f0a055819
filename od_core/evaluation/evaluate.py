"""Return the errors of a release of flows at every level, against the true flows."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import pandas as pd

from od_core.evaluation.metrics import Truth
from od_core.evaluation.segment_metrics import SegmentTruth
from od_core.files.data_frame import TableOrFile
from od_core.flows.release import Release
from od_core.records.segments import find
from od_core.records.trip_counts import count_trips


def evaluate(
    release: Release,
    flows: TableOrFile,
    *,
    columns: Mapping[str, str] | None = None,
    segment: str | None = None,
    one_row_a_trip: bool = False,
) -> pd.DataFrame:
    """Return the errors of every level of the flow tree. NOT private: the errors depend on the true flows.

    Args:
        release: the release to evaluate.
        flows: the true flows from which the release was made, in the form that :func:`od_core.release_flows` accepts.
            All trips of a user count, without a contribution bound.
        columns: your names of the columns in ``flows``, as for :func:`od_core.release_flows`.
        segment: name of a breakdown, to return the errors of the flows in its categories. Then a category of a pair
            takes the place of a pair.
        one_row_a_trip: whether each row is one trip, as for :func:`od_core.release_flows`.

    Returns:
        One row per level 0 to T, with these columns:

        - level;
        - max_abs_error: largest absolute error, in trips;
        - mean_abs_error: mean absolute error, in trips, over all public pairs, including pairs without trips;
        - false_discovery_rate: share of the pairs released with trips whose true count is 0;
        - false_negative_rate: share of the pairs with true trips that are released as 0 or below.

        A rate over no pairs is 0. Released numbers below 0 (of ``vanilla_gauss``, and their sums) count in the errors
        unchanged, and in the rates as not positive.

    Raises:
        OdError: the release has no such breakdown, or ``flows`` cannot be counted.
    """
    tree = release.plan.tree
    counts = count_trips(
        flows,
        tree,
        fault_threshold=Fraction(1),
        one_row_a_trip=one_row_a_trip,
        columns=columns,
        breakdowns=() if segment is None else (find(release.plan.breakdowns, segment),),
    )
    if segment is None:
        return pd.DataFrame(Truth.of_counts(tree, counts).errors(release.leaves))
    true = SegmentTruth.of_counts(tree, counts, segment)
    return pd.DataFrame(true.errors(release.leaves, release.segments[segment]))
