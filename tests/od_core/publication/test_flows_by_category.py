"""A published release of flows with two breakdowns: it keeps to the contract of its kind, and all files agree."""

import csv
import io
import itertools
from pathlib import Path

import numpy as np
import openmatrix
import pandas as pd
import pytest
from pysdmx.io import read_sdmx

from od_core import Budget, Geography, InfTDARefined, open_release
from od_core.evaluation.forecast import RepeatableNoise
from od_core.flows.publishing import report
from od_core.flows.publishing.flow_tables import FlowTables
from tests.od_core.ledger import ledger_rows
from tests.od_core.publication import examples
from tests.od_core.publication import test_kind_contract as contract
from tests.od_core.publication.published_kinds import HOURS, MODES, Made, faults

pytestmark = pytest.mark.representatives(
    "test_the_*",
    "test_a_release_is_opened_from_the_database",
    "test_a_whole_release_verifies_without_key_or_records",
    "test_openmatrix_has_a_matrix_of_each_category",
    "test_pysdmx_reads_a_dimension_for_each_breakdown",
)

# The contract of all kinds is also run for this release.
copied = contract.copied
test_a_bundle_is_read_back_as_what_was_measured = contract.test_a_bundle_is_read_back_as_what_was_measured
test_a_changed_noisy_value_is_found = contract.test_a_changed_noisy_value_is_found
test_a_whole_release_verifies_without_key_or_records = contract.test_a_whole_release_verifies_without_key_or_records
test_noisy_values_that_do_not_fit_are_refused = contract.test_noisy_values_that_do_not_fit_are_refused
written_once = contract.written_once

LEVELS = ("all", "region", "zone")
PAIRS = list(itertools.product(LEVELS, LEVELS))
CATEGORIES = {"mode": MODES, "hour": HOURS}


@pytest.fixture
def made(published_by_category: Made) -> Made:
    return published_by_category


def listed(bundle: Path, origin: str, destination: str, breakdown: str) -> pd.DataFrame:
    """A CSV file as the plainest program reads it."""
    text = (bundle / f"tables/flows_{origin}_{destination}_by_{breakdown}.csv").read_bytes().decode("utf-8")
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    frame = pd.DataFrame(rows, columns=head, dtype=object)
    return frame.astype(dict.fromkeys(("trips", "lower", "upper"), "int64"))


def test_the_files_are_the_release_at_every_pair_of_levels(made):
    """CSV and Parquet; the categories of a pair of areas sum to its trips, and every pair is listed in each."""
    bundle, tree = made.place.bundle, made.release.plan.tree
    whole = pd.read_parquet(bundle / "tables/segments.parquet")
    for (origin, destination), (name, categories) in itertools.product(PAIRS, CATEGORIES.items()):
        file = listed(bundle, origin, destination, name)
        expected = made.release.flows_at(origin, destination, segment=name, interval=True)
        assert list(file.columns) == ["origin", "destination", name, "trips", "lower", "upper"]
        assert file.to_numpy().tolist() == expected.to_numpy().tolist()
        columns = ["breakdown", "origin_level", "destination_level"]
        part = whole[(whole[columns] == [name, origin, destination]).all(axis=1)]
        assert part.drop(columns=columns).to_numpy().tolist() == file.to_numpy().tolist()
        text = {"origin": str, "destination": str}
        totals = pd.read_csv(bundle / f"tables/flows_{origin}_{destination}.csv", dtype=text)
        pairs = tree.origin.size(LEVELS.index(origin)) * tree.destination.size(LEVELS.index(destination))
        assert (len(totals), len(file)) == (pairs, pairs * len(categories))
        sums = file.groupby(["origin", "destination"])["trips"].sum()
        assert sums.to_dict() == totals.set_index(["origin", "destination"])["trips"].to_dict()
    assert len(whole) == sum(len(listed(bundle, *pair, name)) for pair in PAIRS for name in CATEGORIES)


def test_the_codebook_says_that_segments_were_moved_to_their_profile(made, tmp_path):
    """Only where they were."""
    trips = pd.DataFrame({"origin": ["aa"], "destination": ["ba"], "trips": [9], "mode": [MODES[0]]})
    given = {"mechanism": InfTDARefined(segment_profile="3/2"), "segments": {"mode": MODES}}
    moved = examples.released_trips(trips, ledger_rows.ONE_LEVEL, **given)
    examples.publish_bundle(moved, examples.facts(moved), tmp_path / "r1")
    places = tmp_path / "r1", made.place.bundle
    texts = [" ".join((place / "codebook.md").read_text("utf-8").split()) for place in places]
    assert ["by at most 3/2 standard deviations of their noise" in text for text in texts] == [True, False]


