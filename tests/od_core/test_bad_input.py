"""Every bad input that an operator is promised a plain word about, in one list; and what looks bad and is valid.

Each is refused in one line that names the file, the column or the field, and what to do; of confidential records it
quotes nothing, and the row stands in the confidential detail alone. Nothing is drawn before a refusal.
"""

from __future__ import annotations

import datetime
import gzip
import io
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from od_assets.components import OdRelease
from od_assets.series.reading import declaration, read_declaration
from od_core import Budget, FlowTree, Geography, OdError, PrivacyUnit, StabilityHistogram, plan_release, release_flows
from od_core.flows.release import Release, run_plan
from od_core.ledger.measurements import MemoryMeasurements
from od_core.privacy.neighbours import NO_FAULTS
from od_core.records.counting import trip_counts_of
from od_core.records.load import RecordColumns, load_records
from tests.od_core.doubles import NoiseNotWanted, no_noise
from tests.projects import make_dg_project

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "QX-CANARY-7731"
NUMBER = 7731
LEVELS = ["region", "zone"]
ZONES = pd.DataFrame({"region": ["a", "a", "b"], "zone": ["01", "02", "03"]})
GEOGRAPHY = Geography.from_frame(ZONES, LEVELS)
TRIP, BUDGET = PrivacyUnit("trip"), Budget(epsilon=1, delta="1e-8")
HUGE = "x" * 3_000_000

DECLARED: dict[str, Any] = {
    "name": "trips",
    "owners": ["team:statistics"],
    "trips": {"files": "data/{period}.csv", "columns": {"date": "day"}},
    "geography": {"file": "zones.csv", "levels": LEVELS},
    "periods": {"first": "2001-01"},
    "domain": "trips",
    "privacy": {"epsilon": "1", "delta": "1e-8"},
}
DOMAIN: dict[str, Any] = {"name": "trips", "cap": {"rho": "0.1", "reason": "a test"}}


@dataclass(frozen=True)
class Bad:
    """An input, read in a folder; the code of its refusal, what the line names, and what only the detail names."""

    what: str
    read: Callable[[Path], object]
    code: str
    names: tuple[str, ...] = ()
    detail: str | None = None


