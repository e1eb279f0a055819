"""The job of one group-size table: what it publishes, replays and refuses."""

from dataclasses import replace
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import duckdb
import numpy as np
import pandas as pd
import pytest

from od_assets.components import OdGroupSizes
from od_assets.resources.release_work import TableWork
from od_assets.resources.warehouse import Warehouse, verify_published_releases
from od_core.errors import OdError
from od_core.group_sizes import publishing
from od_core.group_sizes import release as release_module
from od_core.group_sizes.groups import Frame
from od_core.group_sizes.plan import GroupSizePlan
from od_core.group_sizes.publishing import open_group_sizes
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.conftest import ZONES, Project, failure_text, public_bytes, records

KEY = ReleaseKey("departures", "2001-01")


def of_a_month() -> pd.DataFrame:
    """Records on all days of January 2001."""
    days = np.random.default_rng(3).integers(1, 32, len(records()))
    return records().assign(date=[f"2001-01-{day:02d}" for day in days])


def planned(component: OdGroupSizes) -> GroupSizePlan:
    settings = component.require_valid()
    return settings.plan(settings.read_geography(), "2001-01")


@pytest.fixture
def month(project) -> Project:
    project.write_records(of_a_month())
    return project


def test_a_month_is_published_and_a_second_run_changes_nothing(month):
    first = month.publish(month.group_sizes())
    checks = first.get_asset_check_evaluations()
    assert len(checks) == 7
    assert all(check.passed for check in checks)
    bundle = month.var / "releases" / str(KEY)
    release, ledger = open_group_sizes(bundle), Ledger(month.var / "ledger.sqlite")
    assert release.plan.frame.groups.tolist() == [31] * 6
    assert [step.level for step in release.plan.steps] == [1, 2]
    assert ledger.compute_spent_budget(KEY, release.plan) == release.plan.spent
    assert release.plan.spent.epsilon == Fraction(1, 10)
    assert ledger.balance("trips", "2001-01").spent == 2 * Fraction(1, 20) ** 2 / 2  # each level epsilon^2 / 2
    files = public_bytes(month.var)
    assert month.run(month.group_sizes()).success
    assert public_bytes(month.var) == files
    assert ledger.count_draws(KEY, 1) == ledger.count_draws(KEY, 2) == 1
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]


def test_groups_of_a_public_list(project):
    """A taxi is listed in one zone; trips of an unlisted one are faults."""
    taxis = pd.DataFrame({"taxi": [f"t{k:03d}" for k in range(200)], "stand": ["Z00", "Z21"] * 100})
    taxis.to_csv(project.root / "taxis.csv", index=False)
    taken = np.random.default_rng(2).geometric(0.02, 2000).clip(1, 190)  # some taxis have no trip
    project.write_records(records().assign(taxi=[f"t{k:03d}" for k in taken]))
    of_taxis = {
        "groups": {"file": "taxis.csv", "group": "taxi", "area": "stand"},
        "trips__columns": {"group": "taxi", "date": "date"},
    }
    component = project.group_sizes(**of_taxis, privacy__epsilon="0.4", domain__cap__rho="9")
    project.publish(component)
    release = open_group_sizes(project.var / "releases" / str(KEY))
    assert release.plan.frame.groups.tolist() == [100, 0, 0, 0, 0, 100]
    work = TableWork(Warehouse(), component.require_valid(), KEY)
    staged = work.staged.read_counted_input(work.plan)
    trips = np.bincount(taken, minlength=200)
    for zone, first in ((0, 0), (5, 1)):  # every second taxi stands in the one, the others in the other
        assert staged.size[staged.area == zone].tolist() == sorted(trips[first::2])

    more = records().assign(taxi=["t999", *[f"t{k:03d}" for k in taken[1:]]])
    project.write_records(pd.concat([more] + [more.head(1)] * 9))
    assert not project.run(project.group_sizes(**of_taxis, domain__cap__rho="9", revision=2)).success


