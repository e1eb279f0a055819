"""``detail: publication``: one asset in place of all levels, with the same checks, ledger, bytes and lineage."""

from typing import Any

import dagster as dg
import pytest

from od_assets.checks import release_checks
from od_assets.series.series import Series
from tests.od_assets.conftest import public_bytes
from tests.od_assets.test_column_lineage import Lineage
from tests.od_core.ledger.ledger_rows import rows

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "component": ("flows", {"assisted": True}),
    "counts": ("flows", {}),
    "group_sizes": ("histograms", {}),
    "stops": ("boxes", {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_graph_has_inputs_a_measured_table_and_publications(project, kind):
    table, changes = KINDS[kind]
    make = getattr(project, kind)
    levels: Series = make(**changes)
    assert levels.detail == "levels"
    of_levels = Lineage(project, levels)
    of_publication = Lineage(project, make(detail="publication", **changes))
    graph = of_publication.graph
    keys = {key.to_user_string() for key in graph.get_all_asset_keys()}
    [published] = {key for key in keys if "/" not in key}
    assisted = {f"{levels.name}/assisted"} if changes else set()
    assert (
        keys
        == {*(f"{levels.name}/{name}" for name in ("geography", "raw_trips", table, "bundle")), published} | assisted
    )
    measured = dg.AssetKey([levels.name, table])
    assert graph.get(measured).parent_keys == {dg.AssetKey([levels.name, name]) for name in ("geography", "raw_trips")}
    assert len(graph.asset_check_keys) == len(of_levels.graph.asset_check_keys)

    left_out = {measured, *of_levels.columns} - ({*of_publication.columns} - {measured})

    def ends(lineage, key, column):
        """The columns that one leads to; any of an asset that is left out, and came from none, is one of the table."""
        return {(None, "") if at in left_out else (at, name) for at, name in lineage.origins(key, column)}

    for key, columns in of_publication.columns.items():
        assert columns, key
        for column in columns:
            assert ends(of_publication, key, column) == ends(of_levels, key, column), (key, column)


def test_the_measured_table_waits_for_an_asset_of_the_team(project):
    definitions = project.definitions(project.component(detail="publication", trips__asset="lake/trips"))
    node = definitions.resolve_asset_graph().get(dg.AssetKey(["trips", "flows"]))
    assert node.automation_condition is not None
    assert node.automation_condition.get_label() == "unpublished, and the records are there"


@pytest.mark.slow
def test_a_month_is_read_back_to_the_same_bytes_and_ledger(released):
    bundle, ledger = public_bytes(released.var), rows(released.var / "ledger.sqlite")
    ran = released.run(released.component(detail="publication"))
    assert ran.success
    assert public_bytes(released.var) == bundle
    assert rows(released.var / "ledger.sqlite") == ledger
    evaluated = {
        (str(one.asset_key.path[-1]), one.check_name) for one in ran.get_asset_check_evaluations() if one.passed
    }
    assert ("flows", "refined_flows_children_sum_to_parents") in evaluated
    assert ("flows", "spend_is_plan") in evaluated


@pytest.mark.slow
@pytest.mark.parametrize("bands", [None, {"cuts": [2], "part_trips": 300}], ids=["whole", "in parts"])
def test_a_month_is_charged_as_with_its_levels(project, first_run, bands):
    """In a folder of its own, where nothing is released yet; parts do not change what is charged."""
    project.publish(project.component(detail="publication", bands=bands))

    def charged(var):
        return [
            tuple(row[name] for name in ("kind", "release", "level", "draw", "rho"))
            for row in rows(var / "ledger.sqlite")
        ]

    assert sorted(map(str, charged(project.var))) == sorted(map(str, charged(first_run[0])))


@pytest.mark.slow
def test_a_failed_check_of_a_level_blocks_the_publication(project, monkeypatch):
    """A violation is planted in the query of the estimates."""
    monkeypatch.setattr(release_checks, "count_level_violations", lambda *_: {"non_negative_integers": 1})
    ran = project.run(project.component(detail="publication"))
    failed = [one.check_name for one in ran.get_asset_check_evaluations() if not one.passed]
    assert failed == ["refined_flows_non_negative_integers"]
    assert not (project.var / "releases").exists()
