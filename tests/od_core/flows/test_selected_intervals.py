"""Intervals of flows that are read because they were released above 0 [benjamini2005false, Theorem 1]."""

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from od_core import Budget, sum_releases
from od_core.flows import interval_ends
from od_core.flows.estimation.intervals import compute_bounds
from od_core.flows.indicators import indicators
from od_core.flows.interval_ends import (
    DEVIATIONS,
    LowerEnds,
    choose_reliability_words,
    compute_lower_bound,
    compute_selected_deviations,
)
from od_core.flows.publishing.changes import changes, compute_table_changes
from od_core.publication import number_formats
from tests.od_core.doubles import SeededNoise, usual_release
from tests.od_core.strategies import geography_of

ZONES = [(f"r{region}", f"r{region}z{zone}") for region in range(3) for zone in range(4)]


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_deviations_are_the_quantile_of_the_share_that_was_published(public, published):
    published = min(published, public)
    found = compute_selected_deviations(published, public)
    assert found == pytest.approx(norm.isf(0.05 * max(published, 1) / public), rel=1e-9)
    assert found >= DEVIATIONS == compute_selected_deviations(public, public)
    assert found >= compute_selected_deviations(min(published + 1, public), public)


def test_the_lower_end_is_that_of_the_definition():
    """An estimate of 30 with a standard deviation of 10, where 20 of 1,000 are published: 30 - 3.09 * 10 - 1/4."""
    assert compute_selected_deviations(20, 1000) == pytest.approx(3.0902, abs=1e-4)
    ends, listed = LowerEnds(compute_selected_deviations(20, 1000)), LowerEnds(3.0902, np.array([False, True]))
    assert compute_lower_bound(np.array([30.0, 32.0, 50.0]), np.array([100.0] * 3), ends).tolist() == [0, 1, 34]
    assert compute_lower_bound(np.array([30.0, 50.0]), np.array([100.0] * 2), listed).tolist() == [0, 19]


@pytest.mark.parametrize(
    ("number", "lower", "upper", "word"),
    [
        (8, 7, 9, "solid"),
        (7, 6, 8, "rough"),
        (8, 8, 8, "solid"),
        (1, 0, 1, "may be none"),
        (8, 1, 40, "rough"),
        (-3, -3, 5, "may be none"),
    ],
)
def test_a_word_says_how_much_of_a_number_its_interval_is(number, lower, upper, word):
    """Solid is at most a quarter; a number of a page that is released as 0 has no word."""
    assert choose_reliability_words(*(np.array([value]) for value in (number, lower, upper))).tolist() == [word]
    assert number_formats.choose_reliability_word(number, lower, upper) == word
    assert number_formats.format_interval_and_word(number, lower, upper).endswith(f" to {upper}, {word}")
    assert number_formats.format_interval_and_word(0, 0, upper) == f"0 to {upper}"


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_pages_have_the_words_of_tables(number, down, up):
    lower, upper = max(number - down, 0), number + up
    (word,) = choose_reliability_words(*(np.array([value]) for value in (number, lower, upper)))
    assert number_formats.choose_reliability_word(number, lower, upper) == word


