"""The bound of a person's trips in a year: brute force over all records of a user, and defects that it finds.

The oracle counts and draws tiny worlds step by step. No user costs more than is stated, and some user costs exactly
that. The rule holds in every order of counting, with revisions, several series, recounts, lost draws and kills.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import chain, combinations, combinations_with_replacement, permutations, product
from math import lcm

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from od_core.privacy.domain import largest_rho
from tests.od_core.oracles.person_year import (
    Draw,
    File,
    Record,
    Records,
    Refused,
    Release,
    Step,
    Year,
    breaches,
    in_order,
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

OTHERS: File = {
    "v": tuple(Record(t, leaf) for t in PERIODS for leaf in ("aa", "ab")),
    "w": (Record(1, "bb", "bus"), Record(2, "aa"), Record(2, "aa"), Record(2, "ab"), Record(3, "bb")),
}


def records_of(size: int, cells: Sequence[tuple[str, str]]) -> list[Records]:
    """All records of a user with at most ``size`` of them in each period."""
    of_period = [
        [tuple(Record(t, *cell) for cell in chosen) for k in range(size + 1) for chosen in multisets(cells, k)]
        for t in PERIODS
    ]
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
    return tuple(
        counts[cell]
        for draw in year.draws
        for level in draw.release.variances
        for counts in [table(draw, level)]
        for cell in CELLS[level]
    )


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
        exact = [
            1 / (2 * variance) if level or root else Fraction(0)
            for draw in self.draws
            for level, variance in draw.release.variances.items()
            for _ in CELLS[level]
        ]
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
        return largest_rho(amounts.values(), self.m, self.most)

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


def user(*cells: tuple[int, str]) -> Records:
    return tuple(Record(period, leaf) for period, leaf in cells)


def test_a_root_that_counts_m_squared_in_a_year_is_found():
    """Within a release, the root changes by at most m. But of two users, each is in the periods without the other."""
    releases = [release_of(f"all/{t}", t, ["1", "1"]) for t in (1, 2)]
    one, other = (
        Year(1, 1, [{"u": records}]).run(Step("finish", release) for release in releases)
        for records in (user((1, "aa")), user((2, "aa")))
    )
    assert rho_between(one, other) == 2
    by_release, by_year = (spent(one.draws, {True: k, False: 2}).values() for k in (1, 2))
    assert largest_rho(by_release, 1, 1) == Fraction(3, 2)
    assert largest_rho(by_year, 1, 1) == 2


def test_a_root_alone_may_cost_twice_what_m_squared_states():
    releases = [release_of(f"all/{t}", t, ["1"]) for t in (1, 2)]
    one, other = (
        Year(2, 2, [{"u": records}]).run(Step("finish", release) for release in releases)
        for records in (user((1, "aa"), (1, "ab")), user((2, "aa"), (2, "ab")))
    )
    assert rho_between(one, other) == 2 * largest_rho(spent(one.draws, {True: 4, False: 8}).values(), 2, 2)


def test_series_that_share_no_record_each_count_m_and_their_costs_add_up():
    """So a user may have 2 m records counted in a period. Each release counts at most m of them."""
    cars, buses = (release_of(kind, 1, ["1"], kind) for kind in ("car", "bus"))
    later = release_of("all/2", 2, ["1"])
    records = (*user((1, "aa"), (2, "aa")), Record(1, "aa", "bus"))
    year, without = (
        Year(1, 1, [{"u": some}]).run(Step("finish", release) for release in (cars, buses, later))
        for some in (records, ())
    )
    assert breaches(year) == set()
    assert sum(len(draw.trips["u"]) for draw in year.draws) == 2
    amounts = spent(year.draws, {True: 1, False: 1})
    assert rho_between(year, without) == largest_rho(amounts.values(), 1, 1) == amounts[1]


def test_a_revision_that_is_charged_to_a_further_period_is_found():
    first, revised = (release_of(name, 1, ["1"]) for name in ("all/1/r1", "all/1/r2"))
    year, without = (
        Year(1, 1, [{"u": some}]).run(Step("finish", release) for release in (first, revised))
        for some in (user((1, "aa")), ())
    )
    by_period = spent(year.draws, {True: 1, False: 1})
    by_release = [amount for draw in year.draws for amount in spent([draw], {True: 1, False: 1}).values()]
    assert rho_between(year, without) == largest_rho(by_period.values(), 1, 1) == 1
    assert largest_rho(by_release, 1, 1) == Fraction(1, 2)


def test_a_smaller_m_of_one_series_needs_the_noise_of_the_common_m():
    """With m = 2 and M = 2, a user with a trip in each period costs two releases that are charged at m = 1."""
    releases = [release_of(f"all/{t}", t, ["1"]) for t in (1, 2)]
    year, without = (
        Year(1, 2, [{"u": some}]).run(Step("finish", release) for release in releases)
        for some in (user((1, "aa"), (2, "aa")), ())
    )
    cost = rho_between(year, without)
    at_its_own_m, at_the_common_m = (spent(year.draws, {True: k, False: k}).values() for k in (1, 4))
    assert largest_rho(at_its_own_m, 2, 2) < cost <= largest_rho(at_the_common_m, 2, 2)


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
    assert max(costs) == largest_rho(spent(without.draws, {True: m**2, False: m**2}).values(), m, most)


# Defects of the rule, each with the smallest input that shows it


class ForgetsTheYear(Year):
    def fresh_allowance(self, user, release):
        return self.m


class TakesMissingCountersForZero(Year):
    def refuse_missing_counters(self):
        pass


class SavesCountsFirst(TakesMissingCountersForZero):
    """A kill leaves counts without counters, and the next run draws them."""

    def writes(self):
        return self.save_counts, self.write_counters

    def may_draw(self, release):
        return release in self.saved


class DrawsOlderCounts(Year):
    """The counters are those of corrected records, and the saved counts are not."""

    def may_draw(self, release):
        return release in self.saved


class CountsAtOnce(Year):
    def refuse_if_locked(self):
        pass


class DecidesBeforeItLocks(CountsAtOnce):
    """Another process draws between the question whether the release is drawn and the new counters."""

    def write_counters(self, counting):
        self.counters[counting.release] = {user: len(trips) for user, trips in counting.trips.items()}


class ForgetsLostDraws(Year):
    def drawn(self, release):
        draw = super().drawn(release)
        return None if draw is None or draw.is_lost else draw


class CountsDrawnReleasesAfresh(Year):
    """The stored counter of the release is ignored."""

    def allowance(self, user, release):
        return self.fresh_allowance(user, release)


class ReadsCorrectedRecords(Year):
    def refuse_other_records(self, draw, file):
        pass


class KeepsTheLatestRevision(Year):
    """The counters of a revision replace those of the release that it revises."""

    def in_period(self, user, period):
        return [0, *(held.get(user, 0) for release, held in self.counters.items() if release.period == period)][-1]


class CountsARevisionAsAFurtherPeriod(Year):
    def in_other_periods(self, user, release):
        return sum(held.get(user, 0) for other, held in self.counters.items() if other is not release)


class AddsUpEveryCount(Year):
    """One running total by user, to which every count adds, also that of the same release after a kill."""

    def in_other_periods(self, user, release):
        return sum(len(draw.trips.get(user, ())) for draw in self.draws)

    def allowance(self, user, release):
        return self.fresh_allowance(user, release)


class AllowsMToALaterSeries(Year):
    """The period is counted already, so it is taken to cost nothing more."""

    def fresh_allowance(self, user, release):
        began = any(other.period == release.period and other is not release for other in self.counters)
        return self.m if began else super().fresh_allowance(user, release)


A1, A2, A3 = ALL
A1_REVISED = release_of("all/1/r2", 1, ["1"])
NO_RECORDS: File = {"u": ()}
IN_TWO: File = {"u": user((1, "aa"), (2, "aa"))}
IN_SECOND: File = {"u": user((2, "aa"))}
MOVED: File = {"u": user((1, "bb"), (2, "aa"))}
OF_TWO_KINDS: File = {"u": (*user((1, "aa"), (2, "aa")), Record(1, "aa", "bus"))}


def lose_counters(year: Year) -> None:
    year.run([Step("finish", A1)])
    del year.counters[A1]
    year.run([Step("finish", A2)])


def count_two_at_once(year: Year) -> None:
    for counting in [year.begin(A1), year.begin(A2)]:
        year.end(counting)
    year.run([Step("finish", A1), Step("finish", A2)])


def draw_while_counting(year: Year) -> None:
    year.run([Step("count", A1)])
    counting = year.begin(A1, 1)
    year.run([Step("finish", A1)])
    year.end(counting)
    year.run([Step("finish", A2)])


def steps(text: str) -> Callable[[Year], object]:
    """Steps such as "count 1, finish 2 corrected"."""
    named = {"1": A1, "2": A2, "r": A1_REVISED, "c": CARS}
    parts = [part.split() for part in text.split(", ")]
    made = [Step(what, named[name], len(corrected)) for what, name, *corrected in parts]
    return lambda year: year.run(made)


PLANTED = {
    "M is forgotten": (ForgetsTheYear, 1, 1, [IN_TWO], steps("finish 1, finish 2"), "year"),
    "a kill loses the counters": (SavesCountsFirst, 1, 1, [IN_TWO], steps("killed 1, finish 1, finish 2"), "year"),
    "older counts are drawn": (
        DrawsOlderCounts,
        1,
        1,
        [IN_TWO, IN_SECOND],
        steps("count 1, killed 1 corrected, finish 1 corrected, finish 2"),
        "year",
    ),
    "missing counters": (TakesMissingCountersForZero, 1, 1, [IN_TWO], lose_counters, "year"),
    "two processes": (CountsAtOnce, 1, 1, [IN_TWO], count_two_at_once, "year"),
    "a draw while counting": (DecidesBeforeItLocks, 1, 1, [IN_TWO, IN_SECOND], draw_while_counting, "year"),
    "a lost draw": (
        ForgetsLostDraws,
        1,
        1,
        [IN_TWO, IN_SECOND],
        steps("lost 1, count 1 corrected, finish 2"),
        "year",
    ),
    "a recount afresh": (
        CountsDrawnReleasesAfresh,
        1,
        1,
        [IN_TWO, IN_SECOND],
        steps("count 1, finish 2, count 1 corrected, count 2"),
        "recount",
    ),
    "a recount of other records": (
        ReadsCorrectedRecords,
        1,
        1,
        [IN_TWO, MOVED],
        steps("finish 1, count 1 corrected"),
        "recount",
    ),
    "the latest revision": (
        KeepsTheLatestRevision,
        1,
        1,
        [IN_TWO, IN_SECOND],
        steps("finish 1, finish r corrected, finish 2"),
        "year",
    ),
    "a revision as a further period": (
        CountsARevisionAsAFurtherPeriod,
        1,
        1,
        [IN_TWO],
        steps("finish 1, finish r"),
        "revision",
    ),
    "a running total": (AddsUpEveryCount, 1, 1, [IN_TWO], steps("finish 1, count 1"), "recount"),
    "a later series": (
        AllowsMToALaterSeries,
        2,
        2,
        [OF_TWO_KINDS],
        steps("finish c, finish 2, finish 1"),
        "year",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_defect_of_counting_is_found(name):
    broken, m, most, files, does, claim = PLANTED[name]
    year = broken(m, most, files)
    does(year)
    assert claim in breaches(year)


@pytest.mark.parametrize("name", PLANTED)
def test_the_rule_itself_counts_the_same_inputs_or_refuses_them(name):
    _, m, most, files, does, _ = PLANTED[name]
    year = Year(m, most, files)
    refused = False
    try:
        does(year)
    except Refused:
        refused = True
    assert refused is (name in REFUSED)
    assert breaches(year) == set()


REFUSED = {
    "missing counters",
    "two processes",
    "a draw while counting",
    "a lost draw",
    "a recount of other records",
}


class SharesCounters(Year):
    """A short hash of the user id: two users have the same counter."""

    def in_period(self, user, period):
        return sum(super(SharesCounters, self).in_period(other, period) for other in self.files[0])


class OrdersByRow(Year):
    """Which of a user's records are counted depends on their rows in the file, below those of others."""

    def counted(self, user, release, file):
        before = sum(len(file[other]) for other in sorted(file) if other < user)
        records = in_order(self.key, f"row {before}", file[user], release)
        return records[: self.allowance(user, release)]


