"""What a certificate says of reading the records is what was done to those that were drawn from."""

import json
from typing import Any

import pytest

from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import Project, failure_text, public_bytes, records

INPUTS = ("geography", "raw_trips", "trip_counts")
LEVELS = [f"levels/{asset}_{level}" for level in range(1, 5) for asset in ("noisy_measurement", "estimate")]
REST = (*LEVELS[1:], "refined_flows", "flows", "bundle")
NOISED_ROOT = ["levels/noisy_measurement_0", "levels/estimate_0"]
"""Where a record may leave the release, by a category or a zone that is not listed."""
KEY = ReleaseKey("trips", "2001-01")

OTHERWISE: dict[str, dict[str, Any]] = {
    "nowhere": {"trips__nowhere": ["abroad"]},
    "fault_threshold": {"trips__fault_threshold": "0.5"},
    "columns": {"trips__columns": {"date": "day"}},
}
"""Each reads and counts these records alike, so that the input is the same."""


@pytest.fixture
def project(project) -> Project:
    """A project whose records have a column more."""
    project.write_records(records().assign(day="2001-01-15"))
    component = project.component
    project.component = lambda **changes: component(trips__one_row_a_trip=True, **changes)  # type: ignore[method-assign]
    return project


def stated(project: Project) -> dict[str, Any]:
    certificate = json.loads((project.var / "releases/trips/2001-01/r1/certificate.json").read_text(encoding="utf-8"))
    return certificate["records"] | {"fault_threshold": certificate["fault_threshold"]}


@pytest.mark.parametrize("fact", OTHERWISE)
def test_what_is_drawn_is_published_as_it_was_read(project, fact):
    """The settings change after the first draw, for the rest of the assets or for the whole job, and after all."""
    changed, is_planned = OTHERWISE[fact], fact == "fault_threshold"
    code, named = ("OD-REPLAY-PLAN-CHANGED", "acceptance") if is_planned else ("OD-REPLAY-READING-CHANGED", fact)
    assert project.materialize(*INPUTS, LEVELS[0]).success
    for result in (
        project.materialize(*REST, component=project.component(**changed)),
        project.run(project.component(**changed)),
        project.materialize("trip_counts", component=project.component(**changed)),
    ):
        assert code in failure_text(result)
        assert named in failure_text(result)
    assert project.materialize(*REST[:-1]).success
    bundle = project.materialize("bundle", component=project.component(**changed))
    assert code in failure_text(bundle)
    assert not (project.var / "releases").exists()
    assert project.run().success
    before = public_bytes(project.var)
    columns = {"origin": "origin", "destination": "destination", "date": "date"}
    assert stated(project)[fact] == {"nowhere": [], "fault_threshold": "0", "columns": columns}[fact]
    assert project.run(project.component(**changed)).success  # what is published stays
    assert project.run().success
    assert public_bytes(project.var) == before
    assert Ledger(project.var / "ledger.sqlite").count_draws(KEY, 1) == 1


@pytest.mark.parametrize("done", [("geography", "raw_trips"), INPUTS], ids=["read", "counted"])
def test_what_was_read_otherwise_is_not_drawn_from(project, done):
    """Records of one category are staged; a declaration of another one draws nothing from them."""
    project.write_records(records().assign(kind=["1", "2"] * 1000))
    one, other = (project.component(trips__categories={"kind": [kind]}) for kind in "12")
    assert project.materialize(*done, component=one).success
    rest = [asset for asset in (*INPUTS, *NOISED_ROOT, *LEVELS, *REST[len(LEVELS) - 1 :]) if asset not in done]
    result = project.materialize(*rest, component=other)
    assert "OD-STAGED-OTHER-READING" in failure_text(result)
    assert Ledger(project.var / "ledger.sqlite").count_draws(KEY, 1) == 0
    assert project.run(other).success
    assert stated(project)["categories"] == {"kind": ["2"]}


def test_a_threshold_that_is_raised_for_a_refused_input_needs_no_other_reading(project):
    """The records are read as before; it is the threshold that they were counted under that is stated."""
    faulty = records()
    faulty.loc[:19, "origin"] = "nobody knows"
    project.write_records(faulty)
    assert not project.materialize(*INPUTS).success
    raised = project.component(trips__fault_threshold="0.1")
    rest = ("trip_counts", *NOISED_ROOT, *LEVELS, *REST[len(LEVELS) - 1 :])
    assert project.materialize(*rest, component=raised).success
    assert stated(project)["fault_threshold"] == "1/10"
