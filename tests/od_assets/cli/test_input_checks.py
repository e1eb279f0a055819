"""An input is judged as a release would judge it; what is found of records stays in the confidential folder."""

import re
import shutil
import stat
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from od_assets.cli.diagnosis import Finding, inspect_records_of_period
from od_assets.failures import describe_failures
from tests.od_assets.conftest import ZONES, Project, records, states

pytestmark = pytest.mark.usefixtures("one_scratch_database")


def input_of(project: Project, component: Any = None) -> tuple[Finding, str]:
    """What is said of January, and the file of details; nothing else is there but that file."""
    settings = (component or project.component()).require_valid()
    before = states(project.root)
    (finding,) = inspect_records_of_period(settings, "2001-01")
    made = {name for name in states(project.root) if name not in before}
    details = [name for name in made if name.endswith(".txt")]
    assert made - set(details) <= {"var", "var/confidential", "var/confidential/errors"}
    if not details:
        return finding, ""
    path = project.root / details[0]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert f"read {path}" in (finding.next_step or finding.what)
    return finding, path.read_text()


def changed(rows: int, column: str, value: Any, frame: pd.DataFrame | None = None) -> pd.DataFrame:
    frame = (records() if frame is None else frame).astype(object)
    frame.iloc[:rows, frame.columns.get_loc(column)] = value
    return frame


def test_a_whole_input_would_not_be_refused(project):
    finding, detail = input_of(project)
    assert finding.ok
    assert "would not be refused" in finding.what
    assert "origin_unlisted: 0 of 2000 records" in detail


@pytest.mark.parametrize("column", ["origin", "destination", "date"])
def test_faults_are_refused_above_the_threshold_and_not_at_it(project, column):
    value = "2001-02-01" if column == "date" else "Z99"
    kind = "outside_period" if column == "date" else f"{column}_unlisted"
    allowed = project.component(trips__fault_threshold="1/1000")
    project.write_records(changed(2, column, value))
    assert input_of(project, allowed)[0].ok  # 2 of 2000 are a thousandth
    project.write_records(changed(3, column, value))
    finding, detail = input_of(project, allowed)
    assert str(finding.fault).startswith("the input would be refused")
    assert f"{kind}: 3 of 2000 records" in detail
    assert "row,date,origin,destination,in_period" in detail
    assert "  3," in detail


def test_faults_of_several_kinds_are_refused_together(project):
    """Two of a kind are allowed, two of each of two kinds are not: the count of trips judges that."""
    project.write_records(pd.concat([changed(2, "origin", "Z99")[:2], changed(2, "destination", "Z99")]))
    finding, detail = input_of(project, project.component(trips__fault_threshold="1/1000"))
    assert str(finding.fault).startswith("the input would be refused")
    assert "OD-TRIPS-FAULTS" in detail


def test_codes_that_lost_their_zeros_are_counted(project):
    zones = pd.DataFrame({"region": ["1", "1", "2"], "zone": ["0101", "0102", "1203"]})
    zones.to_csv(project.root / "zones.csv", index=False)
    frame = pd.DataFrame({"date": "2001-01-03", "origin": ["101", "102", "7", "01010", "1203"], "destination": "1203"})
    project.write_records(frame)
    finding, detail = input_of(project)
    assert str(finding.fault).startswith("the input would be refused")
    assert "origin_unlisted: 4 of 5 records" in detail
    assert "origin_that_lost_its_zeros: 2 of 4 records" in detail


def test_a_file_that_is_not_there_or_not_whole_is_said(project):
    component = project.component(arrivals={"settled_seconds": 0, "complete": "{period}.sha256"})
    assert input_of(project, component)[0].fault == (
        "OD-FILE-INCOMPLETE: 2001-01.csv may be incomplete: there is no file 2001-01.sha256"
    )
    (project.root / "2001-01.sha256").write_text(f"{'0' * 64}  2001-01.csv\n")
    finding, detail = input_of(project, component)
    assert str(finding.fault).startswith("the input would be refused")
    assert "OD-FILE-INCOMPLETE" in detail
    (project.root / "2001-01.csv").unlink()
    shutil.rmtree(project.var)
    assert input_of(project, component)[0].fault == "OD-FILE-MISSING: there is no file 2001-01.csv"
    assert not project.var.exists()


def test_codes_of_groups_are_read_as_a_run_reads_them(project):
    """A group may be called what is no place elsewhere: it is not sent to the zone of unknown places."""
    pd.DataFrame({"taxi": ["x", "y"], "zone": ["Z00", "Z11"]}).to_csv(project.root / "groups.csv", index=False)
    pd.DataFrame({"taxi": ["x", "y"] * 9, "date": "2001-01-15"}).to_csv(project.root / "2001-01.csv", index=False)
    component = project.group_sizes(
        trips={"files": "{period}.csv", "columns": {"group": "taxi", "date": "date"}, "nowhere": ["x"]},
        groups={"file": "groups.csv", "group": "taxi", "area": "zone"},
        geography={"file": "zones.csv", "levels": ["region", "zone"], "unknown": "Z00"},
    )
    finding, detail = input_of(project, component)
    assert finding.ok, detail


def test_inputs_of_other_kinds_are_judged_too(project):
    ZONES.assign(latitude=range(6), longitude=range(6)).to_csv(project.root / "zones.csv", index=False)
    stops = records().assign(stop="Z00")
    for component in (project.group_sizes(), project.stops()):
        project.write_records(stops)
        assert input_of(project, component)[0].ok
        project.write_records(changed(3, "origin", "Z99", stops))
        assert str(input_of(project, component)[0].fault).startswith("the input would be refused")