class CountsTheSmallestFileFirst(Year):
    """Or the file whose counting ends first."""

    def run(self, steps):
        everyone = list(chain(*self.files[0].values()))
        return super().run(sorted(steps, key=lambda step: sum(r.period == step.release.period for r in everyone)))


class SharesAQuota(Year):
    """All users together have one record in a release, that of the first user who has any."""

    def begin(self, release, file=0):
        counting = super().begin(release, file)
        rest = 1
        for name in sorted(counting.trips):
            counting.trips[name] = counting.trips[name][:rest]
            rest -= len(counting.trips[name])
        return counting


LOOKING = [SharesCounters, OrdersByRow, CountsTheSmallestFileFirst, SharesAQuota]


def pairs_of_years(kind: type[Year], m: int, most: int) -> list[tuple[Year, Year]]:
    """Years with and without user a, beside all records of user b."""
    own = [
        tuple(Record(t, leaf) for t, k in zip((1, 2), n, strict=True) for leaf in ("aa", "ab", "bb")[:k])
        for n in vectors(2, 3, 6)
    ]
    run = [Step("finish", A1), Step("finish", A2)]
    without = {b: kind(m, most, [{"a": (), "b": b}]).run(run) for b in own}
    return [(kind(m, most, [{"a": a, "b": b}]).run(run), without[b]) for a, b in product(own, own)]


