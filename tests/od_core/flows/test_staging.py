"""Counts on their way to a draw."""

from pathlib import Path

import pytest

from od_core import Budget, Geography, OdError, PrivacyUnit, ReleasePlan, plan_release
from od_core.ledger.staged_files import StagedFiles
from od_core.privacy.neighbours import NO_FAULTS


def plan(epsilon: str, geography: Geography) -> ReleasePlan:
    return plan_release(geography, unit=PrivacyUnit("trip"), budget=Budget(epsilon, "1e-8"), acceptance=NO_FAULTS)


def test_counts_of_a_run_that_died_are_of_no_plan(tmp_path: Path, airport_geography: Geography) -> None:
    """Neither of the plan that was counted for before, whose counts may be half replaced, nor of the new one."""
    staged, before, after = StagedFiles(tmp_path), plan("1", airport_geography), plan("2", airport_geography)
    staged.save_counts_for_plan(before, lambda: None)
    staged.refuse_other_plan(before)

    def dies() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        staged.save_counts_for_plan(after, dies)
    for either in (before, after):
        with pytest.raises(OdError, match="OD-STAGED-OTHER-PLAN"):
            staged.refuse_other_plan(either)
