"""The expectations allow the share of faults that the count allows, no less, and show no value."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pandas as pd
import pytest

from od_assets.checks.expectations import flows_meet_expectations, records_meet_expectations

from .conftest import ZONES, records

LISTED = tuple(ZONES["zone"])
CANARY = "CANARY77Q"


def loaded(faults: int) -> pd.DataFrame:
    frame = records(2000).assign(date=pd.Timestamp("2001-01-15"), in_period=True)
    frame.loc[: faults - 1, "origin"] = CANARY
    return frame


@pytest.mark.parametrize(("faults", "met"), [(0, True), (2, True), (3, False)])
def test_faulty_records_up_to_the_threshold(tmp_path: Path, faults: int, met: bool) -> None:
    outcome = records_meet_expectations(loaded(faults), LISTED, Fraction(1, 1000), tmp_path)
    assert all(outcome.values()) == met
    pages = list(tmp_path.rglob("*.html"))
    assert pages
    assert not [page for page in pages if CANARY in page.read_text(encoding="utf-8")]


def test_a_missing_column_is_found(tmp_path: Path) -> None:
    outcome = records_meet_expectations(loaded(0).drop(columns="date"), LISTED, Fraction(1, 1000), tmp_path)
    assert not outcome["expect_column_to_exist: date"]


@pytest.mark.parametrize(
    ("change", "unmet"),
    [
        (lambda flows: flows, None),
        (lambda flows: flows.assign(trips=[0, 1]), "expect_column_values_to_be_between: trips"),
        (lambda flows: flows.assign(trips=[1.0, 2.0]), "expect_column_values_to_be_of_type: trips"),
        (lambda flows: flows.assign(origin="Z99"), "expect_column_values_to_be_in_set: origin"),
        (lambda flows: flows.assign(destination="Z00"), "expect_compound_columns_to_be_unique: published_flows"),
    ],
)
def test_published_flows(tmp_path: Path, change: object, unmet: str | None) -> None:
    sound = pd.DataFrame({"origin": ["Z00", "Z00"], "destination": ["Z00", "Z01"], "trips": [3, 1]})
    outcome = flows_meet_expectations(change(sound), LISTED, LISTED, tmp_path)  # type: ignore[operator]
    assert [name for name, met in outcome.items() if not met] == ([] if unmet is None else [unmet])
