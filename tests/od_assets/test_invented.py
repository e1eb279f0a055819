"""Invented records: which a run takes as they are, which stand beside no real ones, and which say nothing of any."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from od_assets.cli.diagnosis import report_records
from od_assets.series.invented import MARK, invent_records, is_invented, list_declared_files, write_invented_records
from od_assets.series.reading import read_declared_series
from od_core import OdError
from od_core.periods import Period
from tests.od_assets.cli.commands import printed
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, GROUP_ATTRIBUTES, Project
from tests.projects import declare_domain

JANUARY, FEBRUARY = Period("2001-01"), Period("2001-02")


@pytest.fixture
def empty(project) -> Project:
    """The project with its declaration and its zones, and without records."""
    (project.root / "2001-01.csv").unlink()
    project.declare(ATTRIBUTES | {"trips": ATTRIBUTES["trips"] | {"files": "lake/{period}.csv"}})
    declare_domain(project.defs, DOMAIN)
    return project


def series():
    return read_declared_series("trips")


def test_records_have_the_declared_columns_within_the_period_and_between_listed_zones(empty):
    zones = set(pd.read_csv(empty.root / "zones.csv")["zone"])
    rows = invent_records(series(), FEBRUARY, rows=5000)
    assert {*rows} == {"origin", "destination", "date"}
    assert len(rows) == 5000
    assert {*rows["origin"], *rows["destination"]} <= zones
    assert rows["date"].min() >= pd.Timestamp("2001-02-01")
    assert rows["date"].max() < pd.Timestamp("2001-03-01")
    assert rows["date"].dt.day.nunique() == 28


def test_the_same_seed_makes_the_same_records_and_others_make_others(empty):
    first = invent_records(series(), JANUARY, seed=3)
    assert invent_records(series(), JANUARY, seed=3).equals(first)
    assert not invent_records(series(), JANUARY, seed=4)["origin"].equals(first["origin"])
    assert not invent_records(series(), FEBRUARY, seed=3)["origin"].equals(first["origin"])


def test_zones_have_very_different_numbers_of_trips(empty):
    """If six zones were alike, twice as many trips from one as from another would be 20 standard deviations away."""
    trips = invent_records(series(), JANUARY, rows=20_000).value_counts("origin")
    assert trips.max() > 2 * trips.min()


def test_sizes_of_groups_add_up_to_the_public_numbers_of_groups(project):
    numbered = {"groups": {"file": "numbers.csv", "area": "zone", "groups": "households"}}
    columns = {"area": "z", "size": "persons", "groups": "n"}
    project.declare(
        GROUP_ATTRIBUTES | numbered | {"trips": {"files": "{period}.csv", "columns": columns}}, "OdGroupSizes"
    )
    declare_domain(project.defs, DOMAIN)
    public = pd.read_csv(project.root / "zones.csv").assign(households=np.arange(6) * 7)
    public.to_csv(project.root / "numbers.csv", index=False)
    rows = invent_records(read_declared_series("departures"), JANUARY)
    assert rows.groupby("z")["n"].sum().to_dict() == dict(zip(public["zone"][1:], range(7, 42, 7), strict=True))
    assert rows["persons"].nunique() > 1


@pytest.mark.parametrize("ending", ["csv", "parquet", "csv.gz"])
def test_what_the_command_writes_is_released(empty, ending):
    trips = ATTRIBUTES["trips"] | {"files": f"lake/{{period}}.{ending}"}
    if ending == "csv":
        trips |= {"delimiter": ";", "encoding": "utf-16"}
    empty.declare(ATTRIBUTES | {"trips": trips})
    said = printed("invent", "trips", "--period", "2001-01", "--rows", "700")
    assert said.endswith(f" {empty.root / f'lake/2001-01.{ending}'}\n")
    empty.publish(series())
    flows = pd.read_parquet(empty.var / "releases/trips/2001-01/r1/tables/flows.parquet")
    assert flows.query("origin_level == 'all' and destination_level == 'all'")["trips"].tolist() == [700]


def write(to: Path | None = None, period: Period = FEBRUARY) -> Path:
    return write_invented_records(series(), period, to)


def test_no_file_is_replaced_and_nothing_is_written_beside_real_records(empty):
    """Whether they are of the series or of another one, in the declared folder, or behind a link."""
    written = write()
    assert is_invented(written)
    with pytest.raises(OdError, match=r"OD-INVENT: .*2001-02\.csv exists"):
        write()
    assert is_invented(write(period=JANUARY))  # beside invented ones
    (empty.root / "lake" / "2001-01.csv").unlink()
    (empty.root / "lake" / "2001-01.csv").write_text("origin,destination,date\nZ00,Z01,2001-01-01\n")
    assert not is_invented(empty.root / "lake" / "2001-01.csv")  # a real file of the same name
    written.unlink()
    before = {path: path.read_bytes() for path in (empty.root / "lake").iterdir()}
    (empty.root / "link").symlink_to(empty.root / "lake")
    for to in (None, empty.root / "lake" / "more.csv", empty.root / "link" / "more.csv"):
        with pytest.raises(OdError, match=r"OD-INVENT: .*2001-01\.csv is not known to be invented"):
            write(to)
    assert {path: path.read_bytes() for path in (empty.root / "lake").iterdir()} == before
    assert is_invented(write(empty.root / "elsewhere" / "a.parquet"))
    (empty.root / "dangling.csv").symlink_to(empty.root / "nowhere.csv")
    with pytest.raises(OdError, match=r"dangling\.csv exists"):
        write(empty.root / "dangling.csv")


def test_a_file_that_arrives_while_records_are_invented_stays(empty, monkeypatch):
    target = empty.root / "lake" / "2001-02.csv"

    def arrive(*given):
        target.parent.mkdir()
        target.write_text("real")
        return pd.DataFrame({"a": [1]})

    monkeypatch.setattr("od_assets.series.invented.invent_records", arrive)
    with pytest.raises(OdError, match=r"OD-INVENT: .*2001-02\.csv exists"):
        write()
    assert target.read_text() == "real"
    assert [path.name for path in target.parent.iterdir()] == ["2001-02.csv"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trips": {"files": "{period}.txt", "reader": "istat"}}, "reader: istat"),
        (
            {"trips": {"files": "{period}.json", "reader": "mds", "columns": {"origin": "a", "destination": "b"}}},
            "reader: mds",
        ),
        ({"trips": {"files": "a.duckdb", "table": "b", "columns": {"date": "c"}}}, "table .of a DuckDB file."),
        ({"possible": {"within_zone": False}}, "possible"),
        ({"known": {"file": "a.csv", "level": "zone", "side": "origin", "error": "0.1"}}, "known"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(empty, changes, said):
    empty.declare(ATTRIBUTES | {"schedule": None} | changes)
    with pytest.raises(OdError, match=f"OD-INVENT: no records are invented for trips, which declares {said}"):
        write()
    assert not (empty.root / "lake").exists()


def test_in_production_no_records_are_invented(empty, monkeypatch, refused):
    monkeypatch.setenv("OD_ENVIRONMENT", "production")
    assert "OD-INVENT: this is the environment production" in refused("invent", "trips", "--period", "2001-01")
    assert not (empty.root / "lake").exists()


def test_doctor_says_which_records_a_series_reads_and_how_many_are_invented(empty):
    assert report_records(series()).what.endswith(
        "trips: lake/{period}.csv, 0 found, 0 of them invented; automation stopped"
    )
    (written := write()).with_name("2001-01.csv").write_bytes(written.read_bytes())
    assert len(list_declared_files(series())) == 2
    assert "2 found, 1 of them invented" in report_records(series()).what
    (empty.root / "lake" / MARK).unlink()
    assert "2 found, 0 of them invented" in report_records(series()).what
