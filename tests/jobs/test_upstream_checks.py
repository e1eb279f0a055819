"""Blocking checks of a team's assets: what waits for them, and what is refused by name, with nothing charged."""

from typing import Any

import dagster as dg
import pytest

from tests.jobs.test_upstream_assets import DAYS, GEOGRAPHY, LAKE, MONTHS, RECORDS, Lake
from tests.od_assets.conftest import Project, failure_text

KEY, LISTS = dg.AssetKey(LAKE), dg.AssetKey(["lake", "zones"])
JANUARY, FEBRUARY = "2001-01-01", "2001-02-01"


class Checked(Lake):
    """A lake whose checks end as a test says: True, False, a severity of a failure, or None for an exception."""

    def __init__(self, project: Project, partitions: Any = MONTHS, *, of: Any = None, blocking: bool = True) -> None:
        super().__init__(project, partitions)
        self.outcome: Any = True

        @dg.asset_check(asset=KEY, name="sound", blocking=blocking, partitions_def=of)
        def sound() -> dg.AssetCheckResult:
            if self.outcome is None:
                raise RuntimeError("the check itself failed")
            severity = self.outcome if isinstance(self.outcome, dg.AssetCheckSeverity) else dg.AssetCheckSeverity.ERROR
            return dg.AssetCheckResult(passed=self.outcome is True, severity=severity)

        self.definitions = dg.Definitions.merge(self.definitions, dg.Definitions(asset_checks=[sound]))
        self.job = self.definitions.resolve_implicit_global_asset_job_def()

    def write(self, outcome: Any, partition: str | None = JANUARY) -> None:
        """Let the asset write its records, in a run that also checks them."""
        self.outcome = outcome
        self.run(LAKE, partition=partition)

    def write_alone(self, partition: str | None = JANUARY) -> None:
        selected = dg.AssetSelection.assets(KEY).without_checks()
        self._execute(selected, partition)

    def check(self, outcome: Any) -> None:
        """Check in a run of its own."""
        self.outcome = outcome
        self._execute(dg.AssetSelection.checks_for_assets(KEY), None)

    def _execute(self, selection: dg.AssetSelection, partition: str | None) -> None:
        job = dg.Definitions(jobs=[dg.define_asset_job("own", selection)])
        merged = dg.Definitions.merge(self.definitions, job).resolve_job_def("own")
        self.project.execute(merged, partition=partition)

    def refusal(self) -> str:
        """What the release of January says to whoever starts it by hand; empty if it copies the records."""
        ran = self.run(RECORDS, partition="2001-01")
        if not ran.success:
            assert not (self.project.var / "confidential/trips/2001-01/r1/raw_trips.parquet").exists()
        return failure_text(ran)


def is_refused(said: str, why: str, of: str = "partition 2001-01-01 of lake/trips") -> bool:
    return f"OD-UPSTREAM: trips: the blocking check 'sound' of {of} {why} [nothing was spent" in said


@pytest.mark.parametrize("of", [None, MONTHS], ids=["of the asset", "of a partition"])
def test_a_release_waits_until_the_blocking_check_has_passed(project, of):
    team = Checked(project, of=of)
    assert team.tick("2001-02-10") == {"trips/geography": {None}}
    team.run(GEOGRAPHY)
    team.write_alone()
    assert team.tick("2001-02-11") == {}
    assert is_refused(team.refusal(), "has not run since")
    for day, outcome, why in ((12, False, "failed"), (13, None, "has not finished")):
        team.write(outcome)
        assert team.tick(f"2001-02-{day}") == {}
        assert is_refused(team.refusal(), why)
    if of is None:
        team.check(True)
    else:
        team.write(True)
    assert team.tick("2001-02-14")["trips/raw_trips"] == {"2001-01"}
    assert team.refusal() == ""


def test_a_whole_release_by_hand_is_refused_with_nothing_charged(project):
    team = Checked(project)
    team.write(False)
    ran = project.execute(team.definitions.resolve_job_def("trips_release"), partition="2001-01")
    assert is_refused(failure_text(ran), "failed")
    assert not project.component().project.var.joinpath("releases").exists()
    assert not team.project.instance.get_run_by_id(ran.run_id).tags.get("od/rho")


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([("write", dg.AssetCheckSeverity.WARN)], ""),
        ([("write", False), ("check", True)], ""),
        ([("write", True), ("check", False)], "failed"),
        ([("write", True), ("check", None)], "has not finished"),
        ([("write", True), ("check", None), ("check", True)], ""),
        ([("write", True), ("write_alone",)], "has not run since"),
        ([("write_alone",), ("write", True, FEBRUARY)], ""),  # a check of the whole asset
        ([("write", False), ("write", True, FEBRUARY)], "failed"),  # which may have looked at February alone
        ([("write", None), ("write", True, FEBRUARY)], "has not finished"),
        ([("write", True), ("write", False, FEBRUARY)], ""),
    ],
)
def test_the_newest_result_of_what_is_read_counts(project, steps, why):
    team = Checked(project)
    team.run(GEOGRAPHY)
    for name, *arguments in steps:
        getattr(team, name)(*arguments)
    said = team.refusal()
    assert is_refused(said, why) if why else said == ""


def test_each_day_of_a_month_must_have_passed(project):
    team = Checked(project, DAYS, of=DAYS)
    team.run(GEOGRAPHY)
    for day in range(1, 32):
        team.write(day != 17, f"2001-01-{day:02d}")
    assert is_refused(team.refusal(), "failed", "partition 2001-01-17 of lake/trips")


def test_a_check_that_does_not_block_is_ignored(project):
    team = Checked(project, blocking=False)
    team.run(GEOGRAPHY)
    team.write(False)
    assert "trips/raw_trips" not in team.tick("2001-02-10")  # the first evaluation sees no update
    assert team.refusal() == ""


@pytest.mark.parametrize(
    ("steps", "blocking", "why"),
    [
        ([("write", False)], True, "failed"),
        ([("write", None)], True, "has not finished"),
        ([("write", False)], False, ""),
        ([("write", False), ("check", True)], True, ""),
        ([("write", False), ("write_alone",)], True, ""),  # the check may be gone since
    ],
)
def test_checks_of_another_code_location_are_known_by_their_results(project, steps, blocking, why):
    elsewhere = Checked(project, blocking=blocking)
    elsewhere.run(GEOGRAPHY)
    for name, *arguments in steps:
        getattr(elsewhere, name)(*arguments)
    here = dg.Definitions(assets=[dg.AssetSpec(KEY, partitions_def=MONTHS)])
    merged = dg.Definitions.merge(project.definitions(elsewhere.series), here)
    elsewhere.job = merged.resolve_implicit_global_asset_job_def()
    said = elsewhere.refusal()
    assert is_refused(said, why) if why else said == ""


def test_a_public_list_must_have_passed_its_checks_too(project):
    series = project.component(geography__asset="lake/zones")
    outcomes = {"passed": False}

    @dg.asset(key=LISTS)
    def zones() -> None: ...

    @dg.asset_check(asset=zones, blocking=True)
    def sound() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=outcomes["passed"])

    team = dg.Definitions(assets=[zones], asset_checks=[sound])
    job = dg.Definitions.merge(project.definitions(series), team).resolve_implicit_global_asset_job_def()

    def run(key):
        return failure_text(project.execute(job, key))

    assert is_refused(run(GEOGRAPHY), "has not run since", "lake/zones")
    run(LISTS)
    assert is_refused(run(GEOGRAPHY), "failed", "lake/zones")
    outcomes["passed"] = True
    run(LISTS)
    assert run(GEOGRAPHY) == ""