@pytest.mark.parametrize("kind", LOOKING)
def test_a_planted_cut_that_looks_at_others_is_found(kind):
    found = [
        (one, other)
        for one, other in pairs_of_years(kind, 1, 1)
        if [draw.release for draw in one.draws] != [draw.release for draw in other.draws]
        or others_moved(one, other, "a")
    ]
    assert found


def test_no_user_moves_because_of_another():
    assert not any(others_moved(one, other, "a") for one, other in pairs_of_years(Year, 1, 1))


@pytest.mark.parametrize("kind", [SharesCounters, OrdersByRow, SharesAQuota])
def test_a_cut_that_looks_at_others_costs_more_than_is_stated(kind):
    pairs = pairs_of_years(kind, 1, 1)
    amounts = spent(pairs[0][0].draws, {True: 1, False: 1})
    assert max(rho_between(one, other) for one, other in pairs) > largest_rho(amounts.values(), 1, 1)


# What is counted by user and does not shrink with the counted trips


def users_by_trips(year: Year, draw: Draw) -> list[int]:
    """How many users have each number of counted trips, from 1 on."""
    return [sum(len(trips) == k for trips in draw.trips.values()) for k in range(1, year.m + 1)]


def cut_trips(year: Year, draw: Draw) -> list[int]:
    """How many trips are cut, at most m of each user."""
    file = year.files[draw.file]
    cut = (len(in_order(0, name, records, draw.release)) - len(draw.trips[name]) for name, records in file.items())
    return [sum(min(k, year.m) for k in cut)]


