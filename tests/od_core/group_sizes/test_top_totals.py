import numpy as np
import pandas as pd
import pytest

from od_core import Geography, OdError
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.top_totals import fit_histograms_to_top_totals
from tests.od_core.group_sizes.trees import cost, random_geography


def chain() -> Geography:
    """One area in three levels."""
    return Geography.from_frame(pd.DataFrame({"a": ["x"], "b": ["y"], "c": ["z"]}), ["a", "b", "c"])


def test_no_cut_end_is_overlooked_in_any_node():
    """Noise far wider than the cut, three levels, many children: against tables that are not cut at all."""
    rng = np.random.default_rng(300)
    for _ in range(10):
        geography = random_geography(rng, tops=1, depth=3, max_fan_out=4)
        frame = Frame(geography, rng.integers(0, 9, len(geography.zones)), 2)
        noisy = [rng.integers(-40, 41, (geography.size(level), 3)) for level in frame.levels]
        least = cost(noisy, fit_histograms_to_top_totals(frame, noisy, int(frame.groups.sum()) + 1))
        for cut in (1, 2, 8):
            assert cost(noisy, fit_histograms_to_top_totals(frame, noisy, cut)) == least


def test_equal_slopes_go_to_the_smallest_size_and_the_first_child():
    geography = Geography.from_frame(pd.DataFrame({"a": list("xxx"), "b": list("pqr")}), ["a", "b"])
    frame = Frame(geography, np.array([1, 1, 0]), 3)
    nothing = [np.zeros((number, 4), dtype=np.int64) for number in (1, 3)]
    histograms = fit_histograms_to_top_totals(frame, nothing, 16)
    assert histograms[1].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("value", [2**40, -(2**40)])
def test_values_from_the_limit_on_are_refused(value):
    frame = Frame(chain(), np.array([5]), 1)
    near = np.array([[value - np.sign(value), 0]])
    assert fit_histograms_to_top_totals(frame, [near] * 3, 1)[0].sum() == 5
    with pytest.raises(OdError, match="OD-GROUPS-OVERFLOW"):
        fit_histograms_to_top_totals(frame, [near, near, np.array([[value, 0]])], 1)
