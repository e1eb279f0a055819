"""LODES files, made to the layout of the "LODES 8 technical documentation": w_geocode, h_geocode, S000 and so on."""

from __future__ import annotations

import csv
import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.records.formats import FORMATS
from tests.od_core.records.published import LODES_HEADER

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
