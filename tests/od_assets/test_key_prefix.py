"""The prefix that the warehouse of a project declares: where it stands, and which are refused."""

from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from od_assets.cli.published import find_newest_report
from od_assets.components.project import (
    OdComparison,
    OdSite,
    build_comparison_definitions,
    list_publishing_asset_keys,
    make_site_asset,
)
from od_assets.components.series import build_series_definitions
from od_assets.failures import name_asset_of_step
from od_assets.project import find_current_project
from od_assets.resources.arrivals import check_arrival, describe_rerelease
from od_assets.resources.dead_runs import list_selected_series
from od_assets.resources.folders import Folders
from od_assets.series.reading import read_declared_series
from od_assets.series.series import Series
from od_core.errors import OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from tests.od_assets.conftest import ATTRIBUTES, Project
from tests.projects import declare

KINDS: dict[str, dict[str, Any]] = {
    "component": {"assisted": True, "trips__asset": "lake/trips", "schedule": "0 6 2 * *"},
    "counts": {"area_totals": None},
    "group_sizes": {},
    "stops": {},
}


def set_prefix(project: Project, prefix: Any) -> None:
    declare(project.defs, "warehouse", "OdWarehouse", {"key_prefix": prefix})


def declare_trips(project: Project) -> None:
    project.component()  # with the file of its domain
    project.declare(ATTRIBUTES | {"assisted": True})


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_has_the_prefix(project, kind):
    """Keys, the keys in column lineage and in conditions, groups, jobs, schedules, checks and run tags."""
    changes = {name: value for name, value in KINDS[kind].items() if value is not None}
    plain: Series = getattr(project, kind)(**changes)
    before = project.definitions(plain)
    set_prefix(project, "north")
    series: Series = getattr(project, kind)(**changes)
    assert series.name == f"north_{plain.name}"
    assert str(series.key("2001-01")) == f"north_{plain.name}/2001-01/r1"
    lake = dg.AssetKey(["lake", "trips"])

    def named(definitions):
        graph = definitions.resolve_asset_graph()
        nodes = [graph.get(key) for key in graph.get_all_asset_keys() if key != lake]
        lineage = (node.metadata.get("dagster/column_lineage") for node in nodes)
        sources = {
            source.asset_key.to_user_string()
            for found in lineage
            if found is not None
            for each in found.deps_by_column.values()
            for source in each
        }
        checks = {f"{key.asset_key.to_user_string()}:{key.name}" for key in graph.asset_check_keys}
        groups = {str(node.group_name) for node in nodes}
        return {node.key.to_user_string() for node in nodes}, sources - {"lake/trips"}, checks, groups

    for then, now in zip(named(before), named(project.definitions(series)), strict=True):
        assert {f"north/{name}" for name in then} == now
    definitions = build_series_definitions(series)
    keys = {key for asset in definitions.assets or () for key in asset.keys}
    run = dg.DagsterRun(job_name="some", run_id="1", asset_selection=frozenset(keys))  # as "Materialize all"
    assert list_selected_series(run, "north") == {series.name}
    for made in (definitions.jobs, definitions.schedules):
        assert all(one.name.startswith(f"north_{plain.name}_") for one in made or ())
    conditions = [spec.automation_condition for asset in definitions.assets or () for spec in asset.specs]
    assert not any(f"['{plain.name}'" in repr(condition) for condition in conditions)


def test_site_and_comparison_have_the_prefix(project):
    declare_trips(project)
    set_prefix(project, "north")
    assert list_publishing_asset_keys(find_current_project()) == [
        ["north", "trips", "bundle"],
        ["north", "trips", "assisted"],
    ]
    site = make_site_asset(OdSite(owners=["team:statistics"]))
    assert site.key.path == ["north", "od", "site"]
    rivals = OdComparison(name="rivals", owners=["team:statistics"], synthetic=["random dense"], epsilons=["1"])
    made = build_comparison_definitions(rivals)
    assert {key.to_user_string() for asset in made.assets or () for key in asset.keys} == {
        f"north/rivals/{name}" for name in ("runs", "tables", "figures")
    }
    assert rivals.folder.name == "north_rivals"


@pytest.mark.parametrize("prefix", ["trips", "levels", "od", "n" * 31])
def test_a_prefix_may_be_the_name_of_a_series_or_of_an_asset(project, prefix):
    declare_trips(project)
    set_prefix(project, prefix)
    series = read_declared_series("trips")
    assert series.name == f"{prefix}_trips"
    keys = [key for asset in build_series_definitions(series).assets or () for key in asset.keys]
    assert len({*keys}) == len(keys)
    assert {key.path[0] for key in keys} == {prefix}


@pytest.mark.parametrize("prefix", ["a/b", "", "North", "n" * 300, "a_b", "a\n", True, ["a", "b"], "{{ env.NO }}"])
def test_a_wrong_prefix_is_refused_with_its_line(project, prefix):
    declare_trips(project)
    set_prefix(project, prefix)
    with pytest.raises(OdError, match=r"^OD-CONFIG: warehouse/defs\.yaml: key_prefix \(line 3\): ") as refused:
        read_declared_series("trips")
    assert refused.value.file == "warehouse/defs.yaml"


def test_a_name_that_is_too_long_with_its_prefix_is_refused(project):
    set_prefix(project, "north")
    with pytest.raises(OdError, match=r"^OD-RELEASE-KEY: .*north_a{60}"):
        project.component(name="a" * 60).require_valid()


@pytest.mark.parametrize(
    ("step", "name", "key"),
    [
        ("north__commuting__raw_trips", "north_commuting", "north/commuting/raw_trips"),
        ("north__commuting__levels__estimate_1__checks", "north_commuting", "north/commuting/levels/estimate_1"),
        ("north__commuting_flows", "north_commuting", "north/commuting_flows"),
        ("my__city__raw_trips", "my__city", "my__city/raw_trips"),
        ("north_commuting__bundle", "north_commuting", "north_commuting/bundle"),
    ],
)
def test_steps_are_called_by_keys_with_the_prefix(step, name, key):
    assert name_asset_of_step(step, name) == key


def test_commands_that_are_advised_and_given_have_the_declared_name(project):
    declare_trips(project)
    set_prefix(project, "north")
    series, published = read_declared_series("trips"), ReleaseKey("north_trips", "2001-01")
    newer = replace(check_arrival(series, Period("2001-01")), key=replace(published, revision=2))
    said = describe_rerelease(series, newer, published, Folders())
    assert str(said).endswith(f"{newer.key} is charged again, so run it by hand: od-release run trips --period 2001-01")

    bundle = Folders().locate_bundle(published)
    bundle.mkdir(parents=True)
    (bundle / "certificate.json").write_text(f'{{"release": "{published}"}}', encoding="utf-8")
    (bundle / "report.html").touch()
    for name in ("trips", "north_trips"):
        assert find_newest_report(Folders().releases, name, None) == bundle / "report.html"
    with pytest.raises(OdError, match=r"no release of trips for 2001-02 .*next: od-release run trips --period 2001-02"):
        find_newest_report(Folders().releases, "trips", "2001-02")
