"""What a team tests its declarations with: what is loaded and planned, and which dry runs are refused before any step.

``tests/jobs/test_testing_kit.py`` makes the dry runs.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from od_assets.project import CHECKOUT
from od_assets.testing import check_project, dry_run
from od_core.errors import OdError
from tests.od_assets.conftest import ATTRIBUTES, DOMAIN, Project
from tests.od_assets.test_code_location import declare_beside_trips, loader
from tests.projects import declare_domain

__all__ = ["loader"]


def with_changes(project: Project, attributes: dict[str, Any], domain: dict[str, Any] | None = None) -> None:
    """Declare the release of the project anew, with changes."""
    project.declare(ATTRIBUTES | attributes)
    declare_domain(project.defs, DOMAIN | (domain or {}))


def test_every_declaration_is_loaded_and_planned(project, monkeypatch, loader):
    """Of a project that another folder is the current one of, and with every fault, whichever function loads it."""
    declare_beside_trips(project, monkeypatch, loader)
    series = project.component(mechanism="inftda_refined").require_valid()
    planned = series.plan(series.read_geography(), "2001-01")
    monkeypatch.setenv("OD_PROJECT", str(CHECKOUT))
    before = dict(os.environ)
    [(name, plan)] = check_project(project.root).items()
    assert (name, plan.facts()) == ("trips", planned.facts())
    assert dict(os.environ) == before

    upstream, places = (
        ATTRIBUTES["trips"] | {"asset": "lake/trips"},
        {"file": "places.csv", "levels": ["region", "zone"]},
    )
    no_asset = "OD-UPSTREAM: trips/defs.yaml: trips: this code location has no asset 'lake/trips'"
    refusals = {
        no_asset: ({"trips": upstream}, {}),
        "OD-LEDGER-CAP": ({}, {"cap": {"rho": "0.001", "reason": "small"}}),
        "OD-FILE-MISSING: there is no file places.csv": ({"geography": places}, {}),
        "OD-CONFIG: trips/defs.yaml: owner": ({"owner": ["team:statistics"]}, {}),
    }
    for said, (attributes, domain) in refusals.items():
        with_changes(project, attributes, domain)
        with pytest.raises(OdError) as refused:
            check_project(project.root)
        assert str(refused.value).startswith(said)
        assert not project.var.exists()


BOUNDS = {"bounds": {"max_trips": 9, "max_trips_year": 60}}
YEARS = {"unit": "user_year", "column": "id", "id_pattern": "u[0-9]+"} | BOUNDS
ISTAT = {"trips": {"files": "{period}.txt", "reader": "istat"}, "schedule": None}


@pytest.mark.parametrize(
    ("said", "options", "attributes", "domain"),
    [
        ("OD-TESTING: .*dry_run is where the project releases", {}, {}, {}),
        ("OD-PERIOD: 2001-W05 is not a month", {"period": "2001-W05"}, {}, {}),
        ("OD-RELEASE-UNKNOWN: there is no release 'trip' .did you mean 'trips'", {"name": "trip"}, {}, {}),
        ("OD-INVENT: no digits match id_pattern 'u.0-9.+'", {}, {}, YEARS),
        ("OD-TESTING: no file of reader 'istat' is made up .*next: give the path of a file", {}, ISTAT, {}),
    ],
)
def test_a_dry_run_is_refused_by_name_before_any_step(
    project, said, options, attributes, domain, tmp_path_factory, monkeypatch
):
    with_changes(project, attributes, domain)
    folder = tmp_path_factory.mktemp("elsewhere")
    if "is where" in said:
        monkeypatch.setenv("OD_VAR", str(folder / "dry_run"))
    with pytest.raises(OdError, match=said):
        dry_run(**{"name": "trips", "folder": folder} | options)
    assert [*folder.iterdir()] == []
    assert not Path(project.var).exists()


@pytest.mark.parametrize("how", ["itself", "folder", "link", "hard link", "in a linked folder", "of another series"])
def test_a_dry_run_takes_no_declared_file(project, how, tmp_path_factory):
    """Whatever its period, and by whatever name: also of a folder of files, which may be behind a link."""
    elsewhere, given = tmp_path_factory.mktemp("elsewhere"), tmp_path_factory.mktemp("given")
    with_changes(project, {"trips": ATTRIBUTES["trips"] | {"files": "lake/{period}"}})
    if how == "of another series":
        other = ATTRIBUTES | {"name": "other", "trips": ATTRIBUTES["trips"] | {"files": "lake/{period}/part.csv"}}
        project.declare(other)
        with_changes(project, {})
    real = project.root / "lake" / "2099-12" / "part.csv"
    real.parent.mkdir(parents=True)
    (project.root / "2001-01.csv").rename(real)
    records = {"itself": real, "of another series": real, "folder": project.root / "lake"}.get(how, given / "a.csv")
    if how == "link":
        records.symlink_to(real)
    elif how == "hard link":
        records.hardlink_to(real)
    elif how == "in a linked folder":
        (given / "linked").symlink_to(real.parent)
        records = given
    with pytest.raises(OdError, match="OD-TESTING: the records are those of a declared series"):
        dry_run("trips", elsewhere, records=records)
    assert [*elsewhere.iterdir()] == []
