"""A month of records with weights: declared, counted, published, read back and verified."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from od_assets.resources.warehouse import verified
from od_core import open_release
from od_core.errors import OdError
from tests.od_assets.conftest import Project, records

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "certificate.schema.json"
WEIGHTED = {
    "trips__columns": {"date": "date", "weight": "expansion"},
    "trips__fault_threshold": "1/1000",
    "max_weight": 7,
}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"max_weight": 7}, "OD-TRIPS-WEIGHTS"),
        ({"trips__columns": {"weight": "w"}, "trips__files": "{period}.csv"}, "OD-TRIPS-WEIGHTS"),
        (WEIGHTED | {"max_weight": 0}, "OD-UNIT-MAX-WEIGHT"),
        (WEIGHTED | {"trips__columns": {"date": "date", "weight": "w", "trips": "t"}}, "OD-TRIPS-WEIGHTS"),
        (WEIGHTED | {"domain__unit": "user", "domain__column": "u", "max_trips": 2}, "OD-UNIT-OPTIONS"),
    ],
)
def test_a_declaration_of_weights_is_whole(project: Project, changes: dict[str, object], code: str) -> None:
    with pytest.raises(OdError, match=code):
        project.component(**changes).checked()


def test_a_month_with_weights_is_published_and_verified(project: Project) -> None:
    """One record of 2000 has no weight, which is within the threshold; without noise to speak of, the sum is exact."""
    weights = np.random.default_rng(3).choice([0.4, 1.5, 3.2, 12.0], 2000).astype(str)
    project.write_records(records().assign(expansion=["many", *weights[1:]]))
    wanted = sum({"0.4": 0, "1.5": 2, "3.2": 3, "12.0": 7}[weight] for weight in weights[1:])
    changes = WEIGHTED | {"privacy": {"rho": "10000", "delta": "1e-8"}, "domain__cap__rho": "10000", "intervals": False}
    assert project.run(project.component(**changes)).success

    release = open_release(project.var / "release.duckdb", "trips", period="2001-01")
    assert (release.plan.unit.max_weight, int(release.flows["trips"].sum())) == (7, wanted)
    folder = project.var / "releases/trips/2001-01/r1"
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    jsonschema.validate(certificate, json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert certificate["invariants"] == []
    assert certificate["contribution_bound"] == certificate["plan"]["max_weight"] == 7
    assert "which counts at most 7 trips, was replaced" in certificate["guarantee"]["protected"]
    assert certificate["guarantee"]["contribution"] in (folder / "codebook.md").read_text(encoding="utf-8")
    assert [row["verified"] for row in verified("trips/2001-01/r1")] == [True]