def change(answer: Callable[[Year, Draw], list[int]], one: Year, other: Year) -> list[int]:
    """The squared change of the answer in each draw."""
    return [
        sum((a - b) ** 2 for a, b in zip(answer(one, x), answer(other, y), strict=True))
        for x, y in zip(one.draws, other.draws, strict=True)
    ]


@pytest.mark.parametrize("answer", [users_by_trips, cut_trips])
def test_an_answer_that_does_not_shrink_with_the_counted_trips_costs_more_than_the_largest_rho(answer):
    """It is a cost of every period, at its own sensitivity, so such costs are summed."""
    m, run = 2, [Step("finish", release) for release in ALL]
    without = Year(m, m, [{"u": ()}]).run(run)
    changes = [
        change(answer, Year(m, m, [{"u": records}]).run(run), without) for records in records_of(4, [("aa", "car")])
    ]
    largest = {users_by_trips: 1, cut_trips: m**2}[answer]
    assert [max(of_period) for of_period in zip(*changes, strict=True)] == [largest] * 3
    worst = max(map(sum, changes))
    assert largest_rho([Fraction(largest)] * 3, m, m) == largest < worst <= 3 * largest
    assert (answer is cut_trips) == (worst == 3 * largest)


TOP_CODE = 4
SIZES: dict[str, Callable[[list[int]], list[int]]] = {
    "sizes": sorted,
    "cumulative": lambda sizes: [sum(size <= k for size in sizes) for k in range(TOP_CODE)],
    "histogram": lambda sizes: [sum(size == k for size in sizes) for k in range(TOP_CODE + 1)],
}
"""Group sizes: the three tables of public groups, whose members are the trips of users."""
SENSITIVITY = {
    "sizes": {"unbounded": (1, 1), "bounded": (2, 2)},
    "cumulative": {"unbounded": (1, 1), "bounded": (2, 2)},
    "histogram": {"unbounded": (2, 2), "bounded": (4, 6)},
}
"""L1 sensitivity by m, and squared L2 sensitivity by m^2."""