def settings(folder: Path) -> Any:
    """A declaration, as text in a file beside its privacy domain's, in the terms of the library."""
    defs = make_dg_project(folder)
    (defs / "domains" / "trips.yaml").write_text(yaml.dump(DOMAIN), encoding="utf-8")
    path = defs / "trips" / "defs.yaml"
    path.parent.mkdir()
    path.write_text(yaml.dump({"attributes": DECLARED}), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OD_PROJECT", str(folder))
        return read_declaration(path, OdRelease).checked()


def zone_file(name: str, content: str | bytes | pd.DataFrame | None) -> Callable[[Path], object]:
    """Read a public zone list from a file, as a release does."""

    def read(folder: Path) -> object:
        if isinstance(content, pd.DataFrame):
            content.to_parquet(folder / name)
        elif content is not None:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return replace(settings(folder).geography.zone_list, file=name).geography(folder)

    return read


def zones(what: str, rows: str | bytes, code: str, *names: str, detail: str | None = None) -> Bad:
    """A fault in a CSV of zones."""
    read = zone_file("zones.csv", rows)
    return Bad(f"zone list: {what}", read, f"OD-GEOGRAPHY-{code}", ("zones.csv", *names), detail)


def areas(what: str, rows: list[tuple[object, object]], code: str, *names: str, detail: str | None = None) -> Bad:
    """A fault in a table of areas and their parents."""
    table = pd.DataFrame(rows, columns=["area", "parent"], dtype=object)
    return Bad(f"area list: {what}", lambda _: Geography.from_parents(table), f"OD-GEOGRAPHY-{code}", names, detail)


def records(
    what: str,
    content: str | bytes | pa.Table | None,
    code: str,
    *names: str,
    detail: str | None = None,
    columns: RecordColumns | None = None,
) -> Bad:
    """A fault in a file of confidential records."""
    name = "trips.parquet" if isinstance(content, pa.Table) else "trips.csv"

    def read(folder: Path) -> object:
        if isinstance(content, pa.Table):
            pq.write_table(content, folder / name)
        elif content is not None:
            (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        target = folder / "confidential" / "records.parquet"
        target.parent.mkdir()
        load_records(folder / name, columns or RecordColumns(), "2001-06", target)
        return trip_counts_of(target, FlowTree(GEOGRAPHY, GEOGRAPHY))

    return Bad(f"records: {what}", read, code, names, detail)


def files(make: Callable[[Path], object], name: str = "trips.csv") -> Callable[[Path], object]:
    """Read records from what a function makes at a path."""

    def read(folder: Path) -> object:
        make(folder / name)
        target = folder / "records.parquet"
        load_records(folder / name, RecordColumns(), "2001-06", target)
        return trip_counts_of(target, FlowTree(GEOGRAPHY, GEOGRAPHY))

    return read


def workbook() -> bytes:
    """The first file of an Excel workbook."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as book:
        book.writestr("xl/workbook.xml", CANARY)
    return content.getvalue()


def flows(what: str, frame: dict[str, Any], code: str, *names: str, detail: str | None = None) -> Bad:
    """A fault in a table of confidential flows."""
    table = pd.DataFrame({"origin": ["01", "02"], "destination": ["03", "01"]} | frame)
    return Bad(f"flows: {what}", lambda _: released(table, noise=NoiseNotWanted()), code, names, detail)


def released(table: pd.DataFrame, geography: Geography = GEOGRAPHY, **options: Any) -> Release:
    return release_flows(table, geography, **{"unit": TRIP, "budget": BUDGET} | options)


def option(what: str, code: str, *names: str, **options: Any) -> Bad:
    """A fault in what is asked for."""
    table = pd.DataFrame({"origin": ["01"], "destination": ["03"]})
    return Bad(f"option: {what}", lambda _: released(table, **{"noise": NoiseNotWanted()} | options), code, names)


def call(what: str, make: Callable[[], object], code: str, *names: str, detail: str | None = None) -> Bad:
    return Bad(what, lambda _: make(), code, names, detail)


def with_rows(*rows: str, header: str = "origin,destination") -> str:
    return "\n".join([header, *["01,03" + ",1" * (header.count(",") - 1)] * 3, *rows, ""])


def counts_in_csv(what: str, count: str) -> Bad:
    """A number of trips in the fourth row of a file, in a column with a name of its own."""
    text = with_rows(f"01,{CANARY},{count}", header="origin,destination,n")
    flows_columns = RecordColumns(trips="n")
    return records(f"{what} count", text, "OD-TRIPS-COUNT", "'trips'", detail="row 4 of 4", columns=flows_columns)


def of_a_year(**changes: Any) -> PrivacyUnit:
    given = {"column": "id", "max_trips": 4, "max_trips_year": 9, "id_pattern": "[0-9]+"} | changes
    return PrivacyUnit("user_year", **given)


NOON = datetime.datetime(2001, 6, 1, 12, tzinfo=datetime.UTC)
DATED = RecordColumns(date="day")
EACH_A_FAULT = ("OD-TRIPS-FAULTS", "not in the zone list")

BAD = [
    # Missing file or column.
    Bad("zone list: missing file", zone_file("zones.csv", None), "OD-FILE-MISSING", ("zones.csv",)),
    records("missing file", None, "OD-FILE-MISSING", "trips.csv"),
    Bad("records: folder", files(Path.mkdir), "OD-FILE-MISSING", ("trips.csv", "is a folder")),
    Bad(
        "records: dangling link",
        files(lambda path: path.symlink_to("gone.csv")),
        "OD-FILE-MISSING",
        ("there is no file trips.csv",),
    ),
    zones("missing column", "region,zon\na,01\n", "COLUMN", "'zone' (did you mean 'zon'?)"),
    zones("column in another case", "Region,zone\na,01\n", "COLUMN", "'region'", "did you mean 'Region'?"),
    zones("padded column", "region, zone\na,01\n", "COLUMN", "'zone'", "did you mean ' zone'?"),
    zones(
        "column twice", "region,zone,zone\na,01,01\n", "COLUMN", "more than once", "columns 2 and 3", detail="'zone'"
    ),
    zones("numbers of a spreadsheet", "region,zone\na,01\na,2.5E+11\n", "NOT-TEXT", "'zone'", detail="'2.5E+11'"),
    zones("numbers of R", "region,zone\na,01\n1e+05,02\n", "NOT-TEXT", "'region'", "in scientific notation"),
    zones("no header", "a,01\nb,02\n", "COLUMN", "'region'", detail="['a', '01']"),
    zones("no rows", "region,zone\n", "EMPTY"),
    call(
        "area list: missing column",
        lambda: Geography.from_parents(pd.DataFrame({"area": ["a"]})),
        "OD-GEOGRAPHY-COLUMN",
        "'parent'",
    ),
    records("missing column", f"origin,to\n{CANARY},03\n", "OD-TRIPS-COLUMN", "trips.csv", "'destination'"),
    records("no header", f"{CANARY},03\n", "OD-TRIPS-COLUMN", "trips.csv", "'origin'"),
    records("empty file", "", "OD-FILE-UNREADABLE", "trips.csv"),
    records("no dates", with_rows(header="origin,destination,day"), "OD-TRIPS-FAULTS", "period", columns=DATED),
    records("no date column", with_rows(), "OD-TRIPS-COLUMN", "trips.csv", "'day'", columns=DATED),
    records("no count column", with_rows(), "OD-TRIPS-COLUMN", "'n'", columns=RecordColumns(trips="n")),
    call(
        "flows: missing column",
        lambda: released(pd.DataFrame({"origin": ["01"], "destinatoin": [CANARY]})),
        "OD-TRIPS-COLUMN",
        "'destination' (did you mean 'destinatoin'?)",
    ),
    # Missing, blank, padded or differently cased codes in a geography; the same of a record is a fault of that record.
    zones("row too short", "region,zone\na,01\nb\n", "BLANK-CODE", "'zone'"),
    zones("blank code", "region,zone\na,01\n,02\n", "BLANK-CODE", "'region'"),
    zones("code of spaces", "region,zone\na,01\nb,  \n", "BLANK-CODE", "'zone'"),
    zones("padded code", "region,zone\na,01\na,02 \n", "PADDED-CODE", "'zone'", detail="'02 '"),
    zones(
        "code in another case", "region,zone\nNorth,01\nnorth,02\n", "CASE", "'region'", detail="'North' and 'north'"
    ),
    Bad(
        "zone list: NULL code",
        zone_file("zones.parquet", pd.DataFrame({"region": ["a", "b"], "zone": ["01", None]})),
        "OD-GEOGRAPHY-MISSING-CODE",
        ("zones.parquet", "'zone'"),
    ),
    areas("NULL code", [("a", None), (None, "a")], "MISSING-CODE", "'area'"),
    areas("blank parent", [("a", "")], "BLANK-CODE", "'parent'"),
    areas("padded parent", [("a", None), ("01", " a")], "PADDED-CODE", "'parent'", detail="' a'"),
    areas("code in another case", [("a", None), ("A", None)], "CASE", "'area'", detail="'a' and 'A'"),
    *(
        records(f"{what} code", with_rows(f'01,"{code}"'), *EACH_A_FAULT, detail="1 of 4 trips")
        for what, code in {"blank": "", "padded": " 01", "cased": CANARY.lower(), "unlisted": CANARY}.items()
    ),
    records(
        "NULL code",
        pa.table({"origin": pa.array([None, "01"]), "destination": [CANARY, "03"]}),
        *EACH_A_FAULT,
        detail="1 of 2 trips",
    ),
    flows("NULL code", {"origin": [None, "01"]}, *EACH_A_FAULT, detail="1 of 2 trips"),
    flows("a list for a code", {"origin": [[CANARY], "01"]}, "OD-TRIPS-NOT-TEXT", "'origin' holds list; zone codes"),
    # Numeric codes that lost their leading zeros.
    Bad(
        "zone list: numbers",
        zone_file("zones.parquet", pd.DataFrame({"region": ["a", "b"], "zone": [1, 2]})),
        "OD-GEOGRAPHY-NOT-TEXT",
        ("zones.parquet", "'zone'", "leading zeros"),
    ),
    areas("numbers", [("a", None), (1, "a")], "NOT-TEXT", "'area'", "leading zeros"),
    records(
        "numbers for codes",
        pa.table({"origin": [NUMBER], "destination": ["03"]}),
        "OD-TRIPS-NOT-TEXT",
        "trips.parquet",
        "'origin'",
        "leading zeros",
    ),
    records("codes without their zeros", with_rows("1,3"), *EACH_A_FAULT, "lost leading zeros", detail="1 of 4 trips"),
    flows("numbers for codes", {"destination": [NUMBER, 1]}, "OD-TRIPS-NOT-TEXT", "'destination'", "leading zeros"),
    # What is no tree.
    zones("zone twice", "region,zone\na,01\nb,02\na,01\n", "DUPLICATE", "'zone'", detail="'01'"),
    zones("zone in two regions", "region,zone\na,01\nb,01\n", "DUPLICATE", "'zone'", detail="'01'"),
    call(
        "zone list: district in two regions",
        lambda: Geography.from_frame(
            pd.DataFrame({"region": ["a", "b"], "district": ["d", "d"], "zone": ["01", "02"]}),
            ["region", "district", "zone"],
        ),
        "OD-GEOGRAPHY-TWO-PARENTS",
        "level 'district'",
        "level 'region'",
        detail="district 'd' lies in 'a' and 'b'",
    ),
    areas("area twice", [("a", None), ("01", "a"), ("01", "a")], "DUPLICATE", detail="'01'"),
    areas(
        "two parents",
        [("a", None), ("b", None), ("01", "a"), ("01", "b")],
        "TWO-PARENTS",
        detail="'01' lies in 'a' and 'b'",
    ),
    areas("unequal depth", [("a", None), ("01", "a"), ("b", None)], "DEPTH", detail="'b' is at depth 1"),
    areas("cycle", [("a", "b"), ("b", "a")], "CYCLE", "within itself"),
    areas("its own parent", [("a", "a")], "CYCLE", detail="'a'"),
    areas("unlisted parent", [("01", "a")], "PARENT-UNLISTED", detail="'a'"),
    Bad(
        "zone list: separated by semicolons",
        zone_file("zones.csv", "region;zone\na;01\n"),
        "OD-FILE-DELIMITER",
        ("zones.csv", "semicolons"),
        detail="'region;zone'",
    ),
    # Counts.
    *(
        counts_in_csv(what, count)
        for what, count in {
            "negative": f"-{NUMBER}",
            "fractional": f"{NUMBER}.5",
            "NaN": "NaN",
            "infinite": "inf",
            "too large": "9007199254740993",
            "far too large": f"{NUMBER}e300",
            "missing": "",
            "text": CANARY,
        }.items()
    ),
    records(
        "counts of 64 bits",
        pa.table({"origin": ["01"], "destination": ["03"], "n": pa.array([2**53 + 1], pa.uint64())}),
        "OD-TRIPS-COUNT",
        "'trips' holds a number above 2^53",
        detail="row 1 of 1",
        columns=RecordColumns(trips="n"),
    ),
    records(
        "truth values for counts",
        pa.table({"origin": ["01"], "destination": ["03"], "n": [True]}),
        "OD-TRIPS-COUNT",
        "trips.parquet",
        "'n'",
        columns=RecordColumns(trips="n"),
    ),
    *(
        flows(f"{what} count", {"trips": [1, count]}, "OD-TRIPS-COUNT", "'trips'", holds, detail="row 2 of 2")
        for what, count, holds in [
            ("negative", -NUMBER, "negative"),
            ("fractional", NUMBER + 0.5, "fraction"),
            ("NaN", float("nan"), "NaN"),
            ("infinite", float("inf"), "infinite"),
            ("too large", 2**53 + 2, "above 2^53"),
        ]
    ),
    flows("a sum too large", {"trips": [2**53, 1]}, "OD-TRIPS-COUNT", "sum to more than 2^53"),
    flows("complex counts", {"trips": [NUMBER + 0j, 1j]}, "OD-TRIPS-COUNT", "not numbers"),
    flows("text for counts", {"trips": [CANARY, "1"]}, "OD-TRIPS-COUNT", "not numbers"),
    # Time zones: a column of them, or any text with one.
    records(
        "a column of times with a zone",
        pa.table({"origin": ["01"], "destination": [CANARY], "day": [NOON]}),
        "OD-TRIPS-DATE",
        "trips.parquet",
        "'day'",
        columns=DATED,
    ),
    records(
        "mixed time zones",
        "origin,destination,day\n01,03,2001-06-01 12:00:00+02\n01,03,2001-06-01 12:00:00Z\n01,03,2001-06-01\n",
        "OD-TRIPS-FAULTS",
        "another period",
        detail="2 of 3 trips",
        columns=DATED,
    ),
    # Budgets; privacy/test_budget.py has the numbers that are none.
    call("budget: epsilon 0", lambda: Budget(0, "1e-8"), "OD-BUDGET-EPSILON"),
    call("budget: rho below 0", lambda: Budget(rho=Fraction(-1, 3), delta="1e-8"), "OD-BUDGET-RHO"),
    call("budget: a huge text", lambda: Budget(HUGE), "OD-BUDGET-NUMBER", "epsilon"),
    call("budget: delta 1", lambda: Budget(1, 1), "OD-BUDGET-DELTA", "delta"),
    option("delta 0 where the noise is Gaussian", "OD-BUDGET-DELTA", "delta is 0", budget=Budget(epsilon=1)),
    call("budget: shares", lambda: Budget(1, "1e-8", shares=["1/2", "1/3"]), "OD-BUDGET-SHARES", "5/6"),
    option("share of 0", "OD-BUDGET-SHARES", "above 0", budget=Budget(1, "1e-8", shares=[1, 0, 0, 0, 0])),
    call("budget: one share alone", lambda: Budget(1, "1e-8", shares=1), "OD-BUDGET-SHARES"),
    option("shares of another depth", "OD-BUDGET-SHARES", "for 5", budget=Budget(1, "1e-8", shares=["1/2", "1/2"])),
    # The privacy unit.
    call("unit: m = 0", lambda: PrivacyUnit("user", column="id", max_trips=0), "OD-UNIT-MAX-TRIPS", "at least 1"),
    call("unit: m as text", lambda: PrivacyUnit("user", column="id", max_trips="4"), "OD-UNIT-MAX-TRIPS"),
    call("unit: M below m", lambda: of_a_year(max_trips_year=3), "OD-UNIT-MAX-TRIPS-YEAR", "at least max_trips, 4"),
    call("unit: no pattern", lambda: of_a_year(id_pattern=None), "OD-UNIT-ID-PATTERN", "[0-9a-f]{16}"),
    option(
        "users of a year in epsilon",
        "OD-UNIT-YEAR",
        "stability histograms",
        unit=of_a_year(),
        mechanism="stability_histogram",
    ),
    call("unit: blank column", lambda: PrivacyUnit("user", column=" ", max_trips=1), "OD-UNIT-OPTIONS", "column"),
    # Unknown names, each with the nearest known one.
    call("unknown unit", lambda: PrivacyUnit("usr"), "OD-UNIT-UNKNOWN", "'usr'", "did you mean 'user'?"),
    call("unit in another case", lambda: PrivacyUnit("TRIP"), "OD-UNIT-UNKNOWN", "'TRIP'", "did you mean 'trip'?"),
    call("unknown relation", lambda: PrivacyUnit("trip", "bound"), "OD-UNIT-UNKNOWN", "did you mean 'bounded'?"),
    call("unknown shares", lambda: Budget(1, "1e-8", shares="unifrm"), "OD-BUDGET-SHARES", "did you mean 'uniform'?"),
    call("unknown conversion", lambda: Budget(1, "1e-8", conversion="tigt"), "OD-BUDGET-CONVERSION", "'tight'?"),
    call("a number for a conversion", lambda: Budget(1, "1e-8", conversion=3), "OD-BUDGET-CONVERSION", "3", "tight"),
    option("unknown mechanism", "OD-MECHANISM-UNKNOWN", "did you mean 'inftda'?", mechanism="inf_tda"),
    option("mechanism in another case", "OD-MECHANISM-UNKNOWN", "did you mean 'inftda'?", mechanism="InfTDA"),
    call(
        "unknown threshold",
        lambda: StabilityHistogram("lest"),
        "OD-MECHANISM-OPTION",
        "did you mean 'least'?",
    ),
    option(
        "a threshold that does not keep delta",
        "OD-MECHANISM-OPTION",
        "the threshold 17 of bun_nissim_stemmer does not keep delta for 4 trips per unit; the least one is 19",
        mechanism=StabilityHistogram("bun_nissim_stemmer"),
        unit=PrivacyUnit("user", column="user", max_trips=4, neighbours="bounded"),
        budget=Budget(10, "1e-8"),
    ),
    option("unknown tree", "OD-TREE-UNKNOWN", "did you mean 'destination'?", tree="destinations"),
    option("unknown noise", "OD-NOISE-UNKNOWN", "did you mean 'opendp'?", noise="open-dp"),
    option("a threshold that is no share", "OD-FAULT-THRESHOLD", fault_threshold=-1),
    option("a threshold that is no number", "OD-FAULT-THRESHOLD", fault_threshold=float("nan")),
    option("all of the budget for area totals", "OD-AREA-TOTALS", "is 1;", area_totals=1),
    option(
        "area totals by a mechanism that does not use them",
        "OD-AREA-TOTALS",
        "only mechanism 'inftda_refined' uses them",
        area_totals=0.1,
        mechanism="inftda",
    ),
    call("unknown level", lambda: GEOGRAPHY.level_number("zones"), "OD-LEVEL-UNKNOWN", "did you mean 'zone'?"),
    call(
        "padded unknown zone",
        lambda: Geography.from_frame(ZONES, LEVELS, unknown=" 01"),
        "OD-GEOGRAPHY-UNKNOWN-ZONE",
        "' 01'",
        detail="did you mean '01'?",
    ),
    call("padded level", lambda: Geography.from_frame(ZONES, ["region", "zone "]), "OD-GEOGRAPHY-LEVELS", "'zone '"),
    call("unknown release", lambda: declaration("us_flight"), "OD-RELEASE-UNKNOWN", "did you mean 'us_flights'?"),
    # Not UTF-8.
    Bad(
        "zone list: Latin-1",
        zone_file("zones.csv", "region,zone\nÉvreux,01\n".encode("latin-1")),
        "OD-FILE-NOT-UTF8",
        ("zones.csv",),
    ),
    Bad(
        "zone list: UTF-16",
        zone_file("zones.csv", "region,zone\na,01\n".encode("utf-16")),
        "OD-FILE-NOT-UTF8",
        ("zones.csv",),
    ),
    records("Latin-1", f"{with_rows()}{CANARY},É\n".encode("latin-1"), "OD-FILE-UNREADABLE", "trips.csv", "UTF-8"),
    records("UTF-16", with_rows(f"{CANARY},03").encode("utf-16"), "OD-FILE-UNREADABLE", "trips.csv", "UTF-8"),
    # Another kind of file than its name or its declaration says.
    records("semicolons", f"origin;destination\n{CANARY};03\n", "OD-TRIPS-COLUMN", "trips.csv", 'delimiter: ";"'),
    records("Parquet by another name", b"PAR1" + CANARY.encode(), "OD-FILE-UNREADABLE", "trips.csv", ".parquet"),
    records("workbook", workbook(), "OD-FILE-UNREADABLE", "trips.csv", "is an Excel workbook", "save its sheet as CSV"),
    Bad("zone list: workbook", zone_file("zones.csv", workbook()), "OD-FILE-UNREADABLE", ("zones.csv", "as CSV UTF-8")),
    Bad(
        "records: damaged gzip",
        files(lambda path: path.write_bytes(gzip.compress(with_rows().encode())[:-9]), "trips.csv.gz"),
        "OD-FILE-UNREADABLE",
        ("trips.csv.gz", "truncated or damaged", "download the file again"),
    ),
    Bad(
        "records: damaged Parquet",
        files(lambda path: path.write_bytes(b"PAR1" + CANARY.encode() + b"PAR1"), "trips.parquet"),
        "OD-FILE-UNREADABLE",
        ("trips.parquet", "cannot be read as Parquet"),
    ),
    records("gzip by another name", gzip.compress(CANARY.encode()), "OD-FILE-UNREADABLE", "trips.csv", ".gz"),
    # A huge field, and rows that are none.
    zones("huge code", f"region,zone\na,01\nb,{HUGE}\n", "LONG-CODE", "'zone'", detail="3000000 characters"),
    records("huge field", with_rows(f"{CANARY}{HUGE},03"), "OD-FILE-UNREADABLE", "trips.csv", detail="Line: 5"),
    records(
        "a row too long", with_rows(f"01,03,{CANARY}", "01,03"), "OD-FILE-UNREADABLE", "trips.csv", detail="Line: 5"
    ),
    records("a row too short", with_rows(CANARY, "01,03"), "OD-FILE-UNREADABLE", "trips.csv", detail="Line: 5"),
    # Formulas: in codes and in names of levels, which are published as they are.
    *(
        zones(f"formula {code!r}", f'region,zone\na,"{code}"\n', "FORMULA", "'zone'")
        for code in (
            "=1+1",
            "+1",
            "-5",
            "@SUM(A1)",
            "x,=1+1",
            "x;=1+1",
            'x"" =1+1',
            "x\t=1",
            "x\r=1",
            "\uff1d1+1",
            "\u200b=1",
        )
    ),
    zones("formula after a tab", "region,zone\na,\t=1+1\n", "PADDED-CODE", "'zone'"),
    zones("formula after a line end", 'region,zone\na,"\r=1+1"\n', "PADDED-CODE", "'zone'"),
    call(
        "formula in the name of a level",
        lambda: Geography.from_frame(ZONES.rename(columns={"zone": "=zone"}), ["region", "=zone"]),
        "OD-GEOGRAPHY-FORMULA",
        "'level names'",
        detail="'=zone'",
    ),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what[:60])
def test_bad_input_is_refused_in_one_line(tmp_path, bad):
    with pytest.raises(OdError) as caught:
        bad.read(tmp_path)
    error = caught.value
    line = str(error)
    assert error.code == bad.code
    assert "\n" not in line
    assert len(line) < 500
    assert line.startswith(f"{bad.code}: ")
    assert "nothing was spent; next: " in line
    for name in bad.names:
        assert name in line
    shown = repr(error) + "".join(traceback.format_exception(error))
    assert CANARY.lower() not in shown.lower()
    assert str(NUMBER) not in shown
    if bad.detail is not None:
        assert bad.detail in error.confidential_detail
        assert bad.detail not in shown


def test_every_bad_input_stands_once():
    assert len({bad.what for bad in BAD}) == len(BAD)


NO_TRIPS: dict[str, list[str]] = {"origin": [], "destination": []}


@pytest.mark.parametrize(
    ("table", "geography", "expected"),
    [
        (NO_TRIPS, GEOGRAPHY, {}),
        (NO_TRIPS | {"trips": []}, GEOGRAPHY, {}),
        ({"origin": ["01"], "destination": ["03"], "trips": [0]}, GEOGRAPHY, {}),
        ({"origin": ["z"] * 3, "destination": ["z"] * 3}, "z", {("z", "z"): 3}),
        (NO_TRIPS, "z", {}),
        (
            {"origin": ["01", "02", "01"], "destination": ["03", "01", "03"], "trips": [2, 1, 40]},
            GEOGRAPHY,
            {("01", "03"): 42, ("02", "01"): 1},
        ),
        ({"origin": ["01"], "destination": ["03"], "trips": [2**53]}, GEOGRAPHY, {("01", "03"): 2**53}),
        ({"origin": ["01"], "destination": ["03"], "trips": [3.0]}, GEOGRAPHY, {("01", "03"): 3}),
        (
            {"origin": ["01"] * 999 + [None], "destination": ["03"] * 1000},
            GEOGRAPHY,
            {("01", "03"): 999},
        ),
    ],
    ids=["none", "no flows", "a count of 0", "one zone", "one zone, none", "summed", "2^53", "whole floats", "a fault"],
)
def test_what_looks_bad_and_is_valid(table, geography, expected):
    """Released without noise, so that every trip can be seen to be there."""
    if geography == "z":
        geography = Geography.from_frame(pd.DataFrame({"zone": ["z"]}), ["zone"])
    flows = released(pd.DataFrame(table), geography, noise=no_noise()).flows
    assert {(o, d): n for o, d, n in flows.itertuples(index=False)} == expected


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("origin,destination,n\n", {}),
        ("origin,destination,n\n01,03,0\n", {}),
        ("origin,destination,n\n01,03,2\n02,01,1\n01,03,40\n", {("01", "03"): 42, ("02", "01"): 1}),
        (f"\ufefforigin,destination,n\r\n01,03,{2**53}\r\n", {("01", "03"): 2**53}),
        ("origin,destination,n\n01,03,3.0\n", {("01", "03"): 3}),
    ],
    ids=["none", "a count of 0", "summed", "2^53", "whole floats"],
)
def test_what_looks_bad_in_a_file_and_is_valid(tmp_path, text, pairs):
    (tmp_path / "trips.csv").write_text(text, encoding="utf-8", newline="")
    load_records(tmp_path / "trips.csv", RecordColumns(trips="n"), "2001-06", tmp_path / "records.parquet")
    plan = plan_release(GEOGRAPHY, unit=TRIP, budget=BUDGET, acceptance=NO_FAULTS)
    counts = trip_counts_of(tmp_path / "records.parquet", plan.tree)
    flows = run_plan(plan, counts, no_noise(), MemoryMeasurements()).flows
    assert {(o, d): n for o, d, n in flows.itertuples(index=False)} == pairs


@pytest.mark.parametrize(
    "code", ["01", "A-1", "St. John's", "a+b", "NA", "null", "1e4", "x=y", "é", "字", "x" * 250, 'q"x', "00,11"]
)
def test_codes_that_are_no_formulas_are_taken(tmp_path, code):
    pd.DataFrame({"region": ["a"], "zone": [code]}).to_csv(tmp_path / "zones.csv", index=False)
    assert settings(tmp_path).geography.zone_list.geography(tmp_path).zones == (code,)