def test_openmatrix_has_a_matrix_of_each_category(made):
    file_of = listed(made.place.bundle, "zone", "region", "mode")
    with openmatrix.open_file(str(made.place.bundle / "omx/flows_zone_region.omx")) as file:
        names = [f"{name}_{number}" for name in CATEGORIES for number in (1, 2, 3)]
        assert sorted(file.list_matrices()) == sorted([*names, "trips", "lower", "upper"])
        for name in CATEGORIES:
            assert np.array_equal(sum(file[f"{name}_{number}"][:] for number in (1, 2, 3)), file["trips"][:])
        places = {side: file.mapping(side) for side in ("origin", "destination")}
        for number, category in enumerate(MODES, start=1):
            matrix = file[f"mode_{number}"]
            assert (str(matrix.attrs["breakdown"]), str(matrix.attrs["category"])) == ("mode", category)
            rows = file_of[file_of["mode"] == category]
            row, column = ([places[side][code.encode()] for code in rows[side]] for side in places)
            assert matrix[:][row, column].tolist() == rows["trips"].tolist()


def test_pysdmx_reads_a_dimension_for_each_breakdown(made):
    message = read_sdmx(made.place.bundle / "sdmx/flows.sdmx.json", validate=True)
    names = {code.id: code.name for codes in message.get_codelists() for code in codes.items}
    (dataset,) = read_sdmx(made.place.bundle / "sdmx/flows.sdmx.csv", validate=False).data
    frame = dataset.data
    components = message.get_data_structure_definitions()[0].components
    assert [component.id for component in components] == list(frame.columns)
    assert list(frame.columns)[:5] == ["ORIGIN", "DESTINATION", "MODE", "HOUR", "TIME_PERIOD"]
    assert not frame.duplicated(["ORIGIN", "DESTINATION", "MODE", "HOUR"]).any()
    frame["OBS_VALUE"] = frame["OBS_VALUE"].astype("int64")
    is_total = (frame[["MODE", "HOUR"]] == "_T").all(axis="columns")
    totals = frame[is_total].set_index(["ORIGIN", "DESTINATION"])["OBS_VALUE"]
    for dimension, other in (("MODE", "HOUR"), ("HOUR", "MODE")):
        own = frame[frame[dimension] != "_T"]
        assert set(own[other]) == {"_T"}
        assert [*own[dimension].map(names).unique()] == list(CATEGORIES[dimension.lower()])
        sums = own.groupby(["ORIGIN", "DESTINATION"])["OBS_VALUE"].sum()
        assert sums.to_dict() == totals.to_dict()


def test_a_release_is_opened_from_the_database(made):
    opened = open_release(made.place.database)
    assert opened.plan.digest == made.release.plan.digest
    assert all(np.array_equal(opened.segments[name], trips) for name, trips in made.release.segments.items())
    for one, other in zip(opened.measured, made.release.measured, strict=True):
        assert one.step == other.step
        assert np.array_equal(one.noisy.read_values(), other.noisy.read_values())
    for name in CATEGORIES:
        both = (one.flows_at("region", "zone", segment=name, interval=True) for one in (opened, made.release))
        pd.testing.assert_frame_equal(*both)


@pytest.mark.usefixtures("written_once")
def test_moved_trips_are_found_although_all_sums_agree(copied):
    """From one category to another, at every pair of levels."""
    path = copied.place.bundle / "tables/segments.parquet"
    table = pd.read_parquet(path)
    for pair in PAIRS:
        rows = table["breakdown"].eq("mode") & table[["origin_level", "destination_level"]].eq(list(pair)).all(axis=1)
        most = table.index[rows & (table["trips"] == table.loc[rows, "trips"].max())][0]
        table.loc[most, "trips"] -= 1
        ends = ["origin", "destination"]
        same = rows & table[ends].eq(table.loc[most, ends]).all(axis=1)
        other = table.index[same & (table.index != most)][0]
        table.loc[other, "trips"] += 1
    table.to_parquet(path, index=False)
    found = faults(copied.place)
    assert found.keys() == {"files", "segments", "bundle", "database"}
    assert found["segments"] == "the flows by mode differ from the result of the measurements"


