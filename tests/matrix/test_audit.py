"""The audit of sensitivities: its table in the documentation, and defects that it finds."""

import re
from pathlib import Path

import pytest

from od_core.privacy.neighbours import Neighbours
from od_core.privacy.unit import PrivacyUnit
from tests.matrix.audit import TRIES, audit, table_of
from tests.matrix.options import OPTIONS, stored_rows

ROWS = stored_rows(refused=False)
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "assurance.md"


def test_no_change_is_above_its_sensitivity_and_the_page_has_the_largest():
    faults = list[str]()
    found, _ = audit(ROWS, TRIES, faults.append)
    assert faults == []
    assert table_of(found) in PAGE.read_text(encoding="utf-8")


def a_replaced_unit_changes_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrivacyUnit, "differing_units", property(lambda _: 1))


def leaves_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = Neighbours.sensitivity_squared

    def of_leaves(neighbours, level, *, by_segment=False):
        leaves = next(number for number, sizes in enumerate(neighbours.nodes) if sizes[0][0] == 1)
        return sound(neighbours, leaves if level else level, by_segment=by_segment)

    monkeypatch.setattr(Neighbours, "sensitivity_squared", of_leaves)


def of_kind(kind: str, unit: str, neighbours: str) -> str:
    """The first row with these values."""
    wanted = {"kind": kind, "unit": unit, "neighbours": neighbours}
    return next(name for name, row in ROWS.items() if wanted.items() <= row.items())


@pytest.mark.parametrize(
    ("defect", "name"),
    [
        *((a_replaced_unit_changes_one_cell, of_kind(kind, "trip", "bounded")) for kind in OPTIONS["kind"]),
        (leaves_everywhere, of_kind("flows", "user pair", "unbounded")),
    ],
)
def test_a_sensitivity_that_is_too_small_is_found(monkeypatch, defect, name):
    one = {name: ROWS[name]}
    sound, broken = list[str](), list[str]()
    audit(one, 10, sound.append)
    defect(monkeypatch)
    audit(one, 10, broken.append)
    assert sound == []
    assert all(re.match(rf"{name}: step \d+ changes", fault) for fault in broken)
    assert broken
