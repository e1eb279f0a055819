"""Gray-box audit of a year: the noisy measurements of all its releases tell no more of a user than the ledger states.

The auditor of ``test_audit.py`` knows all records of two years that differ in one user, and the noise. The releases are
planned so that the largest rho of a user, by :func:`compute_largest_rho`, is 1 for the whole year. Their counts are
made by the library from records of several users, with counters of users in a confidential folder. Then the same
defects as in the other audits are planted in what a year adds: its bound, its counters, its revisions, and whose
records decide a cut.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from od_core import Budget, Geography, Ledger, PrivacyUnit, plan_release
from od_core.flows.release import run_plan
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import MemoryMeasurements
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.user_counters import UserCounters
from od_core.privacy.budget import Cap
from od_core.privacy.domain import CALENDAR, PrivacyDomain, compute_largest_rho
from od_core.privacy.neighbours import NO_FAULTS, Neighbours
from od_core.records.counting import count_trips
from tests.statistical.laws import ALPHA
from tests.statistical.test_audit import (
    CLAIM,
    Asked,
    Level,
    chance_to_miss,
    chance_to_show,
    least_mu,
    signs,
    true_error,
    wrong_guesses,
)

M, M_YEAR = 4, 8
UNIT = PrivacyUnit("user_year", "unbounded", "user", M, max_trips_year=M_YEAR, id_pattern="[a-z]+[0-9]*")
BOUNDED = replace(UNIT, neighbours="bounded")

MONTHS = ("2001-01/r1", "2001-02/r1", "2001-03/r1", "2001-04/r1")
REVISED = ("2001-01/r1", "2001-01/r2", "2001-02/r1", "2001-03/r1")

Person = dict[str, str]
"""The zone of all trips of a person in each month; more than m in every one."""

ALWAYS: Person = {key[:7]: "a" for key in MONTHS}
WINTER, SPRING = (dict.fromkeys(months, "a") for months in (tuple(ALWAYS)[:2], tuple(ALWAYS)[2:]))
OTHERS = {f"v{number}": SPRING if number % 2 else WINTER for number in range(20)}


def levels_of_year(
    folder: Path,
    unit: PrivacyUnit = UNIT,
    releases: Sequence[str] = MONTHS,
    of_month: Callable[[str], str] = lambda release: release[:7],
    before: Person | None = None,
    after: Person | None = ALWAYS,
) -> list[Level]:
    """Return the measured levels of all releases of two years, which differ in one person.

    Args:
        folder: folder for the two ledgers, with their counters.
        unit: the unit.
        releases: periods and revisions, in the order in which they are counted.
        of_month: the period to which a release is charged.
        before, after: records of the person in either year; None if the person is not there.
    """
    charged: dict[str, int] = {}
    for release in releases:
        charged[of_month(release)] = charged.get(of_month(release), 0) + 1
    rho = 1 / compute_largest_rho(map(Fraction, charged.values()), M, M_YEAR)
    geography = Geography.from_frame(pd.DataFrame({"zone": ["a", "b"]}), ["zone"])
    budget = Budget(rho=rho, delta="1e-8")
    plan = plan_release(geography, unit=unit, budget=budget, mechanism="inftda", acceptance=NO_FAULTS)
    sides, asked = [], Asked()
    for name, person in (("before", before), ("after", after)):
        people = OTHERS | ({} if person is None else {"u": person})
        ledger = Ledger(folder / name / "ledger.sqlite")
        ledger.declare(PrivacyDomain("panel", unit, Cap(rho=1), "an audit"))
        confidential = ConfidentialFolder(folder / name / "confidential")
        (confidential.path / "hmac.key").write_bytes(bytes(range(32)))
        counted = []
        for release in releases:
            key = ReleaseKey.parse(f"panel/{release}")
            rows = [(user, zones[key.period], "b") for user, zones in people.items() if key.period in zones]
            flows = pd.DataFrame(rows * (M + 1), columns=["user", "origin", "destination"])
            counters = UserCounters(confidential, ledger, key, "panel", unit, "month", CALENDAR)
            trips = count_trips(
                flows, plan.tree, unit=unit, key=confidential.read_or_make_key(), period=key.period, counters=counters
            )
            made = run_plan(plan, trips, asked, MemoryMeasurements())
            counted += [measurement.noisy.read_values() for measurement in made.measured]
        sides.append(counted)
    variances = [asked.variances[step.level] for step in plan.steps] * len(releases)
    return [Level(*level) for level in zip(variances, *sides, strict=True)]


TWO_USERS = {"before": WINTER, "after": SPRING}
"""A user who is replaced by another one with trips in other months."""


@pytest.mark.parametrize("releases", [MONTHS, MONTHS[::-1], REVISED])
def test_a_year_tells_all_that_is_stated_and_no_more(tmp_path, releases):
    """Fails with probability 1e-6 each."""
    levels = levels_of_year(tmp_path, releases=releases)
    assert chance_to_show(true_error(levels, signs)) < ALPHA
    assert chance_to_miss(true_error(levels, signs), mu=0.95 * CLAIM) < ALPHA
    assert 0.95 * CLAIM < least_mu(wrong_guesses(levels, signs)) <= CLAIM


def test_a_year_of_a_replaced_user_tells_all_that_is_stated_and_no_more(tmp_path):
    """Fails with probability 1e-6. The totals of all four months change, too."""
    levels = levels_of_year(tmp_path, BOUNDED, **TWO_USERS)
    assert [int(abs(level.change).sum()) for level in levels] == [M] * len(levels)
    assert chance_to_show(true_error(levels, signs)) < ALPHA
    assert 0.95 * CLAIM < least_mu(wrong_guesses(levels, signs)) <= CLAIM


def m_of_the_year_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    monkeypatch.setattr(UserCounters, "_list_checked_files", lambda _counters, left_out=None: {})
    return levels_of_year(tmp_path)


def a_counter_lost_in_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    """The counts of January are used, although the process ended before it wrote their counters."""
    store = UserCounters.store_or_compare
    monkeypatch.setattr(
        UserCounters,
        "store_or_compare",
        lambda counters, batches: None if counters.key.period == "2001-01" else store(counters, batches),
    )
    return levels_of_year(tmp_path)


def a_revision_charged_as_a_further_month(tmp_path: Path, _monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    return levels_of_year(tmp_path, releases=REVISED, of_month=lambda release: release)


def a_cut_that_looks_at_other_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    """Everybody may have a trip less where the number of users who were counted before is odd."""
    allowances = UserCounters.compute_allowances

    def quota(counters):
        stated, others = allowances(counters), counters._list_checked_files(left_out=counters.key.period)
        users = sum(len(pd.read_parquet(path)) for paths in others.values() for path in paths)
        return replace(stated, others=stated.others - users % 2)

    monkeypatch.setattr(UserCounters, "compute_allowances", quota)
    return levels_of_year(tmp_path)


def a_total_that_is_taken_to_change_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Level]:
    """The sensitivity of the total of one release, m, for a year in which the totals of both users' months change."""
    asked = Neighbours.sensitivity_squared

    def of_one_release(neighbours, level, *, by_segment=False):
        return M**2 if level == 0 else asked(neighbours, level, by_segment=by_segment)

    monkeypatch.setattr(Neighbours, "sensitivity_squared", of_one_release)
    return levels_of_year(tmp_path, BOUNDED, **TWO_USERS)


@pytest.mark.parametrize(
    "defect",
    [
        m_of_the_year_forgotten,
        a_counter_lost_in_a_kill,
        a_revision_charged_as_a_further_month,
        a_cut_that_looks_at_other_users,
        a_total_that_is_taken_to_change_once,
    ],
)
def test_a_defect_of_a_year_is_caught(tmp_path, monkeypatch, defect):
    """Fails with probability 1e-6 each: so seldom the defect is missed."""
    levels = defect(tmp_path, monkeypatch)
    assert chance_to_miss(true_error(levels, signs)) < ALPHA
    assert least_mu(wrong_guesses(levels, signs)) > CLAIM


def test_the_counts_of_a_year_are_those_of_the_first_months(tmp_path):
    """The audit's own worlds: the person's change is m in two months of four, and nobody else's counts move."""
    levels = levels_of_year(tmp_path)
    assert [int(level.change.sum()) for level in levels] == [M] * 6 + [0] * 6
    np.testing.assert_array_equal([level.before.sum() for level in levels], [10 * M] * 12)