@pytest.mark.parametrize("cap", [InfTDARefined().keep_all_cap, 0], ids=["all kept", "nodes dropped"])
def test_the_intervals_of_shares_hold_the_true_shares(cap):
    """Although the released trips of a large area are half its true ones: much noise moves trips to small areas."""
    random, categories, zones = np.random.default_rng(4), ("car", "bus"), [f"z{k:02}" for k in range(60)]
    rates = np.where(np.arange(60) < 3, 20.0, 0.02)[:, np.newaxis, np.newaxis] * (0.6, 0.4)
    true = random.poisson(np.broadcast_to(rates, (60, 60, 2)))
    origin, destination, category = np.nonzero(true)
    columns = {"origin": origin, "destination": destination}
    flows = pd.DataFrame({name: np.array(zones)[numbers] for name, numbers in columns.items()})
    geography, held, halved = Geography.from_frame(pd.DataFrame({"zone": zones}), ["zone"]), [], 0
    for seed in range(6):
        trips = flows.assign(mode=np.array(categories)[category], trips=true[true > 0])
        given = {"mechanism": InfTDARefined(keep_all_cap=cap), "noise": RepeatableNoise(seed)}
        given |= {"budget": Budget("3/10", "1e-8"), "segments": {"mode": categories}}
        made = examples.released_trips(trips, geography, **given)
        for area in report._summarise_segments(made, made.plan.breakdowns[0], intervals=True)["areas"]:
            shares = np.array(area["shares"])
            assert (np.diff(shares[:, [1, 0, 2]]) >= 0).all()
            assert ((shares >= 0) & (shares <= 1)).all()
            if (zone := area["name"]) in zones[:3]:
                of_area = true[zones.index(zone)].sum(axis=0)
                halved += area["all_trips"] < 0.8 * of_area.sum()
                held += ((shares[:, 1] <= of_area / of_area.sum()) & (of_area / of_area.sum() <= shares[:, 2])).tolist()
    assert halved >= 10 or cap == 0
    assert np.mean(held) >= 0.8
    if cap == 0:  # nothing is known of how the trips of dropped nodes are correlated
        assert not made.intervals.nothing_dropped
        cells = 1, 0, np.arange(60, dtype=np.int32), np.zeros(60, dtype=np.int32)
        least, most = made.segment_intervals("mode").compute_cell_bounds(*cells)
        fewest, all_most = made.intervals.compute_cell_bounds(*cells)
        low, high = made.fit_segment("mode").compute_share_bounds(1)
        assert (low <= least.T / np.maximum(all_most, 1)).all()
        assert (high >= np.minimum(most.T / np.maximum(fewest, 1), 1)).all()


def test_an_area_without_released_trips_has_no_shares():
    geography = Geography.from_frame(pd.DataFrame({"zone": ["a", "b"]}), ["zone"])
    flows = pd.DataFrame({"origin": "a", "destination": "b", "mode": ["car", "bus"], "trips": [500, 1500]})
    given = {"budget": Budget(1000, "1e-8"), "segments": {"mode": ("car", "bus")}}
    made = examples.released_trips(flows, geography, **given)
    whole, of_a, of_b = report._summarise_segments(made, made.plan.breakdowns[0], intervals=True)["areas"]
    assert [share[0] for share in whole["shares"]] == [share[0] for share in of_a["shares"]] == [0.25, 0.75]
    assert of_b["shares"] == [[0, 0, 0]] * 2


def test_a_period_without_trips_is_published_and_read_back(tmp_path):
    none = pd.DataFrame({"origin": [], "destination": [], "trips": [], "mode": []}, dtype=object).astype({"trips": int})
    made = examples.released_trips(none, ledger_rows.ONE_LEVEL, segments={"mode": MODES})
    examples.publish_bundle(made, examples.facts(made), tmp_path / "r1")
    assert open_release(tmp_path / "r1").segments["mode"].shape == (0, 3)
    assert "% to " not in (tmp_path / "r1" / "report.html").read_text(encoding="utf-8")  # no share of no trips
    tables = FlowTables.from_release(made, examples.facts(made))
    assert all(pair.flows["trips"].sum() == 0 and len(pair.flows) > 0 for pair in tables.segments["mode"])