def test_unlisted_categories_are_no_faults_where_a_category_is_declared_for_them(project):
    project.write_records(records().assign(mode="tram"))
    modes = {"mode": {"categories": ["car", "bus", "other"], "unknown": "other"}}
    finding, detail = input_of(project, project.component(segments=modes))
    assert finding.ok
    assert "tram" not in detail


def as_parquet(frame: pd.DataFrame) -> Callable[[Project], None]:
    return lambda project: frame.to_parquet(project.root / "2001-01.parquet")


def as_csv(frame: pd.DataFrame) -> Callable[[Project], None]:
    return lambda project: project.write_records(frame)


def without_file(project: Project) -> None:
    (project.root / "2001-01.csv").unlink()


MARKED = {"arrivals": {"complete": "{period}.sha256"}}
PARQUET = {"trips__files": "{period}.parquet"}
FOLDERS = {"trips__files": "lake/{period}"}
COUNTS = {"trips__columns": {"date": "date", "trips": "n"}}
USERS = {"domain__unit": "user_period", "domain__column": "user", "bounds__max_trips": 3}
MODES = {"segments": {"mode": {"categories": ["car", "bus"]}}}
TRAMS = records().assign(mode=["car"] * 1997 + ["tram"] * 3)
NOON = pd.Timestamp("2001-01-15 12:00", tz="UTC")


def as_data_set(*names: str, log: str = "") -> Callable[[Project], None]:
    """Write the records to files of these names, the same to all, in the folder of January below a lake."""

    def write(project):
        folder = project.root / "lake" / "2001-01"
        folder.mkdir(parents=True)
        for name in names:
            (records().to_parquet if name.endswith(".parquet") else records().to_csv)(folder / name, index=False)
        if log:
            (folder.parent / log).mkdir()

    return write


REFUSED: dict[str, tuple[Callable[[Project], None], dict[str, Any], str]] = {
    "no file": (without_file, {}, "OD-FILE-MISSING"),
    "no file and no marker": (without_file, MARKED, "OD-FILE-MISSING"),
    "no marker": (lambda _: None, MARKED, "OD-FILE-INCOMPLETE"),
    "no column": (as_csv(records().rename(columns={"origin": "from"})), {}, "OD-TRIPS-COLUMN"),
    "codes are numbers": (as_parquet(records().assign(origin=1)), PARQUET, "OD-TRIPS-NOT-TEXT"),
    "times with a zone": (as_parquet(records().assign(date=NOON)), PARQUET, "OD-TRIPS-DATE"),
    "unclear rows": (as_csv(records().assign(count="1")), {}, "OD-TRIPS-ROWS"),
    "unlisted zones": (as_csv(changed(3, "origin", "Z99")), {}, "OD-CHECK-FAILED"),
    "another period": (as_csv(changed(3, "date", "2001-02-01")), {}, "OD-CHECK-FAILED"),
    "missing users": (as_csv(changed(5, "user", "", records().assign(user="u1"))), USERS, "OD-CHECK-FAILED"),
    "unlisted zones of flows": (as_csv(changed(3, "origin", "Z99", records().assign(n=1))), COUNTS, "OD-TRIPS-FAULTS"),
    "unlisted categories": (as_csv(TRAMS), MODES, "OD-CHECK-FAILED"),
    "unlisted categories of flows": (as_csv(TRAMS.assign(n=1)), {**MODES, **COUNTS}, "OD-TRIPS-FAULTS"),
    "no column of categories": (as_csv(records()), MODES, "OD-TRIPS-COLUMN"),
    "negative counts": (as_csv(records().assign(n=-1)), COUNTS, "OD-TRIPS-COUNT"),
    "no records": (as_csv(records(0)), {}, "OD-TRIPS-NONE"),
    "a partition of Delta": (as_data_set("a.parquet", log="_delta_log"), FOLDERS, "OD-FILE-INCOMPLETE"),
    "a partition of Hudi": (as_data_set("a.parquet", log=".hoodie"), FOLDERS, "OD-FILE-INCOMPLETE"),
    "a wildcard": (as_data_set("a.parquet"), {"trips__files": "lake/{period}/*.parquet"}, "OD-FILE-MISSING"),
    "a copy": (as_data_set("a.parquet", "b.parquet"), FOLDERS, "OD-FILE-REPEATED"),
    "two containers": (as_data_set("a.parquet", "a.csv"), FOLDERS, "OD-FILE-REPEATED"),
}
"""What is wrong with an input, the declaration, and the code of the refusal."""


@pytest.mark.representatives(
    "no file and no marker", "times with a zone", "unlisted categories", "a partition of Delta", "a copy"
)
@pytest.mark.parametrize("what", REFUSED)
def test_what_a_release_refuses_is_found_with_the_same_line(project, what):
    write, declared, code = REFUSED[what]
    write(project)
    component = project.component(**declared)
    finding, detail = input_of(project, component)
    if "unlisted" in what:  # what is found of records is in the file of details alone
        assert re.search("Z99|tram", detail)
    assert not re.search("Z99|tram", f"{finding.what} {finding.fault} {finding.next_step}")
    (line,) = describe_failures(project.run(component).all_events)
    assert f"{code}: " in line
    assert re.match(r"(OD-CHECK-FAILED: )?trips/\w+: ", line)
    assert "__" not in line
    assert f"{code}: " in str(finding.fault)
    assert str(finding.fault).partition(f"{code}: ")[2] in line
    if code.startswith("OD-FILE"):
        step, _, detail = str(finding.next_step).partition("; read ")  # a file of each
        assert f"next: {step}{'; read ' if detail else ']'}" in line
