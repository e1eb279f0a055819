"""Series whose records are in a table of PostgreSQL, Delta Lake or Iceberg are released as those in files."""

import datetime
import json

import pyarrow as pa
import pytest
from pydantic import ValidationError

from od_assets.cli.diagnosis import report_records
from od_assets.resources.warehouse import verify_published_releases
from od_core.errors import OdError
from tests.stored_tables import Stores

from .conftest import Project, failure_text, records

STORES = ("postgres", "delta", "iceberg", "sqlite")
MONTH = "2001-01"


def make_days(date: str = "2001-01-15", number: int = 2000) -> pa.Table:
    """The records of a day, with columns of the types that databases have."""
    types = pa.schema([("date", pa.date32()), ("origin", pa.string()), ("destination", pa.string())])
    frame = records(number).assign(date=datetime.date.fromisoformat(date))
    return pa.Table.from_pandas(frame, types, preserve_index=False)


def declare_table(project: Project, monkeypatch, stores: Stores, store: str, **changes):
    """A series of the records of a table, of two months; the address of PostgreSQL has a password."""
    _table, section = stores.write(store, pa.concat_tables([make_days(), make_days("2001-02-15")]))
    if store == "postgres":
        monkeypatch.setenv("OD_TRIPS", stores.address.replace("postgres@", "postgres:hunter2@"))
    place = {f"trips__{name}": value for name, value in section.items()}
    return project.component(trips__files="", **place, trips__columns={"date": "date"}, **changes)


@pytest.mark.representatives("sqlite")
@pytest.mark.parametrize("store", STORES)
def test_each_month_of_a_table_is_released_and_its_certificate_names_the_table(
    store,
    project,
    stores,
    monkeypatch,
):
    series = declare_table(project, monkeypatch, stores, store)
    for month in (MONTH, "2001-02"):
        project.publish(series, month)
    project.publish(series)  # again: nothing is drawn twice
    assert len(list((project.var / "releases" / "trips").glob("*/r1"))) == 2
    certificate = json.loads((project.var / "releases" / "trips" / MONTH / "r1" / "certificate.json").read_text())
    reading = certificate["records"]
    assert (
        reading["table"]
        == {
            "postgres": {"store": "PostgreSQL", "table": "mobility.trips"},
            "delta": {"store": "Delta Lake", "table": "trips"},
            "iceberg": {"store": "Iceberg", "table": "mobility.trips"},
            "sqlite": {"store": "SQLite", "table": "trips"},
        }[store]
    )
    assert reading["outside_period"] == "drop"
    named = f"{reading['table']['store']} table {reading['table']['table']}; automation stopped"
    assert report_records(series).what == f"records of trips: {named}"
    snapshot = reading.get("snapshot")
    if store == "delta":
        assert snapshot == "0"
    elif store == "iceberg":
        assert snapshot == str(stores.catalog.load_table("mobility.trips").current_snapshot().snapshot_id)
    else:
        assert snapshot is None
    assert [row["faults"] for row in verify_published_releases("trips")] == [{}, {}]
    hidden = [path for path in project.var.rglob("*") if path.is_file() and b"hunter2" in path.read_bytes()]
    assert hidden == []


@pytest.mark.representatives("sqlite")
@pytest.mark.parametrize("store", STORES)
def test_a_table_that_has_changed_since_a_draw_is_a_changed_input(store, project, stores, monkeypatch):
    series = declare_table(project, monkeypatch, stores, store)
    project.publish(series)
    if store == "iceberg":
        stores.catalog.drop_table("mobility.trips")
    stores.write(store, make_days(number=100))
    again = project.run(series)
    assert not again.success
    assert "OD-REPLAY-INPUT-CHANGED" in failure_text(again)


def test_a_table_that_cannot_be_read_stops_the_run_before_anything_is_charged(project, stores, monkeypatch):
    series = declare_table(project, monkeypatch, stores, "postgres")
    monkeypatch.setenv("OD_TRIPS", "postgresql://nobody:hunter2@127.0.0.1:1/trips")
    other = project.component(
        trips__files="",
        trips__postgres={"address": "{{ env.OD_TRIPS }}", "table": "mobility.trips"},
        trips__columns={"date": "date"},
    )
    text = failure_text(project.run(other))
    assert "OD-TABLE-UNREADABLE" in text
    assert "hunter2" not in text + repr(other)
    assert "nothing was spent" in text
    assert series.stored_table.name in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trips__files": "{period}.csv"}, "name one of files, postgres, delta, iceberg and sqlite"),
        ({"trips__delta": None}, "name one of files, postgres, delta, iceberg and sqlite"),
    ],
)
def test_records_are_in_one_place(changes, message, project):
    given = {"trips__files": "", "trips__delta": {"path": "lake/trips"}, "trips__columns": {"date": "date"}}
    with pytest.raises(ValidationError, match=message):
        project.component(**given | changes)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"trips__reader": "tlc"}, "OD-READER-OPTIONS"),
        ({"trips__delimiter": ";"}, "OD-READER-OPTIONS"),
        ({"trips__table": "trips"}, "OD-READER-OPTIONS"),
        ({"trips__columns": {}}, "OD-TRIPS-FILES"),
        ({"arrivals": {}}, "OD-ARRIVALS"),
    ],
)
def test_options_of_files_are_refused_for_a_table(changes, code, project):
    given = {"trips__files": "", "trips__delta": {"path": "lake/trips"}, "trips__columns": {"date": "date"}}
    with pytest.raises(OdError, match=code):
        project.component(**given | changes).require_valid()