def test_groups_that_nobody_lists(project):
    """A taxi is a group of each zone that it is seen in; a record without one, or elsewhere, is a fault."""
    generator = np.random.default_rng(2)
    taken = [f"t{k}" for k in generator.geometric(0.05, len(records()))]
    trips = records().assign(taxi=taken, zone=generator.choice(ZONES["zone"][:5], len(records())))
    faulty = trips.head(3).assign(taxi=[" ", None, "t1"], zone=["Z00", "Z00", "Z99"])
    project.write_records(pd.concat([trips, faulty]))
    of_taxis = {
        **{"groups": None, "groups_share": "1/5", "mechanism": "cumulative", "top_code": 40},
        **{"trips__columns": {"area": "zone", "group": "taxi", "date": "date"}, "trips__fault_threshold": "1/100"},
    }
    component = project.group_sizes(**of_taxis, privacy__epsilon="1", domain__cap__rho="9")
    result = project.publish(component)
    assert all(check.passed for check in result.get_asset_check_evaluations())
    work = TableWork(Warehouse(), component.require_valid(), KEY)
    staged = work.staged.read_counted_input(work.plan)
    seen = trips.groupby(["zone", "taxi"]).size().rename("size").reset_index()
    counted = seen.groupby(["zone", "size"]).size()
    zones = component.require_valid().read_geography().zones
    rows = zip(staged.area.tolist(), staged.size.tolist(), staged.groups.tolist(), strict=True)
    assert {(zones[area], size): groups for area, size, groups in rows} == counted.to_dict()
    release = open_group_sizes(project.var / "releases" / str(KEY))
    assert release.frame.measured
    noisy = release.numbers[release.numbers["level"] == "zone"].set_index("area")
    noise = noisy["noisy"] - seen.groupby("zone").size().reindex(noisy.index, fill_value=0)
    assert release.plan.steps[0].scale == 20
    assert noise.any()  # fails with probability 1e-9
    assert noise.abs().max() < 320  # fails with probability 6 exp(-16), below 1e-6
    with duckdb.connect(str(project.var / "release.duckdb"), read_only=True) as database:
        stored = database.sql("SELECT level, area, groups FROM group_numbers").df()
    assert len(stored) == len(release.numbers)
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"groups": {"file": "taxis.csv"}, "trips__columns": {"group": "taxi"}}, "OD-GROUPS-NUMBERS"),
        ({"trips__columns": {"area": "zone"}}, "OD-CONFIG: .*the columns area and group"),
        ({"trips__columns": {"group": "taxi"}}, "OD-CONFIG: .*the columns area and group"),
        ({"trips__columns": {"area": "zone", "size": "s", "groups": "n"}}, "OD-CONFIG: .*the columns area and group"),
        ({"groups_share": "2"}, "OD-GROUPS-NUMBERS"),
        ({"mechanism": None}, "OD-GROUPS-CHOICE"),
    ],
)
def test_declarations_of_measured_numbers_that_are_refused(project, changes, code):
    given = {"groups_share": "1/5", "mechanism": "cumulative", "trips__columns": {"area": "zone", "group": "taxi"}}
    with pytest.raises(OdError, match=code):
        project.group_sizes(**given | changes).require_valid()


def test_numbers_of_groups_by_area_and_size(project):
    """Records say how many groups of a size an area has; groups of which they do not tell have size 0."""
    (project.root / "areas.csv").write_text("zone,households\nZ00,900000\nZ21,7\n", encoding="utf-8")
    counted = {"home": ["Z00", "Z00", "Z21"], "members": [2, 1, 5], "many": [500000, 300000, 7]}
    project.write_records(pd.DataFrame(counted))
    of_counts = {
        "groups": {"file": "areas.csv", "area": "zone", "groups": "households"},
        "trips__columns": {"area": "home", "size": "members", "groups": "many"},
    }
    mixed = {"mechanism": "mixed", "mechanism_options": {"queries": ["cumulative", "sizes"]}}
    component = project.group_sizes(**of_counts, **mixed, privacy__epsilon="0.4", domain__cap__rho="9")
    result = project.publish(component)
    assert all(check.passed for check in result.get_asset_check_evaluations())
    release = open_group_sizes(project.var / "releases" / str(KEY))
    assert release.plan.frame.groups.tolist() == [900_000, 0, 0, 0, 0, 7]
    assert release.plan.queries == {1: "cumulative", 2: "sizes"}
    assert release.measurements["level"].value_counts()["zone"] == 900_007
    work = TableWork(Warehouse(), component.require_valid(), KEY)
    staged = work.staged.read_counted_input(work.plan)
    rows = zip(staged.area.tolist(), staged.size.tolist(), staged.groups.tolist(), strict=True)
    assert list(rows) == [(0, 0, 100_000), (0, 1, 300_000), (0, 2, 500_000), (5, 5, 7)]
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]
    project.write_records(pd.DataFrame({**counted, "many": [500000, 300000, 8]}))
    assert "OD-GROUPS-COUNT" in failure_text(project.run(project.group_sizes(**of_counts, revision=2)))


