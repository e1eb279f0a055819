"""The bound of a person's trips in a year: brute force over all records of a user.

The oracle counts and draws tiny worlds step by step. No user costs more than is stated, and some user costs exactly
that. The rule holds in every order of counting, with revisions, several series, recounts, lost draws and kills.
``tests/od_core/ledger/test_year_mutants.py`` plants defects of it in the product.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain, combinations_with_replacement, permutations, product
from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.privacy.domain import compute_largest_rho
from tests.od_core.oracles.person_year import (
    File,
    Record,
    Records,
    Release,
    Step,
    Year,
    breaches,
    largest_by_search,
    largest_replaced,
    largest_replaced_by_search,
    others_moved,
    renyi,
    rho_between,
    spent,
    table,
    vectors,
)

PERIODS = (1, 2, 3)
BOUNDS = [(m, most) for m in range(1, 5) for most in range(m, 5)] + [(2, 5), (2, 6)]
"""All m up to 4 with M from m to 4; then M between 2 m and 3 m, and M that never binds."""


def release_of(name: str, period: int, variances: Sequence[str], kinds: str = "car bus") -> Release:
    """A release whose levels have these variances, from the root on; "-" if a level is not measured."""
    measured = {level: Fraction(text) for level, text in enumerate(variances) if text != "-"}
    return Release(name, period, measured, frozenset(kinds.split()))


VARIANCES = (["7", "4", "3"], ["9", "5", "7/2"], ["8", "3", "5/2"])
ALL = [release_of(f"all/{t}", t, variances) for t, variances in zip(PERIODS, VARIANCES, strict=True)]
"""A series of every period, which sees all records."""
REVISED = release_of("all/2/r2", 2, ["10", "6", "9/2"])
CARS = release_of("cars/1", 1, ["11", "-", "5"], "car")
"""A series that sees cars alone."""


EVERYTHING = release_of("again/1", 1, ["11", "-", "5"])
"""The same as ``CARS``, but it sees all records."""

Releases = tuple[Release, Release, Release, Release, Release]
FILTERED: Releases = (*ALL, REVISED, CARS)  # type: ignore[assignment]
UNFILTERED: Releases = (*ALL, REVISED, EVERYTHING)  # type: ignore[assignment]


def in_time(one: Release, two: Release, three: Release, revised: Release, cars: Release) -> list[Step]:
    return [Step("finish", release) for release in (one, cars, two, three, revised)]


def backwards(one: Release, two: Release, three: Release, revised: Release, cars: Release) -> list[Step]:
    return [Step("finish", release) for release in (three, revised, cars, two, one)]


def with_kills(one: Release, two: Release, three: Release, revised: Release, cars: Release) -> list[Step]:
    """Kills between counters and counts, a lost draw, recounts, and a series that is drawn long after its count."""
    steps = ["killed 2", "count c", "lost 3", "killed 3", "finish 1", "finish 3", "killed 2", "finish 2", "count 1"]
    steps += ["finish r", "finish c", "count 3", "count r"]
    named = {"1": one, "2": two, "3": three, "r": revised, "c": cars}
    return [Step(what, named[name]) for what, name in map(str.split, steps)]


ORDERS: list[Callable[..., list[Step]]] = [in_time, backwards, with_kills]

W = (Record(1, "bb", "bus"), Record(2, "aa"), Record(2, "aa"), Record(2, "ab"), Record(3, "bb"))
OTHERS: File = {"v": tuple(Record(t, leaf) for t in PERIODS for leaf in ("aa", "ab")), "w": W}


def records_of(size: int, cells: Sequence[tuple[str, str]]) -> list[Records]:
    """All records of a user with at most ``size`` of them in each period."""
    chosen = [cells_of for k in range(size + 1) for cells_of in multisets(cells, k)]
    of_period = [[tuple(Record(t, *cell) for cell in one) for one in chosen] for t in PERIODS]
    return [tuple(chain(*parts)) for parts in product(*of_period)]


def multisets(cells: Sequence[tuple[str, str]], size: int) -> list[tuple[tuple[str, str], ...]]:
    return list(combinations_with_replacement(cells, size))


def worlds(m: int) -> list[Records]:
    """All records of the user who changes: with few trips of more kinds and more than m of them, or up to m trips.

    With four, those of a period are in one cell, as those of the user who costs most are.
    """
    if m == 1:
        return records_of(2, [("aa", "car"), ("bb", "car"), ("ab", "bus")])
    if m == 2:
        return records_of(2, [("aa", "car"), ("bb", "car"), ("bb", "bus")])
    if m == 3:
        return records_of(3, [("aa", "car"), ("bb", "car")])
    of_period = [[(), *((Record(t, leaf),) * k for leaf in ("aa", "bb") for k in range(1, m + 1))] for t in PERIODS]
    return [tuple(chain(*parts)) for parts in product(*of_period)]


CELLS = {0: [""], 1: ["a", "b"], 2: ["aa", "ab", "bb"]}


def answers(year: Year) -> tuple[int, ...]:
    """The counts of every cell of every measured level of every draw."""
    tables = [(level, table(draw, level)) for draw in year.draws for level in draw.release.variances]
    return tuple(counts[cell] for level, counts in tables for cell in CELLS[level])


class Explored:
    """All worlds of one order of counting: the draws, which are the same in all, and the answers to each input."""

    def __init__(self, m: int, most: int, releases: Releases, order: Callable[..., list[Step]]) -> None:
        steps = order(*releases)
        self.years: dict[tuple[int, ...], Year] = {}
        other = {"w": OTHERS["w"]}
        for records in worlds(m):
            year = Year(m, most, [{**other, "u": records}]).run(steps)
            assert breaches(year) == set()
            self.years.setdefault(answers(year), year)
        self.without = Year(m, most, [{**other, "u": ()}]).run(steps)
        self.draws = self.without.draws
        self.m, self.most = m, most

    def largest_added(self) -> Fraction:
        """The largest cost of a user who is added, by the definition."""
        assert not any(others_moved(year, self.without, "u") for year in self.years.values())
        return max(rho_between(year, self.without) for year in self.years.values())

    def largest_replaced(self, *, root: bool) -> Fraction:
        """The largest cost of a user who is replaced, over all pairs; the root counts or is left out."""
        levels = [(level, variance) for draw in self.draws for level, variance in draw.release.variances.items()]
        parts = [(level, 1 / (2 * variance) if level or root else Fraction(0)) for level, variance in levels]
        exact = [part for level, part in parts for _ in CELLS[level]]
        common = lcm(*(weight.denominator for weight in exact))
        factors = np.array([int(weight * common) for weight in exact], dtype=np.int64)
        values = np.array(list(self.years), dtype=np.int64) - np.array(answers(self.without), dtype=np.int64)
        weighted = values * factors
        norms = (values * weighted).sum(axis=1)
        costs = ((norms + norms[k] - 2 * (values @ weighted[k])) for k in range(len(values)))
        largest, one, other = max((int(cost.max()), k, int(cost.argmax())) for k, cost in enumerate(costs))
        if root:
            years = list(self.years.values())
            assert Fraction(largest, common) == rho_between(years[one], years[other])
        return Fraction(largest, common)

    def stated(self, root: int, below: int) -> Fraction:
        """What the ledger states if the squared sensitivities are these multiples of m^2."""
        amounts = spent(self.draws, {True: root * self.m**2, False: below * self.m**2})
        return compute_largest_rho(amounts.values(), self.m, self.most)

    def by_pairs_of_vectors(self) -> Fraction:
        """The largest cost of a replaced user if all releases of a period count the same records."""
        at_root, below = ([spent(self.draws, {True: k, False: 1 - k})[t] for t in PERIODS] for k in (1, 0))
        largest = largest_replaced_by_search(at_root, below, self.m, self.most)
        assert self.most % self.m or largest == largest_replaced(at_root, below, self.m, self.most)
        return largest


@cache
def explored(m: int, most: int, order: Callable[..., list[Step]], releases: Releases = FILTERED) -> Explored:
    return Explored(m, most, releases, order)


EVERY_WORLD = [
    pytest.param(m, most, order, id=f"{m}-{most}-{order.__name__}")
    for m, most in BOUNDS
    for order in ((in_time,) if m > 3 or most > min(2 * m, 4) else (in_time, with_kills) if m == 3 else ORDERS)
]
"""Kills and other orders with up to three trips in a month; larger bounds in one order."""


@pytest.mark.representatives
@pytest.mark.parametrize(("m", "most", "order"), EVERY_WORLD)
def test_an_added_user_costs_at_most_what_is_stated_and_some_user_exactly_that(m, most, order):
    found = explored(m, most, order)
    assert found.largest_added() == found.stated(root=1, below=1)


@pytest.mark.representatives
@pytest.mark.parametrize(("m", "most", "order"), EVERY_WORLD)
def test_a_replaced_user_costs_exactly_what_is_stated_if_the_root_is_not_measured(m, most, order):
    found = explored(m, most, order)
    assert found.largest_replaced(root=False) == found.stated(root=0, below=2)


@pytest.mark.representatives
@pytest.mark.parametrize(("m", "most", "order"), EVERY_WORLD)
def test_with_a_root_a_replaced_user_costs_at_most_what_is_stated_and_at_least_half_of_it(m, most, order):
    """The root counts 2 m^2. Two users in different periods reach that. In the same period, they cancel at the root."""
    found = explored(m, most, order)
    largest = found.largest_replaced(root=True)
    assert found.by_pairs_of_vectors() <= largest <= found.stated(root=2, below=2) <= 2 * largest


@pytest.mark.representatives("1-2", "2-2")
@pytest.mark.parametrize(("m", "most"), [(1, 1), (1, 2), (2, 2), (2, 3), (2, 4)])
def test_with_a_root_the_exact_cost_is_that_of_the_worst_pair_if_all_series_see_the_same_records(m, most):
    found = explored(m, most, backwards, UNFILTERED)
    assert found.largest_replaced(root=True) == found.by_pairs_of_vectors()


@pytest.mark.representatives("2-3")
@pytest.mark.parametrize(("m", "most"), [(1, 2), (2, 3)])
def test_what_is_counted_of_a_user_depends_on_that_user_alone(m, most):
    """Of three users with all combinations of records; and the draws of each are the same whoever else is there."""
    own = [tuple(Record(t, "aa") for t, k in zip(PERIODS, n, strict=True) for _ in range(k)) for n in vectors(3, 2, 6)]
    some = [records for records in own if len(records) % 2 == 0][::2]
    steps = with_kills(*FILTERED)
    counted: dict[tuple[str, Records], tuple[Records, ...]] = {}
    for u, v, w in product(own, some, some):
        file = {"u": u, "v": v, "w": w}
        year = Year(m, most, [file], key=1).run(steps)
        assert breaches(year) == set()
        for name, records in file.items():
            trips = tuple(draw.trips[name] for draw in year.draws)
            assert counted.setdefault((name, records), trips) == trips


@pytest.mark.representatives("2-3")
@pytest.mark.parametrize(("m", "most"), [(1, 1), (1, 2), (2, 3)])
def test_the_rule_holds_if_records_are_corrected_before_and_after_releases(m, most):
    """A corrected file may have any other records of the user; a drawn release is not counted from it."""
    one, two, three = ALL
    steps = [Step("count", one), Step("killed", two), Step("finish", three), Step("killed", one, 1), Step("lost", two)]
    steps += [Step("finish", one, 1), Step("finish", two), Step("finish", REVISED, 1), Step("finish", CARS, 1)]
    steps += [Step("count", one, 1), Step("count", two), Step("count", three)]
    own = [tuple(Record(t, "aa") for t, k in zip(PERIODS, n, strict=True) for _ in range(k)) for n in vectors(3, 2, 6)]
    costs = []
    without = Year(m, most, [{"v": OTHERS["v"], "u": ()}] * 2).run(steps)
    for before, after in product(own, own):
        year = Year(m, most, [{"v": OTHERS["v"], "u": records} for records in (before, after)]).run(steps)
        assert breaches(year) == set()
        assert not others_moved(year, without, "u")
        costs.append(rho_between(year, without))
    assert max(costs) == compute_largest_rho(spent(without.draws, {True: m**2, False: m**2}).values(), m, most)


# Adaptive releases

CAP = Fraction(1, 2)
FIRST = Fraction(1, 5)


def renyi_of_a_year(order: int, after_small: Fraction, after_large: Fraction) -> float:
    """Rényi divergence of two periods for a user with a trip in each, where the second follows the first result.

    One count is measured in each period: at a rho of ``FIRST``, and of one of the two numbers.
    """

    def with_shift(shift: int) -> float:
        small, large = (renyi(order, shift, rho, lambda _: 0.0) for rho in (after_small, after_large))
        return renyi(order, shift, FIRST, lambda result: large if result > 0 else small)

    return max(map(with_shift, (1, -1)))


@pytest.mark.parametrize("order", [2, 3, 8])
def test_the_cap_holds_if_the_noise_of_a_period_is_chosen_by_the_result_of_another(order):
    """What remains is spent after every result, only after a large one, or only after a small one."""
    rest = CAP - FIRST
    assert compute_largest_rho([FIRST, rest], 1, 2) == CAP
    for small, large in ((rest, rest / 100), (rest / 100, rest), (rest, rest)):
        assert renyi_of_a_year(order, small, large) <= order * float(CAP) + 1e-9


# The formula

AMOUNTS = st.fractions(min_value=0, max_value=10, max_denominator=30)


@given(st.lists(AMOUNTS, max_size=4), st.integers(1, 4), st.integers(0, 9))
def test_the_largest_rho_is_that_of_the_worst_numbers_of_trips(amounts, m, more):
    stated = compute_largest_rho(iter(amounts), m, m + more)
    assert type(stated) is Fraction
    assert stated == largest_by_search(amounts, m, m + more)


@given(st.lists(AMOUNTS, min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 300), AMOUNTS, st.randoms())
def test_the_largest_rho_grows_with_what_is_spent_and_does_not_depend_on_the_order(amounts, m, more, amount, random):
    stated = compute_largest_rho(amounts, m, m + more)
    shuffled = random.sample(amounts, len(amounts))
    assert compute_largest_rho(shuffled, m, m + more) == stated <= sum(amounts)
    grown = [amounts[0] + amount, *amounts[1:]]
    assert stated <= compute_largest_rho(grown, m, m + more) <= stated + amount
    assert stated <= compute_largest_rho([*amounts, amount], m, m + more) <= stated + amount
    if m + more >= m * len(amounts):
        assert stated == sum(amounts)


@pytest.mark.parametrize(
    ("amounts", "m", "most", "largest"),
    [
        ([], 10, 40, Fraction(0)),
        ([Fraction(1)] * 12, 10, 40, Fraction(4)),
        ([Fraction(1)] * 12, 10, 45, Fraction(17, 4)),
        ([Fraction(1)] * 12, 10, 120, Fraction(12)),
        ([Fraction(1)] * 12, 10, 1000, Fraction(12)),
        ([Fraction(1), Fraction(3), Fraction(2)], 4, 6, Fraction(7, 2)),
        ([Fraction(1), Fraction(3), Fraction(2)], 4, 4, Fraction(3)),
    ],
)
def test_known_values(amounts, m, most, largest):
    for order in list(permutations(amounts))[:6] if len(amounts) < 4 else [amounts]:
        assert compute_largest_rho(order, m, most) == largest
