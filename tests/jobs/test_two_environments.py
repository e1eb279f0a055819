"""Two environments that point at one ledger: the second is refused before anything is charged to it."""

import json

import pytest

from od_assets.cli.diagnosis import inspect_environment
from od_assets.resources.warehouse import Warehouse
from od_core import Ledger
from tests.od_assets.cli.commands import refusal
from tests.od_assets.conftest import ATTRIBUTES, failure_text, records
from tests.od_core.ledger.ledger_rows import rows


def entries(project) -> int:
    return len(rows(project.var / "ledger.sqlite"))


@pytest.mark.parametrize("other", ["staging", None])
def test_a_ledger_is_charged_by_the_environment_that_named_itself_first(project, monkeypatch, other):
    """By none with another name, and by none without a name. What was published stays, and is verified."""
    project.declare(ATTRIBUTES)
    monkeypatch.setenv("OD_ENVIRONMENT", "production")
    project.publish()
    assert [
        json.loads(row["content"]) for row in rows(project.var / "ledger.sqlite") if row["kind"] == "ENVIRONMENT"
    ] == [{"name": "production"}]
    assert inspect_environment(Warehouse()).ok
    before = entries(project)
    if other is None:
        monkeypatch.delenv("OD_ENVIRONMENT")
    else:
        monkeypatch.setenv("OD_ENVIRONMENT", other)
    project.write_records(records().assign(date="2001-02-03"), "2001-02")
    refused = failure_text(project.run(period="2001-02"))
    assert "OD-LEDGER-ENVIRONMENT: the ledger is that of environment 'production'" in refused
    project.write_records(records(100))  # other records of a month that was drawn: they are not read
    assert "OD-LEDGER-ENVIRONMENT" in failure_text(project.run())
    assert refusal("plan", "trips").code == "OD-LEDGER-ENVIRONMENT"
    assert "'production'" in str(inspect_environment(Warehouse()).fault)
    assert entries(project) == before
    assert Ledger(project.var / "ledger.sqlite").verify() == before