def test_brackets_in_place_of_a_top_code(month):
    """From the declaration to the bundle and the database; every size is that of a bracket."""
    of_brackets = {"top_code": None, "brackets": [1, 2, 4, 40], "mechanism": "cumulative", "privacy__epsilon": "0.4"}
    component = month.group_sizes(**of_brackets, domain__cap__rho="9")
    result = month.publish(component)
    assert all(check.passed for check in result.get_asset_check_evaluations())
    release = open_group_sizes(month.var / "releases" / str(KEY))
    assert release.frame.brackets == (1, 2, 4, 40)
    work = TableWork(Warehouse(), component.require_valid(), KEY)
    staged = work.staged.read_counted_input(work.plan)
    numbers = np.searchsorted([1, 2, 4, 40], np.repeat(staged.size, staged.groups), side="right")
    assert len({*numbers.tolist()}) > 1  # the groups are in several brackets
    assert {*release.histogram["size"]} <= {0, 1, 2, 4, 40}
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]
    with duckdb.connect(str(month.var / "release.duckdb"), read_only=True) as database:
        sizes = database.sql("SELECT DISTINCT size FROM group_size_intervals ORDER BY size").fetchall()
    assert sizes == [(0,), (1,), (2,), (4,)]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"top_code": None}, "OD-GROUPS-TOP-CODE: .*neither a top code nor brackets"),
        ({"top_code": None, "brackets": [], "mechanism": "cumulative"}, "OD-GROUPS-BRACKETS: .*at least one"),
        ({"top_code": None, "brackets": [3, 1], "mechanism": "cumulative"}, "OD-GROUPS-BRACKETS: .*ascend"),
        ({"brackets": [1, 3], "mechanism": "cumulative"}, "OD-GROUPS-BRACKETS: .*beside a top code"),
        ({"top_code": None, "brackets": [1, 3], "mechanism": None}, "OD-GROUPS-CHOICE"),
        ({"top_code": None, "brackets": [1, 3], "mechanism": "sizes"}, "OD-GROUPS-BRACKETS: .*sorted sizes"),
    ],
)
def test_brackets_that_do_not_fit_are_refused_as_they_are_declared(project, changes, error):
    with pytest.raises(OdError, match=error):
        project.group_sizes(**changes).require_valid()


def test_a_draw_that_dies_is_charged_and_the_other_level_read_back(month, monkeypatch):
    real, drawn = release_module.measure_step, []

    def dies_at_the_second(frame, query, step, groups, noise):  # type: ignore[no-untyped-def]  # as the real one
        drawn.append(step.level)
        if step.level == 2:
            raise MemoryError
        return real(frame, query, step, groups, noise)

    with monkeypatch.context() as context:
        context.setattr(release_module, "measure_step", dies_at_the_second)
        failed = month.run(month.group_sizes())
    assert not failed.success
    assert drawn == [1, 2]
    ledger = Ledger(month.var / "ledger.sqlite")
    assert not ledger.is_published(KEY)
    assert month.run(month.group_sizes()).success
    assert (ledger.count_draws(KEY, 1), ledger.count_draws(KEY, 2)) == (1, 2)
    release = open_group_sizes(month.var / "releases" / str(KEY))
    assert release.spent.epsilon == Fraction(3, 20)  # a twentieth a level, and once more for the lost draw
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]


@pytest.mark.parametrize("kind", ["component", "group_sizes", "stops"])
def test_what_was_counted_for_one_geography_is_not_drawn_under_another(month, kind):
    """Area numbers mean other areas there; no draw is charged."""
    zones = ZONES.assign(longitude=range(6), latitude=range(6))
    zones.to_csv(month.root / "zones.csv", index=False)
    changes = {"trips__columns": {"places": ["origin", "destination"], "date": "date"}} if kind == "stops" else {}
    component = getattr(month, kind)(**changes)
    name = component.name
    counts = {"component": "trip_counts", "group_sizes": "group_sizes", "stops": "trip_cells"}[kind]
    measured = {"component": "levels/noisy_measurement_1", "group_sizes": "noisy_measurements", "stops": "noisy_boxes"}
    assert month.materialize("geography", "raw_trips", counts, component=component).success
    zones.assign(region=zones["region"].tolist()[::-1], longitude=[9, *range(1, 6)]).to_csv(
        month.root / "zones.csv", index=False
    )
    assert month.materialize("geography", component=component).success
    refused = month.materialize(measured[kind], component=component)
    assert "OD-STAGED-OTHER-PLAN" in failure_text(refused)
    assert Ledger(month.var / "ledger.sqlite").count_draws(ReleaseKey(name, "2001-01"), 1) == 0
    assert month.run(component).success