@pytest.mark.parametrize("listed", [5, 100])
@pytest.mark.parametrize("segment", [None, "mode"])
def test_flows_above_0_have_the_lower_ends_of_their_pair_of_levels_and_all_others_keep_theirs(
    segment, listed, monkeypatch
):
    """Of the largest, whose number the parameter states, also those that are far above 0."""
    monkeypatch.setattr(interval_ends, "TOP_LIST_LENGTH", listed)
    geography, modes = geography_of(ZONES), ["car", "rail", "walk"]
    pairs = [(one, other) for (_, one), (_, other) in product(ZONES, repeat=2)][::7]
    frame = pd.DataFrame(pairs, columns=["origin", "destination"]).assign(trips=40)
    options = {}
    if segment is not None:
        frame = frame.assign(mode=[modes[k % 3] for k in range(len(frame))])
        options = {"segments": {segment: modes}}
    release = usual_release(frame, geography, noise=SeededNoise(3), **options)
    names = geography.level_names
    moved = 0
    for (o, origin), (d, destination) in product(enumerate(names), repeat=2):
        asked = partial(release.flows_at, origin, destination, interval=True, segment=segment)
        found, before = asked(selected=True), asked(selected=False)
        assert release.make_selection((o, d), segment) == replace(release).make_selection(
            (o, d), segment
        )  # without the table
        public = len(found)
        assert public == geography.size(o) * geography.size(d) * (1 if segment is None else 3)
        z = norm.isf(0.05 * (found["trips"] > 0).sum() / public)
        numbers = np.divmod(np.arange(geography.size(o) * geography.size(d)), geography.size(d))
        ends = [each.astype(np.int32) for each in numbers]
        intervals = release.intervals if segment is None else release.segment_intervals(segment)
        above, largest = found["trips"] > 0, found["trips"] >= max(found["trips"].nlargest(listed).iloc[-1], 1)
        shape = (geography.size(o) * geography.size(d), -1)
        of_largest = largest.to_numpy().reshape(shape if segment else shape[:1])
        expected = intervals.compute_cell_bounds(o, d, *ends, LowerEnds(z, of_largest))[0].ravel()
        assert (found["lower"] == np.where(above, np.minimum(expected, found["trips"]), before["lower"])).all()
        assert (found["upper"] == before["upper"]).all()
        moved += (found["lower"] < before["lower"]).sum()
    assert moved > 0


def test_trips_within_an_area_have_the_interval_of_the_flow_from_it_to_itself():
    """Without measured totals; outflows and inflows, of which nearly all are published, have the usual ends."""
    geography = geography_of(ZONES)
    frame = pd.DataFrame([(zone, zone, 30 + 20 * k) for k, (_, zone) in enumerate(ZONES[::2])])
    frame.columns = ["origin", "destination", "trips"]
    release = usual_release(frame, geography, budget=Budget("0.5", "1e-8"), noise=SeededNoise(3))
    found, usual = indicators(release), indicators(release, selected=False)
    for level, name in enumerate(geography.levels, start=1):
        for table, selected in ((found, None), (usual, False)):
            rows = table[table["level"] == name].set_index("area")
            flows = release.flows_at(name, name, interval=True, selected=selected)
            within = flows[flows["origin"] == flows["destination"]].set_index("origin").loc[rows.index]
            assert (rows[["within", "within_lower", "within_upper"]].to_numpy() == within.iloc[:, 1:].to_numpy()).all()
            areas = release.intervals.estimate_areas(level)
            for column in ("outflow", "inflow"):
                lower, upper = compute_bounds(getattr(areas, column))
                assert (rows[f"{column}_lower"] == np.minimum(lower, rows[column])).all()
                assert (rows[f"{column}_upper"] == np.maximum(upper, rows[column])).all()
    assert (found["within_lower"] < usual["within_lower"]).any()


def test_flows_of_earlier_bundles_keep_their_intervals():
    """In the library, and of every kind of table that is made of them."""
    geography = geography_of(ZONES)
    frame = pd.DataFrame([(zone, zone, 30) for _, zone in ZONES], columns=["origin", "destination", "trips"])
    budget = Budget("0.5", "1e-8")
    release, other = (usual_release(frame, geography, budget=budget, noise=SeededNoise(seed)) for seed in (3, 4))
    earlier, names = replace(release, selected=False), geography.level_names[-1:] * 2
    usual = release.flows_at(*names, interval=True, selected=False)
    pd.testing.assert_frame_equal(earlier.flows_at(*names, interval=True), usual)
    assert not usual.equals(release.flows_at(*names, interval=True))
    now = replace(earlier, selected=True).flows_at(*names, interval=True)
    assert now.equals(release.flows_at(*names, interval=True))
    pd.testing.assert_frame_equal(indicators(earlier), indicators(release, selected=False))
    total = sum_releases([release, other])
    usual = total.flows_at(*names, interval=True, selected=False)
    pd.testing.assert_frame_equal(replace(total, selected=False).flows_at(*names, interval=True), usual)
    found = changes(earlier, other, *names)
    tables = [one.flows_at(*names, interval=True) for one in (earlier, other)]
    pd.testing.assert_frame_equal(found, compute_table_changes(*tables))
    assert not found.equals(changes(release, other, *names))
