"""LODES files, made to the layout of the "LODES 8 technical documentation": w_geocode, h_geocode, S000 and so on."""

from __future__ import annotations

import csv
import gzip

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core import FlowTree, Geography
from od_core.records.counting import trip_counts_of
from od_core.records.formats import FORMATS
from tests.od_core.records.published import LODES_HEADER
from tests.real_data import real_data

pytestmark = pytest.mark.usefixtures("one_scratch_database")

LODES = FORMATS["lodes"]

BLOCKS = st.integers(10**13, 72 * 10**13 + 10**13 - 1).map(lambda number: f"{number:015}")
SEGMENTS = LODES_HEADER.split(",")[2:-1]


@given(
    rows=st.lists(st.tuples(BLOCKS, BLOCKS, st.lists(st.integers(0, 9999), min_size=10, max_size=10)), max_size=6),
    segment=st.sampled_from(SEGMENTS),
    is_packed=st.booleans(),
)
def test_the_jobs_that_are_chosen_as_the_csv_module_reads_them(tmp_path, loaded, rows, segment, is_packed):
    """Fifteen digits from home to work, those of the first nine states with their zero; any column of jobs."""
    source = tmp_path / ("od.csv.gz" if is_packed else "od.csv")
    lines = [LODES_HEADER, *(",".join([w, h, *map(str, jobs), "20230321"]) for w, h, jobs in rows), ""]
    content = "\n".join(lines).encode()
    source.write_bytes(gzip.compress(content) if is_packed else content)
    stated = {} if segment == "S000" else {"trips": segment}
    read = loaded(source, LODES.columns_with(**stated), "2021", record_format=LODES)
    expected = [(row["h_geocode"], row["w_geocode"], int(row[segment])) for row in csv.DictReader(lines)]
    assert list(read[["origin", "destination", "trips"]].itertuples(index=False, name=None)) == expected
    assert read["in_period"].all()


def test_a_block_of_alabama_keeps_its_zero(tmp_path, loaded):
    source = tmp_path / "al_od_main_JT00_2021.csv"
    source.write_text(f"{LODES_HEADER}\n010010201001000,010010202002000,7,1,2,4,1,2,4,0,0,7,20230321\n")
    (record,) = loaded(source, LODES.columns, "2021", record_format=LODES).itertuples()
    assert (record.origin, record.destination, record.trips) == ("010010202002000", "010010201001000", 7)


def test_real_commuters_in_the_layout_of_lodes(tmp_path, loaded, target):
    """Norway's municipalities of 2017 as blocks: every commuter of the file is counted."""
    folder = real_data("norway_commuting_2017")
    flows = pd.read_csv(folder / "flows.csv.gz", dtype={"origin": str, "destination": str})
    blocks = {side: "0" + flows[side] + "0" * 10 for side in ("origin", "destination")}
    table = pd.DataFrame({"w_geocode": blocks["destination"], "h_geocode": blocks["origin"], "S000": flows["count"]})
    table.assign(createdate="20230321").to_csv(tmp_path / "no_od_main_JT00_2017.csv.gz", index=False)
    zones = pd.read_csv(folder / "zones.csv", dtype=str)
    zones["zone"] = "0" + zones["zone"] + "0" * 10
    geography = Geography.from_frame(zones, ["landsdel", "fylke", "zone"])
    loaded(tmp_path / "no_od_main_JT00_2017.csv.gz", LODES.columns, "2017", record_format=LODES)
    counts = trip_counts_of(target, FlowTree(geography, geography), fault_threshold=0)
    assert (len(counts.rank), counts.total) == (len(flows), flows["count"].sum())


@pytest.mark.parametrize("stated", ["sa01", "S001"])
def test_a_stated_column_is_meant_as_it_is_written(tmp_path, loaded, stated):
    (tmp_path / "od.csv").write_text(f"{LODES_HEADER}\n")
    with pytest.raises(Exception, match=f"OD-TRIPS-COLUMN.*no column '{stated}' .did you mean 'S"):
        loaded(tmp_path / "od.csv", LODES.columns_with(trips=stated), "2021", record_format=LODES)
