"""A release of users through Dagster: the bound holds in what is counted, and no user id leaves the closed folder."""

import json

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_assets.components import OdRelease
from od_core import FlowTree, PrivacyUnit
from od_core.flows.staging import StagedRelease
from od_core.ledger.confidential import ConfidentialFolder
from od_core.records.counting import count_trips
from tests.od_assets.canary import USER, leaks
from tests.od_assets.conftest import Project, failure_text, records

UNIT = PrivacyUnit("user_period", "bounded", column="person", max_trips=2)


def users(number: int = 2000) -> pd.DataFrame:
    """A hundred people of twenty trips; one of them has an unmistakable id, one record has none."""
    people = [USER if k % 100 == 7 else f"p{k % 100}" for k in range(number)]
    return records(number).assign(person=[None, *people[1:]])


def of_users(project: Project, **changes: str) -> OdRelease:
    of_people = {"domain__unit": "user_period", "domain__column": "person", "bounds__max_trips": 2}
    return project.component(**of_people, trips__fault_threshold="1/1000", **changes)


def run(project: Project) -> dg.ExecuteInProcessResult:
    return project.run(of_users(project))


def test_at_most_m_trips_of_a_user_are_counted_and_replayed(project):
    """The same trips as from a data frame with the folder's key and the partition as period."""
    project.write_records(users())
    assert run(project).success
    staged = project.var / "confidential" / "trips" / "2001-01" / "r1"
    assert pq.read_schema(staged / "raw_trips.parquet").names == ["date", "origin", "destination", "in_period", "user"]
    counts = StagedRelease(staged).open_trip_counts().read_all()
    assert counts.total == 200
    geography = project.component().require_valid().read_geography().origin
    key = ConfidentialFolder(project.var / "confidential").read_or_make_key()
    expected = count_trips(
        users(), FlowTree(geography, geography), unit=UNIT, key=key, period="2001-01", one_row_a_trip=True
    )
    np.testing.assert_array_equal(counts.rank, expected.rank)
    np.testing.assert_array_equal(counts.before, expected.before)
    [certificate] = (project.var / "releases").rglob("certificate.json")
    first = certificate.read_bytes()
    assert json.loads(first)["contribution_bound"] == 2

    project.write_records(users().sample(frac=1, random_state=1))
    assert run(project).success
    assert certificate.read_bytes() == first
    assert leaks(project.root) == []


@pytest.mark.parametrize("column", ["person", "persons"])
def test_a_refused_month_of_users_shows_no_id(project, column):
    """Too many records without an id, which the blocking check finds; no column of ids at all."""
    project.write_records(
        users().replace({"person": {f"p{k}": None for k in range(50)}}).rename(columns={"person": column})
    )
    result = run(project)
    assert not result.success
    assert ("OD-TRIPS-COLUMN" in failure_text(result)) == (column == "persons")
    assert USER not in failure_text(result)
    assert leaks(project.root) == []


@pytest.mark.parametrize("begun_by", ["tight", "exact"])
def test_a_month_that_an_earlier_version_began_goes_on_with_its_noise(project, begun_by):
    """Where ``exact`` was declared, it reserved ``tight``. Its certificate states no exact epsilon."""
    project.write_records(users())
    begun = ("geography", "raw_trips", "trip_counts", "levels/noisy_measurement_0")
    assert project.materialize(*begun, component=of_users(project, privacy__conversion=begun_by)).success
    assert project.run(of_users(project, privacy__conversion="exact")).success
    [certificate] = (project.var / "releases").rglob("certificate.json")
    facts = json.loads(certificate.read_bytes())
    assert facts["plan"]["conversion"] == begun_by
    assert (facts["spent"]["epsilon_exact"] is None) == (begun_by == "tight")
    assert facts["spent"]["epsilon"] <= float(facts["plan"]["epsilon"])