@pytest.mark.parametrize("query", SIZES)
@pytest.mark.parametrize("m", [1, 2])
def test_group_sizes_change_in_proportion_to_the_counted_trips_of_a_user(query, m):
    """A user may have trips in any of the public groups: all pairs, in all groups of some other trips."""
    groups = 2 * m
    trips = [counted for counted in product(range(m + 1), repeat=groups) if sum(counted) <= m]
    largest = {"unbounded": (0, 0), "bounded": (0, 0)}
    for others in combinations_with_replacement(range(TOP_CODE), groups):
        tables = {
            counted: np.array(SIZES[query]([min(a + b, TOP_CODE) for a, b in zip(others, counted, strict=True)]))
            for counted in trips
        }
        nobody = tables[(0,) * groups]
        for relation, pairs in {
            "unbounded": ((tables[counted], nobody) for counted in trips),
            "bounded": combinations(tables.values(), 2),
        }.items():
            for one, other in pairs:
                found = int(abs(one - other).sum()), int(((one - other) ** 2).sum())
                largest[relation] = tuple(map(max, largest[relation], found))  # type: ignore[assignment]
    assert largest == {
        relation: (of_m * m, of_square * m**2) for relation, (of_m, of_square) in SENSITIVITY[query].items()
    }


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
    assert largest_rho([FIRST, rest], 1, 2) == CAP
    for small, large in ((rest, rest / 100), (rest / 100, rest), (rest, rest)):
        assert renyi_of_a_year(order, small, large) <= order * float(CAP) + 1e-9


@pytest.mark.parametrize("order", [2, 3, 8])
def test_a_cap_that_holds_only_on_average_is_found(order):
    """Twice of what remains is spent after a large result, and next to nothing after the others."""
    rest = CAP - FIRST
    assert renyi_of_a_year(order, rest / 100, 2 * rest) > order * float(CAP) + 0.05


# The formula

AMOUNTS = st.fractions(min_value=0, max_value=10, max_denominator=30)


@given(st.lists(AMOUNTS, max_size=4), st.integers(1, 4), st.integers(0, 9))
def test_the_largest_rho_is_that_of_the_worst_numbers_of_trips(amounts, m, more):
    stated = largest_rho(iter(amounts), m, m + more)
    assert type(stated) is Fraction
    assert stated == largest_by_search(amounts, m, m + more)


@given(st.lists(AMOUNTS, min_size=1, max_size=12), st.integers(1, 20), st.integers(0, 300), AMOUNTS, st.randoms())
def test_the_largest_rho_grows_with_what_is_spent_and_does_not_depend_on_the_order(amounts, m, more, amount, random):
    stated = largest_rho(amounts, m, m + more)
    shuffled = random.sample(amounts, len(amounts))
    assert largest_rho(shuffled, m, m + more) == stated <= sum(amounts)
    grown = [amounts[0] + amount, *amounts[1:]]
    assert stated <= largest_rho(grown, m, m + more) <= stated + amount
    assert stated <= largest_rho([*amounts, amount], m, m + more) <= stated + amount
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
        assert largest_rho(order, m, most) == largest
