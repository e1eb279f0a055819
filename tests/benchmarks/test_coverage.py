"""The table of coverage against a count by hand, and where it has nothing to count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import coverage as module
from benchmarks.coverage import coverage
from od_core.evaluation.forecast import SIZE_CLASSES
from od_core.geography.flow_tree import Nodes
from tests.od_core.oracles.intervals import DROPPING, KEEPING, Case, case_of

RANDOMS = st.randoms(use_true_random=True)


def true_leaves(case: Case) -> Nodes:
    """In tree order; those with trips."""
    tree, truth = case.tree, case.truth
    zones = [case.areas(side, tree.origin.depth) for side in (0, 1)]
    places = [[own.index(zone) for zone in zones[side]] for side, own in enumerate((case.origins, case.destinations))]
    ordered = truth[np.ix_(*places)]
    o, d = np.nonzero(ordered)
    nodes = Nodes(tree.depth, o.astype(np.int32), d.astype(np.int32), ordered[o, d])
    order = np.argsort(tree.compute_first_ranks(nodes))
    return Nodes(tree.depth, nodes.origin[order], nodes.destination[order], nodes.trips[order])


def by_hand(case: Case, *, zeros: bool) -> dict:
    """Cells, covered cells and sum of widths of every pair of levels and class, from the published tables."""
    found: dict = {}
    names = case.tree.origin.level_names, case.tree.destination.level_names
    for o_level, d_level in case.level_pairs():
        areas = [
            {area[-1] if area else "all": area for area in case.areas(s, n)} for s, n in ((0, o_level), (1, d_level))
        ]
        table = case.release.flows_at(names[0][o_level], names[1][d_level], interval=True, selected=False)
        for row in table.itertuples():
            true = case.true(areas[0][row.origin], areas[1][row.destination])
            if true == 0 and not zeros:
                continue
            least = max(bound for bound in SIZE_CLASSES if bound <= true)
            entry = found.setdefault((names[0][o_level], names[1][d_level], least), [0, 0, 0])
            entry[0] += 1
            entry[1] += row.lower <= true <= row.upper
            entry[2] += row.upper - row.lower
    return found


@pytest.mark.parametrize("zeros", [True, False])
@given(random=RANDOMS)
def test_it_counts_every_public_pair_by_its_true_size(zeros, random):
    """Those of pairs that were chosen before the release; without pairs of 0 trips where there are too many pairs."""
    case = case_of(random, [*KEEPING, *DROPPING], most_trips=random.choice([2, 150, 3000]), most_pairs=30)
    with pytest.MonkeyPatch.context() as patch:
        if not zeros:
            patch.setattr(module, "MOST_ZEROS", 0)
        if not zeros and case.trips == 0:
            return
        table = coverage([case.release], true_leaves(case))
    expected = by_hand(case, zeros=zeros)
    found = {(row.origin_level, row.destination_level, row.least_trips): row for row in table.itertuples()}
    assert found.keys() == expected.keys()
    for key, (cells, covered, width) in expected.items():
        assert found[key].cells == cells
        assert found[key].covered == pytest.approx(covered / cells)
        assert found[key].width == pytest.approx(width / cells)
