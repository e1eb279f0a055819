"""The workbook of a bundle: what is in its sheets, and which flows are left out of a large one."""

import io

import pytest

from od_core.flows.publishing import flow_files
from od_core.flows.publishing.flow_files import write_flow_workbook
from od_core.flows.publishing.flow_tables import FlowTables
from tests.od_core.publication.examples import facts, release
from tests.od_core.publication.test_workbook import read_workbook


def written(kind: str = "bounded", *, intervals: bool = True) -> dict[str, list[list[str | int]]]:
    certificate, file = facts(release(kind), intervals=intervals), io.BytesIO()
    write_flow_workbook(FlowTables.from_release(release(kind), certificate), certificate, file)
    return read_workbook(file)


def test_a_large_sheet_has_the_largest_flows_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_files, "MAX_SHEET_ROWS", 5)
    sheets, flows = written(), release().flows_at("zone", "zone", interval=True)
    line, _, *rows = sheets["zone_zone"]
    assert line == ["Flows from zone to zone: 49 rows in all, the 5 largest, largest first"]
    expected = flows.sort_values("trips", ascending=False, kind="stable").head(5)
    assert rows == expected.to_numpy(object).tolist()
    assert ["zone_zone", 5, 44, flows["trips"].sum()] in sheets["Read me"]
    assert "at most 5 rows" in str(sheets["Read me"])


def test_names_of_levels_that_are_too_long_for_sheets_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_files, "_MAX_SHEET_NAME_LENGTH", 10)
    assert list(written())[-1] == "3_3"
