"""Small files in the layouts that agencies publish, written by other means than those that read them.

Names and order of the columns are those of each agency's documentation; see the module of each reader for the source.
"""

import csv
import datetime
import gzip
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from od_core import Geography
from od_core.records.formats import FORMATS, RecordFormat

Flows = Iterable[tuple[object, object, object]]
"""Origin, destination and trips of each row."""

LODES_HEADER = "w_geocode,h_geocode,S000,SA01,SA02,SA03,SE01,SE02,SE03,SI01,SI02,SI03,createdate"
NOMIS_2021_HEADER = (
    "Lower tier local authorities code",
    "Lower tier local authorities label",
    "LTLA of workplace code",
    "LTLA of workplace label",
    "Place of work indicator (4 categories) code",
    "Place of work indicator (4 categories) label",
    "Count",
)
NOON = datetime.datetime(2001, 6, 15, 12)


def write_table(path: Path, flows: Flows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("origin", "destination", "n"), *flows])


def write_lodes(path: Path, flows: Flows) -> None:
    """Jobs of every kind beside S000; SA01 has one more, for a reader that took it would be seen to."""
    lines = [LODES_HEADER, *(f"{work},{home},{n},{n}1,0,0,0,0,0,0,0,0,20230321" for home, work, n in flows)]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))


def write_tlc(path: Path, flows: Flows) -> None:
    """Yellow taxis: a row a trip, ids as INTEGER."""
    trips = [(home, work) for home, work, n in flows for _ in range(int(str(n)))]
    columns = {
        "VendorID": pa.array([1] * len(trips), pa.int32()),
        "tpep_pickup_datetime": pa.array([NOON] * len(trips), pa.timestamp("us")),
        "tpep_dropoff_datetime": pa.array([NOON.replace(month=7)] * len(trips), pa.timestamp("us")),
        "PULocationID": pa.array([None if o is None else int(str(o)) for o, _ in trips], pa.int32()),
        "DOLocationID": pa.array([None if d is None else int(str(d)) for _, d in trips], pa.int32()),
    }
    pq.write_table(pa.table(columns), path)


def istat_line(home: str, work: str, count: object, *, record: str = "S", reason: int = 2, estimate: str = "ND") -> str:
    """One record in columns of fixed width; the fields that S records lack are a plus sign."""
    place, country = (3, "229") if work == "000000" else (1 if home == work else 2, "000")
    how = "+  + +" if record == "S" else "07 2 1"
    ends = f"{home[:3]} {home[3:]} 1 {reason} {place} {work[:3]} {work[3:]}"
    return f"{record} 1 {ends} {country} {how} {estimate:>15} {count!s:>10}"


def write_istat(path: Path, flows: Flows) -> None:
    """Each S record, and its estimate for those who drive, in fractions."""
    lines = []
    for home, work, n in flows:
        lines.append(istat_line(str(home), str(work), f"{n:07}" if isinstance(n, int) else n))
        lines.append(istat_line(str(home), str(work), "ND", record="L", estimate="1234.56"))
    path.write_text("".join(f"{line}\n" for line in lines), encoding="ascii")


def write_nomis(path: Path, flows: Flows) -> None:
    """The census of 2011, table WU01."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [(home, work, n, n, 0) for home, work, n in flows]
        header = ("Area of usual residence", "Area of workplace", "All categories: Sex", "Male", "Female")
        csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows([header, *rows])


def nomis_2021(rows: Iterable[tuple[str, str, int, object]]) -> str:
    """The census of 2021, table ODWP01EW, of rows of home, work, indicator and count."""
    text = io.StringIO()
    full = [(home, "a", work, "b, c", indicator, "d", n) for home, work, indicator, n in rows]
    csv.writer(text).writerows([NOMIS_2021_HEADER, *full])
    return text.getvalue()


@dataclass(frozen=True)
class Published:
    """A layout: its reader, a file's name, three zones, a code that is nowhere, and how rows are written."""

    form: RecordFormat
    file: str
    zones: tuple[str, str, str]
    nowhere: str | None
    write: Callable[[Path, Flows], None]

    def geography(self, *, unknown: bool = False) -> Geography:
        zones = [("a", self.zones[0]), ("a", self.zones[1]), ("b", self.zones[2])]
        listed = pd.DataFrame(zones + [("u", "unknown")] * unknown, columns=["region", "zone"], dtype="str")
        return Geography.from_frame(listed, ["region", "zone"], unknown="unknown" if unknown else None)


PUBLISHED = {
    "table": Published(FORMATS["table"], "trips.csv", ("01", "02", "03"), None, write_table),
    "lodes": Published(
        FORMATS["lodes"],
        "ca_od_main_JT00_2021.csv.gz",
        ("060014001001001", "060014002001001", "061150411003099"),
        None,
        write_lodes,
    ),
    "tlc": Published(FORMATS["tlc"], "yellow_tripdata_2001-06.parquet", ("1", "7", "263"), "264", write_tlc),
    "istat": Published(
        FORMATS["istat"], "matrix_pendo2011_10112014.txt", ("001001", "001272", "058091"), "000000", write_istat
    ),
    "nomis": Published(
        FORMATS["nomis"], "wu01ew_msoa.csv", ("E02000001", "E02000002", "W02000424"), "OD0000003", write_nomis
    ),
}
