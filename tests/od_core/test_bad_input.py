"""Bad input of every kind, which is refused with one plain line; and what looks bad and is valid.

Each is refused in one line that names the file, the column or the field, and what to do; of confidential records it
quotes nothing, and the row stands in the confidential detail alone. Nothing is drawn before a refusal. Faults of zone
and area lists are in ``geography/test_geography.py``, and those of files of records in ``records``.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from od_core import Budget, FlowTree, Geography, OdError, PrivacyUnit, Release, StabilityHistogram, release_flows
from od_core.records.counting import count_records_in_memory
from od_core.records.load import RecordColumns, load_records
from od_core.records.zone_lists import ZoneList
from tests.od_core.doubles import NoiseNotWanted, no_noise
from tests.od_core.files.workbooks import WORKBOOKS

pytestmark = pytest.mark.usefixtures("one_scratch_database")

CANARY = "QX-CANARY-7731"
NUMBER = 7731
LEVELS = ["region", "zone"]
GEOGRAPHY = Geography.from_frame(pd.DataFrame({"region": ["a", "a", "b"], "zone": ["01", "02", "03"]}), LEVELS)
TRIP, BUDGET = PrivacyUnit("trip"), Budget(epsilon=1, delta="1e-8")


@dataclass(frozen=True)
class Bad:
    """An input, read in a folder; the code of its refusal, what the line names, and what only the detail names."""

    what: str
    read: Callable[[Path], object]
    code: str
    names: tuple[str, ...] = ()
    detail: str | None = None


def zones(what: str, content: str | bytes, code: str, *names: str, detail: str | None = None) -> Bad:
    """A fault in a CSV of zones."""

    def read(folder: Path) -> object:
        (folder / "zones.csv").write_bytes(content.encode() if isinstance(content, str) else content)
        return ZoneList("zones.csv", tuple(LEVELS)).read_geography(folder)

    return Bad(f"zone list: {what}", read, code, ("zones.csv", *names), detail)


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
        return count_records_in_memory(target, FlowTree(GEOGRAPHY, GEOGRAPHY))

    return Bad(f"records: {what}", read, code, names, detail)


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


DATED = RecordColumns(date="day")
EACH_A_FAULT = ("OD-TRIPS-FAULTS", "not in the zone list")
NOT_TEXT = "OD-GEOGRAPHY-NOT-TEXT"

BAD = [
    # Files and columns that are absent, or of another kind than their name or their declaration says.
    records("missing file", None, "OD-FILE-MISSING", "trips.csv"),
    records("missing column", f"origin,to\n{CANARY},03\n", "OD-TRIPS-COLUMN", "trips.csv", "'destination'"),
    records("no dates", with_rows(header="origin,destination,day"), "OD-TRIPS-FAULTS", "period", columns=DATED),
    records("no date column", with_rows(), "OD-TRIPS-COLUMN", "trips.csv", "'day'", columns=DATED),
    call(
        "flows: missing column",
        lambda: released(pd.DataFrame({"origin": ["01"], "destinatoin": [CANARY]})),
        "OD-TRIPS-COLUMN",
        "'destination' (did you mean 'destinatoin'?)",
    ),
    records("semicolons", f"origin;destination\n{CANARY};03\n", "OD-TRIPS-COLUMN", "trips.csv", 'delimiter: ";"'),
    records(
        "workbook",
        WORKBOOKS["xlsx"],
        "OD-FILE-UNREADABLE",
        "trips.csv",
        "is an Excel workbook",
        "save its sheet as CSV",
    ),
    zones("workbook", WORKBOOKS["xlsx"], "OD-FILE-UNREADABLE", "as CSV UTF-8"),
    # Codes that a program has changed, or that no zone has. Each of a record is a fault of that record.
    zones("columns twice", "region,zone,zone\na,01,01\n", "OD-GEOGRAPHY-COLUMN", "columns 2 and 3", detail="'zone'"),
    zones("numbers of a spreadsheet", "region,zone\na,01\na,2.5E+11\n", NOT_TEXT, "'zone'", detail="'2.5E+11'"),
    zones("numbers of R", "region,zone\na,01\n1e+05,02\n", NOT_TEXT, "'region'", "in scientific notation"),
    *(
        records(f"{what} code", with_rows(f'01,"{code}"'), *EACH_A_FAULT, detail="1 of 4 trips")
        for what, code in {"blank": "", "padded": " 01", "cased": CANARY.lower(), "unlisted": CANARY}.items()
    ),
    flows("NULL code", {"origin": [None, "01"]}, *EACH_A_FAULT, detail="1 of 2 trips"),
    records("codes without their zeros", with_rows("1,3"), *EACH_A_FAULT, "lost leading zeros", detail="1 of 4 trips"),
    records(
        "numbers for codes",
        pa.table({"origin": [NUMBER], "destination": ["03"]}),
        "OD-TRIPS-NOT-TEXT",
        "trips.parquet",
        "'origin'",
        "leading zeros",
    ),
    flows("numbers for codes", {"destination": [NUMBER, 1]}, "OD-TRIPS-NOT-TEXT", "'destination'", "leading zeros"),
    # Counts.
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
    # Options that do not fit together; those of budgets and units alone are in ``privacy``.
    call("budget: a huge text", lambda: Budget("x" * 3_000_000), "OD-BUDGET-NUMBER", "epsilon"),
    call("budget: one share alone", lambda: Budget(1, "1e-8", shares=1), "OD-BUDGET-SHARES"),
    option("delta 0 where the noise is Gaussian", "OD-BUDGET-DELTA", "delta is 0", budget=Budget(epsilon=1)),
    option("share of 0", "OD-BUDGET-SHARES", "above 0", budget=Budget(1, "1e-8", shares=[1, 0, 0, 0, 0])),
    option("shares of another depth", "OD-BUDGET-SHARES", "for 5", budget=Budget(1, "1e-8", shares=["1/2", "1/2"])),
    option(
        "users of a year in epsilon",
        "OD-UNIT-YEAR",
        "stability histograms",
        unit=PrivacyUnit("user_year", column="id", max_trips=4, max_trips_year=9, id_pattern="[0-9]+"),
        mechanism="stability_histogram",
    ),
    option(
        "a threshold that does not keep delta",
        "OD-MECHANISM-OPTION",
        "the threshold 17 of bun_nissim_stemmer does not keep delta for 4 trips per unit; the least one is 19",
        mechanism=StabilityHistogram("bun_nissim_stemmer"),
        unit=PrivacyUnit("user", column="user", max_trips=4, neighbours="bounded"),
        budget=Budget(10, "1e-8"),
    ),
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
    # Unknown names, each with the nearest known one.
    call("unknown unit", lambda: PrivacyUnit("usr"), "OD-UNIT-UNKNOWN", "'usr'", "did you mean 'user'?"),
    call("unknown relation", lambda: PrivacyUnit("trip", "bound"), "OD-UNIT-UNKNOWN", "did you mean 'bounded'?"),
    call("unknown shares", lambda: Budget(1, "1e-8", shares="unifrm"), "OD-BUDGET-SHARES", "did you mean 'uniform'?"),
    call("unknown conversion", lambda: Budget(1, "1e-8", conversion="tigt"), "OD-BUDGET-CONVERSION", "'tight'?"),
    call("a number for a conversion", lambda: Budget(1, "1e-8", conversion=3), "OD-BUDGET-CONVERSION", "3", "tight"),
    call("unknown threshold", lambda: StabilityHistogram("lest"), "OD-MECHANISM-OPTION", "did you mean 'least'?"),
    option("unknown mechanism", "OD-MECHANISM-UNKNOWN", "did you mean 'inftda'?", mechanism="inf_tda"),
    option("mechanism in another case", "OD-MECHANISM-UNKNOWN", "did you mean 'inftda'?", mechanism="InfTDA"),
    option("unknown tree", "OD-TREE-UNKNOWN", "did you mean 'destination'?", tree="destinations"),
    option("unknown noise", "OD-NOISE-UNKNOWN", "did you mean 'opendp'?", noise="open-dp"),
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
        ({"origin": ["01"] * 999 + [None], "destination": ["03"] * 1000}, GEOGRAPHY, {("01", "03"): 999}),
    ],
    ids=["none", "no flows", "a count of 0", "one zone", "one zone, none", "summed", "2^53", "whole floats", "a fault"],
)
def test_what_looks_bad_and_is_valid(table, geography, expected):
    """Released without noise, so that every trip can be seen to be there."""
    if geography == "z":
        geography = Geography.from_frame(pd.DataFrame({"zone": ["z"]}), ["zone"])
    flows = released(pd.DataFrame(table), geography, noise=no_noise()).flows
    assert {(o, d): n for o, d, n in flows.itertuples(index=False)} == expected
