"""Public zone lists: text stays text, and a file that is no table is refused by its name."""

from __future__ import annotations

import pandas as pd
import pytest

from od_core import Geography, OdError
from od_core.readers.zones import read_zones

ZONES = pd.DataFrame(
    {
        "region": ["001", "001", "NA", "é"],
        "district": ["01", "02", "03", "1e4"],
        "zone": ["0010", "00,11", 'q"x', "null"],
        "name": ["", "  padded ", "line\nbreak", "nan"],
    },
    dtype="str",
)


def test_codes_of_a_csv_stay_as_they_are_written(tmp_path):
    """Leading zeros, the words NA, null and nan, blanks, quotes, a byte order mark: nothing is guessed."""
    for name, encoding in (("zones.csv", "utf-8"), ("marked.csv", "utf-8-sig")):
        ZONES.to_csv(tmp_path / name, index=False, encoding=encoding)
        zones = read_zones(tmp_path / name)
        assert list(zones.columns) == list(ZONES.columns)
        assert zones.to_numpy().tolist() == ZONES.to_numpy().tolist()
    assert Geography.from_frame(zones, ["region", "zone"]).zones == ("00,11", "0010", 'q"x', "null")


def test_a_parquet_file_keeps_its_types(tmp_path):
    """Numbers are not turned into text, so that the geography can refuse lost zeros."""
    frame = pd.DataFrame({"region": ["a", None], "zone": [1, 2]})
    frame.to_parquet(tmp_path / "zones.parquet")
    zones = read_zones(tmp_path / "zones.parquet")
    assert zones["zone"].tolist() == [1, 2]
    assert zones["region"].isna().tolist() == [False, True]
    with pytest.raises(OdError, match="OD-GEOGRAPHY-NOT-TEXT"):
        Geography.from_frame(zones.dropna(), ["region", "zone"])


UNREADABLE = {
    "latin.csv": ("zone\nÉvreux\n".encode("latin-1"), "OD-FILE-NOT-UTF8"),
    "empty.csv": (b"", "OD-FILE-UNREADABLE"),
    "ragged.csv": (b"region,zone\na,b\na,b,c\n", "OD-FILE-UNREADABLE"),
    "quote.csv": (b'region,zone\n"a,b\n', "OD-FILE-UNREADABLE"),
    "empty.parquet": (b"", "OD-FILE-UNREADABLE"),
    "garbage.parquet": (b"PAR1" + bytes(range(256)) + b"PAR1", "OD-FILE-UNREADABLE"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_is_no_table_is_refused_by_its_name(tmp_path, name):
    content, code = UNREADABLE[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OdError) as refused:
        read_zones(tmp_path / name)
    assert refused.value.code == code
    assert name in refused.value.message
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["absent.csv", "absent.parquet", "."])
def test_a_file_that_is_not_there(tmp_path, name):
    with pytest.raises(OdError) as refused:
        read_zones(tmp_path / name)
    assert refused.value.code == "OD-FILE-MISSING"


def test_a_list_without_rows_reaches_the_geography(tmp_path):
    (tmp_path / "zones.csv").write_text("region,zone\n")
    with pytest.raises(OdError, match="OD-GEOGRAPHY-EMPTY"):
        Geography.from_frame(read_zones(tmp_path / "zones.csv"), ["region", "zone"])