def test_a_staged_table_that_its_measurements_do_not_give_is_not_published(month):
    assert month.run(month.group_sizes()).success
    work = TableWork(Warehouse(), month.group_sizes().require_valid(), KEY)
    release = work.release
    other = tuple(np.roll(table, 1, axis=1) for table in release.histograms)
    work.staged.save_table(replace(release, histograms=other))
    with pytest.raises(OdError, match="OD-STAGED-FILE-CHANGED"):
        _ = work.release


def test_figures_without_their_release_are_completed_and_missing_areas_told(month):
    """A damaged database: what is missing is added, what is there must be the same."""
    assert month.run(month.group_sizes()).success
    with duckdb.connect(str(month.var / "release.duckdb")) as connection:
        connection.execute("DELETE FROM areas WHERE level = 2")
        connection.execute("DELETE FROM group_size_releases")
    [row] = verify_published_releases()
    assert "database" in row["faults"]
    assert month.run(month.group_sizes()).success
    assert verify_published_releases() == [{"release": str(KEY), "verified": True, "faults": {}}]
    with duckdb.connect(str(month.var / "release.duckdb")) as connection:
        connection.execute("UPDATE areas SET parent = 'R2' WHERE area = 'Z00'")
    assert "its areas differ" in verify_published_releases()[0]["faults"]["database"]


def test_a_failed_check_of_the_histograms_blocks_publication(month, monkeypatch):
    """A group of one zone is lost."""
    real = publishing.estimate_release

    def damaged(*arguments, **named):  # type: ignore[no-untyped-def]  # as the real one
        release = real(*arguments, **named)
        leaves = release.histograms[1]
        leaves[0, np.nonzero(leaves[0])[0][0]] -= 1
        return release

    monkeypatch.setattr(publishing.GroupSizeKind, "estimate", staticmethod(damaged))
    result = month.run(month.group_sizes())
    failed = {check.check_name for check in result.get_asset_check_evaluations() if not check.passed}
    assert failed == {"sum_to_totals", "add_up"}
    assert not (month.var / "releases").exists()
    assert not (month.var / "release.duckdb").exists()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"top_code": 2**31 - 1}, "OD-GROUPS-CELLS"),
        ({"trips__columns": {"date": "date"}}, "OD-CONFIG"),
        ({"trips__columns": {"area": "origin"}}, "OD-CONFIG"),
        ({"trips__columns": {"group": "taxi", "date": "date"}}, "OD-CONFIG"),
        ({"groups": {"file": "taxis.csv"}}, "OD-CONFIG"),
        ({"groups": {"file": "areas.csv", "groups": "n"}, "trips__columns": {"area": "a", "size": "s"}}, "OD-CONFIG"),
        ({"trips__columns": {"area": "origin", "date": "date", "size": "s", "groups": "n"}}, "OD-CONFIG"),
        ({"trips__columns": {"group": "taxi"}, "groups": {"file": "none.csv"}}, "OD-FILE-MISSING"),
    ],
)
def test_a_mistake_in_the_declaration_is_one_line(project, changes, code):
    with pytest.raises(OdError, match=f"{code}:") as refused:
        planned(project.group_sizes(**changes))
    assert refused.value.spent == "nothing was spent"


def test_the_sql_of_the_checks_counts_what_it_says(project):
    """Against a plain count, on tables with a random defect."""
    from od_assets.checks.release_checks import count_group_size_violations
    from od_core.group_sizes.publishing import StagedGroupSizes

    geography = project.component().require_valid().read_geography().origin
    generator = np.random.default_rng(8)
    frame = Frame(geography, np.array([3, 0, 4, 5, 1, 2]), 4)
    for _ in range(20):
        leaves = generator.integers(-1, 3, (6, 5))
        top = frame.sum_at_level(leaves, 1)
        top[generator.integers(3), generator.integers(5)] += generator.integers(0, 2)
        staged = StagedGroupSizes(project.root)
        table = SimpleNamespace(frame=frame, histograms_of={1: top, 2: leaves}.__getitem__)
        table.list_cells = partial(release_module.GroupSizeRelease.list_cells, table)
        staged.save_table(table)  # type: ignore[arg-type]
        assert count_group_size_violations(frame, staged.read_table()) == {
            "are_counts": (top < 0).sum() + (leaves < 0).sum(),
            "sum_to_totals": (top.sum(axis=1) != frame.count_groups(1)).sum()
            + (leaves.sum(axis=1) != frame.groups).sum(),
            "add_up": (top != frame.sum_at_level(leaves, 1)).sum(),
        }
        level, area, size, groups = (np.asarray(column) for column in staged.read_table().columns)
        for number, table in enumerate([top, leaves], start=1):
            kept = np.zeros_like(table)
            kept[area[level == number], size[level == number]] = groups[level == number]
            assert np.array_equal(kept, table)
