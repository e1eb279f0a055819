"""NOMIS files, made to the columns of WU01EW and WU03EW (census of 2011) and of ODWP01EW (census of 2021)."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.records.formats import FORMATS
from tests.od_core.records.published import nomis_2021

pytestmark = pytest.mark.usefixtures("one_scratch_database")

NOMIS = FORMATS["nomis"]

INDICATOR = "Place of work indicator (4 categories) code"
AREAS = st.sampled_from(["E06000001", "E06000002", "W06000024", "S12000033", "999999999"])


@given(
    rows=st.lists(st.tuples(AREAS, AREAS, st.integers(1, 4), st.integers(0, 10**6)), max_size=10),
    chosen=st.sets(st.sampled_from("1234")),
)
def test_indicators_that_are_chosen_as_the_csv_module_reads_them(tmp_path, loaded, rows, chosen):
    """The census of 2021: all categories where none is chosen."""
    text = nomis_2021(rows)
    (tmp_path / "ODWP01EW_LTLA.csv").write_text(text, encoding="utf-8-sig", newline="")
    form = NOMIS.declared(categories=((INDICATOR, tuple(sorted(chosen))),)) if chosen else NOMIS
    read = loaded(tmp_path / "ODWP01EW_LTLA.csv", NOMIS.columns, "2021", record_format=form)
    expected = [
        (row["Lower tier local authorities code"], row["LTLA of workplace code"], int(row["Count"]))
        for row in csv.DictReader(text.splitlines())
        if not chosen or row[INDICATOR] in chosen
    ]
    assert list(read[["origin", "destination", "trips"]].itertuples(index=False, name=None)) == expected
