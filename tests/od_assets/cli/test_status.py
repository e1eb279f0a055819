"""What ``od-release status`` says of releases whose declaration was changed, and how budgets are printed."""

from od_assets.cli.printing import print_status
from od_assets.resources.warehouse import Warehouse
from od_assets.runs.period_status import list_release_statuses, read_release_status
from od_core.ledger.release_key import ReleaseKey
from tests.od_assets.cli.commands import printed, refusal, stated
from tests.od_assets.conftest import charge


def test_before_the_first_release_nothing_is_written(project):
    """And a ledger that was lost is no new one."""
    project.component()  # declares the data set
    project.declare()
    rows = stated("status")
    assert [(row["state"], row["data_set_rho_left"]) for row in rows] == [("not begun", 0.1), ("waits", 0.1)]
    assert not project.var.exists()
    (project.var / "confidential").mkdir(parents=True)
    (project.var / "confidential" / "ledger.head").write_text("lost", encoding="utf-8")
    assert refusal("status").code.startswith("OD-LEDGER")


def test_changed_settings_are_named_and_the_state_stays(project, capsys):
    key, ledger = charge(project.component().require_valid()), Warehouse().ledger

    same, later = list_release_statuses([project.component()], ledger, ledger.read_states())
    assert (same["state"], same["settings_changed"]) == ("begun", [])
    assert (later["state"], later["settings_changed"]) == ("waits", None)
    print_status([same, later])
    assert "other settings" not in capsys.readouterr().out

    changed = project.component(privacy__epsilon="1/2", tree="origin")
    other, _ = list_release_statuses([changed], ledger, ledger.read_states())
    assert other["settings_changed"] == ["epsilon", "rho", "steps", "tree"]
    assert other | {"settings_changed": []} == same
    print_status([other | {"state": "published"}])
    said = " ".join(capsys.readouterr().out.split())
    assert "│ published │" in said
    assert f"{key} was published with other settings than those declared now: epsilon, rho, steps, tree." in said

    (project.root / "zones.csv").unlink()
    unplanned, _ = list_release_statuses([project.component()], ledger, ledger.read_states())
    assert (unplanned["state"], unplanned["settings_changed"]) == ("begun", None)
    assert read_release_status(ReleaseKey("gone", "2001-01"), None)["settings_changed"] is None


def test_a_row_names_no_period_and_no_revision_that_is_not_published(capsys):
    names = ("2001-01/r1", "2001-01/r2", "2001-02/r1", "2001-02/r2", "2001-03/r2", "2001-06/r2", "2001-Q3/r2")
    print_status([read_release_status(ReleaseKey.parse(f"a/{name}"), None) | {"state": "published"} for name in names])
    said = [line.split("│")[1].strip() for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    ranges = ("2001-01/r1", "2001-01/r2", "2001-02/r1", "2001-02 to 2001-03/r2", "2001-06 to 2001-Q3/r2")
    assert said == [f"a/{name}" for name in ranges]


def test_a_release_on_which_no_run_works_was_interrupted(project):
    key, ledger = charge(project.component().require_valid()), Warehouse().ledger
    project.declare()
    said = f"{key} is only begun, and no run works on it: its last run was interrupted or failed."
    with ledger.lock_for_release():
        assert said not in " ".join(printed("status").split())
    assert said in " ".join(printed("status").split())
