"""What a year of releases costs two neighbouring inputs, and planted defects of counting, storing and charging."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from od_core import OdError, ReleaseKey
from tests.od_core.ledger.person_years import (
    FEBRUARY,
    JANUARY,
    MARCH,
    REVISED,
    WALKERS,
    Mutant,
    PersonYear,
    Trip,
    by_origin,
    charge_the_root_of_a_year_as_one_of_a_period,
    count_a_revision_afresh,
    forget_the_year,
    lose_the_counters,
    pairs,
    plan_of,
    recompute_allowances,
    rho_between,
    share_one_counter,
    skip_the_check_of_the_year,
    trips_of,
)

pytestmark = pytest.mark.usefixtures("one_scratch_database")

ORDER = (JANUARY, MARCH, FEBRUARY, REVISED, WALKERS)
OTHERS = trips_of("bob", 3, zone=1) + trips_of("cy", 1, zone=2)
Months = dict[str, list[Trip]]


def same(user: str, zone: int) -> Months:
    """Two trips of a user in each month, all in one leaf pair, which costs most."""
    return {key.period: [(user, f"z{zone}", f"z{zone}")] * 2 for key in ORDER}


def released(
    folder: Path, neighbours: str, months: Months, m: int, most: int, order: Sequence[ReleaseKey]
) -> PersonYear:
    year = PersonYear(folder, m, most, neighbours)
    for key in order:
        year.finish(key, OTHERS + months.get(key.period, []))
    return year


def cost(tmp_path: Path, neighbours: str, one: Months, other: Months, *, m=2, most=3, order=ORDER) -> tuple:
    """The rho between two inputs by the noise that was planned, and the rho that the ledger states."""
    both = (("one", one), ("other", other))
    years = [released(tmp_path / name, neighbours, months, m, most, order) for name, months in both]
    (balance,) = years[0].ledger.balances()
    assert balance.spent == years[1].ledger.balances()[0].spent
    return rho_between(*years), balance.spent


def test_an_added_user_costs_exactly_what_the_ledger_states(tmp_path: Path) -> None:
    """Two trips in January, which two series count, and one in the next month that is counted, and its revision."""
    found, stated = cost(tmp_path, "unbounded", same("ann", 5), {}, order=(JANUARY, WALKERS, FEBRUARY, REVISED, MARCH))
    assert found == stated


def test_a_replaced_user_costs_exactly_what_the_ledger_states_if_the_two_are_in_different_months(
    tmp_path: Path,
) -> None:
    one, other = {"2001-01": [("ann", "z0", "z0")]}, {"2001-02": [("dee", "z5", "z5")]}
    found, stated = cost(tmp_path, "bounded", one, other, m=1, most=1, order=(JANUARY, FEBRUARY))
    assert found == stated


def test_a_replaced_user_never_costs_more_than_the_ledger_states(tmp_path: Path) -> None:
    found, stated = cost(tmp_path, "bounded", same("ann", 5), same("dee", 4))
    assert found <= stated


def holds_the_cost(neighbours: str, one: Months, other: Months, **given: object) -> Callable[[Path], None]:
    def holds(folder: Path) -> None:
        found, stated = cost(folder, neighbours, one, other, **given)  # type: ignore[arg-type]
        assert found <= stated

    return holds


def holds_the_year(folder: Path) -> None:
    year = PersonYear(folder, 2, 3)
    counted = [by_origin(year.finish(key, trips_of("ann", 4))) for key in (JANUARY, FEBRUARY, MARCH)]
    assert sum(sum(each.values()) for each in counted) <= 3


def counts_a_revision_alike(folder: Path) -> None:
    year = PersonYear(folder, 2, 3)
    first = [pairs(year.finish(key, trips_of("ann", 4))) for key in (JANUARY, FEBRUARY)]
    assert pairs(year.finish(REVISED, trips_of("ann", 4))) == first[1]


def replays_alike(folder: Path) -> None:
    """What the year leaves to February grows after it was drawn, because January is corrected."""
    year = PersonYear(folder, 2, 2)
    year.count(JANUARY, trips_of("ann", 1))
    first = pairs(year.finish(FEBRUARY, trips_of("ann", 3)))
    assert sum(first.values()) == 1
    year.finish(JANUARY, trips_of("bob", 1))
    assert pairs(year.finish(FEBRUARY, trips_of("ann", 3))) == first


def looks_at_no_other(folder: Path) -> None:
    """Another user has trips in January alone."""
    counted = []
    for name, others in (("alone", []), ("with another", trips_of("bob", 3, zone=1))):
        year = PersonYear(folder / name, 1, 1)
        year.finish(JANUARY, others)
        counted.append(by_origin(year.finish(FEBRUARY, trips_of("ann", 2))))
    assert counted[0] == counted[1] == {"z0": 1}


def both(*mutants: Mutant) -> Mutant:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for mutant in mutants:
            mutant(patch)

    return plant


PLANTED: dict[str, tuple[Mutant, Callable[[Path], None], type[Exception]]] = {
    "M is forgotten": (both(forget_the_year, skip_the_check_of_the_year), holds_the_year, AssertionError),
    "M is forgotten in what is counted": (forget_the_year, holds_the_year, OdError),
    "M is forgotten, by its cost": (
        both(forget_the_year, skip_the_check_of_the_year),
        holds_the_cost("unbounded", same("ann", 5), {}, order=(JANUARY, FEBRUARY)),
        AssertionError,
    ),
    "counters lost in a kill": (lose_the_counters, holds_the_year, OdError),
    "a revision counted afresh": (count_a_revision_afresh, counts_a_revision_alike, AssertionError),
    "a replay that computes allowances": (recompute_allowances, replays_alike, OdError),
    "a cut that looks at others": (share_one_counter, looks_at_no_other, AssertionError),
}


@pytest.mark.representatives("M is forgotten", "a revision counted afresh", "a cut that looks at others")
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_is_found(tmp_path, monkeypatch, name):
    plant, holds, found = PLANTED[name]
    plant(monkeypatch)
    with pytest.raises(found):
        holds(tmp_path)


@pytest.mark.representatives("holds_the_year", "looks_at_no_other")
@pytest.mark.parametrize("holds", list(dict.fromkeys(holds for _, holds, _ in PLANTED.values())))
def test_the_product_without_a_defect_passes(tmp_path, holds):
    holds(tmp_path)


def test_a_root_that_counts_m_squared_is_found(tmp_path, monkeypatch):
    """Two users of different months change both totals, by m each."""
    plan_of.cache_clear()
    charge_the_root_of_a_year_as_one_of_a_period(monkeypatch)
    one, other = {"2001-01": [("ann", "z0", "z0")]}, {"2001-02": [("dee", "z5", "z5")]}
    try:
        found, stated = cost(tmp_path, "bounded", one, other, m=1, most=1, order=(JANUARY, FEBRUARY))
    finally:
        plan_of.cache_clear()
    assert found > stated
