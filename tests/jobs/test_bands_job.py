"""The job of a release that is worked on part by part, by the threads of this machine."""

from typing import Any

import pandas as pd
import pytest

import od_assets.assets.flows
from od_assets.resources.warehouse import Warehouse
from od_core import open_release
from od_core.flows.bands import Bands
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.published.verification import verify_release
from tests.od_assets.conftest import Project, public_bytes, records, records_by_mode

KEY = ReleaseKey("trips", "2001-01", 1)


def banded(project: Project, *cuts: int, part_trips: int = 300, **changes):
    return project.component(bands={"cuts": list(cuts), "part_trips": part_trips}, **changes)


@pytest.mark.parametrize(("mechanism", "cuts"), [("inftda_refined", (1, 3)), ("inftda", (2,))])
def test_a_month_is_published_and_a_second_run_changes_nothing(project, mechanism, cuts):
    project.mechanism = mechanism
    first = project.publish(banded(project, *cuts))
    assert all(check.passed for check in first.get_asset_check_evaluations())
    release = open_release(project.var / "releases" / str(KEY))
    assert int(release.flows["trips"].sum()) == len(records())
    assert release.plan.bands == Bands(cuts, 300)
    ledger = Ledger(project.var / "ledger.sqlite")
    assert ledger.compute_spent_budget(KEY, release.plan) == release.plan.spent
    from_database = open_release(project.var / "release.duckdb")
    pd.testing.assert_frame_equal(release.measurements, from_database.measurements)
    staged = project.var / "confidential" / str(KEY)
    assert len(list((staged / "parts").iterdir())) == len(list((staged / "claims").glob("[0-9]*"))) > 2 * len(cuts)
    assert not (staged / "attempts").exists() or mechanism == "inftda"

    files = public_bytes(project.var)
    assert project.run(banded(project, *cuts)).success
    assert public_bytes(project.var) == files
    assert ledger.balance("trips", "2001-01").spent == release.plan.spent.rho
    warehouse = Warehouse()
    verify_release(warehouse.locate_release(KEY))


@pytest.mark.parametrize("options", [{}, {"segment_profile": "1"}], ids=str)
def test_a_release_that_learns_from_whole_levels_is_resumed_after_its_parts(project, options, monkeypatch):
    """A run that ends in the estimate of all levels. The next one draws nothing, and verification agrees."""
    changes: dict[str, Any] = {"estimate": "auto", "mechanism_options": options}
    if "segment_profile" in options:
        project.write_records(records_by_mode())
        changes["segments"] = {"mode": {"categories": ["car", "bus", "other"], "unknown": "other"}}
    sound = od_assets.assets.flows.refine

    def killed(*_):
        raise MemoryError

    monkeypatch.setattr(od_assets.assets.flows, "refine", killed)
    assert not project.run(banded(project, 1, 3, **changes)).success
    staged = project.var / "confidential" / str(KEY)
    measured = {path: path.read_bytes() for path in (staged / "parts").iterdir()}
    monkeypatch.setattr(od_assets.assets.flows, "refine", sound)
    project.publish(banded(project, 1, 3, **changes))
    assert {path: path.read_bytes() for path in (staged / "parts").iterdir()} == measured
    assert not (staged / "attempts").exists()
    release = open_release(project.var / "releases" / str(KEY))
    ledger = Ledger(project.var / "ledger.sqlite")
    assert ledger.balance("trips", "2001-01").spent == release.plan.spent.rho
    assert release.plan.bands is not None
    assert release.plan.mechanism.options.items() >= {"estimate": "auto", **options}.items()
    verify_release(Warehouse().locate_release(KEY))
