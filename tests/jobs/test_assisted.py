"""The asset of model-assisted flows: what it publishes, after which others, and what changes when they do."""

import json
import shutil
from pathlib import Path

import dagster as dg
import pytest

from od_assets.resources.warehouse import verify_published_releases
from od_core import AssistedFlows, open_release
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import Project, failure_text, projects_in, with_two_flows

ASSISTED = dg.AssetKey(["trips", "assisted"])


PERIODS = ("2001-01", "2001-02")


@pytest.fixture
def months(project) -> Project:
    """Two months of records."""
    return with_two_flows(project, PERIODS)


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, list[dg.ExecuteInProcessResult]]:
    """Return ``var`` with the two months published, and their runs. Not to be changed."""
    with projects_in(tmp_path_factory.mktemp("assisted")) as make:
        project = with_two_flows(make(), PERIODS)
        return project.var, [project.run(project.component(assisted=True), period) for period in PERIODS]


@pytest.fixture
def published(months, runs) -> Project:
    """The two months of records, published. Dagster knows nothing of their runs."""
    shutil.copytree(runs[0], months.var, dirs_exist_ok=True)
    return months


def test_each_month_learns_from_the_months_before_and_spends_nothing(published, runs):
    months, component = published, published.component(assisted=True)
    for period, result in zip(PERIODS, runs[1], strict=True):
        assert result.success, failure_text(result)
        folder = months.var / "releases" / "trips_assisted" / period / "r1"
        found = open_release(folder)
        assert isinstance(found, AssistedFlows)
        assert found.leaves.trips.sum() == 120
        (event,) = result.asset_materializations_for_node("trips__assisted")
        assert event.metadata["releases"].value == len(found.releases) == int(period[-1])
        assert event.metadata["release"].value == f"trips_assisted/{period}/r1"
        assert "no budget was spent" in str(event.metadata["guarantee"].value)
    assert {key.release for key in Ledger(months.var / "ledger.sqlite").list_published_releases()} == {"trips"}
    months.publish(component, "2001-01")
    assert len(list((months.var / "releases" / "trips_assisted" / "2001-01").glob("r?"))) == 1


def test_a_new_revision_of_an_earlier_month_gives_a_new_revision_when_it_is_run_again(published):
    months, component = published, published.component(assisted=True)
    assert months.run(months.component(assisted=True, revision=2), "2001-01").success
    later = months.materialize("assisted", period="2001-02", component=component)
    assert later.success, failure_text(later)
    folder = months.var / "releases" / "trips_assisted" / "2001-02"
    names = [[str(key) for key in sorted(sources(folder / name))] for name in ("r1", "r2")]
    assert names == [["trips/2001-01/r1", "trips/2001-02/r1"], ["trips/2001-01/r2", "trips/2001-02/r1"]]


def sources(folder: Path) -> list[ReleaseKey]:
    stated = json.loads((folder / "certificate.json").read_text("utf-8"))
    return [ReleaseKey.parse(one["release"]) for one in stated["sources"]]


def test_assisted_flows_are_verified_with_their_series(published):
    (published.var / "releases" / "trips_assisted" / "2001-01" / "r1" / "README.txt").unlink()
    rows = {row["release"]: row["verified"] for row in verify_published_releases("trips")}
    verified = {("", 0): True, ("", 1): True, ("_assisted", 0): False, ("_assisted", 1): True}
    assert rows == {f"trips{kind}/{PERIODS[number]}/r1": is_so for (kind, number), is_so in verified.items()}


def test_a_backfill_waits_for_the_bundles_of_the_months_before(months):
    graph = months.definitions(months.component(assisted=True)).resolve_asset_graph()
    bundle = graph.get(ASSISTED).parent_keys
    assert bundle == {dg.AssetKey(["trips", "bundle"])}
    mapping = graph.get(ASSISTED).partition_mappings[dg.AssetKey(["trips", "bundle"])]
    partitions = months.component().periods.make_partitions_definition()
    keys = mapping.get_upstream_mapped_partitions_result_for_partitions(
        partitions.subset_with_partition_keys(["2001-02"]), partitions, partitions
    )
    assert list(keys.partitions_subset.get_partition_keys()) == ["2001-01", "2001-02"]
    assert ASSISTED not in months.definitions(months.component()).resolve_asset_graph().get_all_asset_keys()
