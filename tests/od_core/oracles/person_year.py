"""The bound of a person's trips in a year, from its definition: a small state machine, and sums of fractions.

A year has periods. A release belongs to one period and sees some of each user's records of it. At most m of a user's
records are counted in a release, and at most M in a year, where a period counts with the largest of its releases.
:class:`Year` counts and draws releases step by step, as processes that may be killed. It keeps what was counted of each
user by release (the counters), the saved counts, and every draw. The noise itself is left out: a draw is the counts
that noise is added to. The tests plant defects by overriding methods of :class:`Year`.

What the rule claims is checked by the draws alone, and never by the counters: see :func:`breaches` and
:func:`others_moved`. What a draw costs follows from the same counts: see :func:`rho_between`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import combinations, combinations_with_replacement, product
from math import ceil, exp, fsum, log, sqrt
from typing import NamedTuple

ZERO = Fraction(0)


class Record(NamedTuple):
    """A trip of one period in a leaf of the flow tree. The cell of level l is the first l letters of the leaf."""

    period: int
    leaf: str
    kind: str = "car"


Records = tuple[Record, ...]
File = Mapping[str, Records]
"""All records by user. A corrected file is another file."""


@dataclass(frozen=True, eq=False)
class Release:
    """A release of one period: the variance of each measured level, and the kinds of records that the release sees."""

    name: str
    period: int
    variances: Mapping[int, Fraction]
    kinds: frozenset[str] = frozenset({"car", "bus"})


@dataclass(frozen=True)
class Draw:
    """The counted records of each user to which noise was added, the file that they are from, and the result's end."""

    release: Release
    trips: Mapping[str, Records]
    file: int = 0
    is_lost: bool = False


@dataclass(frozen=True)
class Step:
    """A step of a process.

    ``count`` counts a release; ``killed`` does so, and ends after the first thing that is durable; ``finish`` counts a
    release unless its counts are saved, and draws; ``lost`` does so, and ends before the result is saved.
    """

    what: str
    release: Release
    file: int = 0


@dataclass
class Counting:
    """A process that has counted a release from a file, and has written nothing yet."""

    release: Release
    trips: dict[str, Records]
    file: int


class Refused(Exception):  # noqa: N818  # nothing is wrong
    """Another process counts, counters are missing, or a drawn release would be counted from other records."""


@cache
def in_order(key: int, user: str, records: Records, release: Release) -> Records:
    """Return the records of a user that a release sees, in a keyed order that nothing else affects."""
    seen = sorted(record for record in records if record.period == release.period and record.kind in release.kinds)
    occurrences: Counter[Record] = Counter()
    hashed = []
    for record in seen:
        occurrences[record] += 1
        message = f"{key} {user} {record.period} {record.leaf} {record.kind} {occurrences[record]}"
        hashed.append((sha256(message.encode()).digest(), record))
    return tuple(record for _, record in sorted(hashed))


class Year:
    """All that is stored of a year, and the rule by which the next release is counted."""

    def __init__(self, m: int, most: int, files: Sequence[File], key: int = 0) -> None:
        self.m, self.most, self.files, self.key = m, most, files, key
        self.counters: dict[Release, dict[str, int]] = {}
        self.saved: dict[Release, tuple[dict[str, int] | None, Counting]] = {}
        self.draws: list[Draw] = []
        self.recounts: list[tuple[Mapping[str, Records], Mapping[str, Records]]] = []
        self.locked = False

    def run(self, steps: Iterable[Step]) -> Year:
        for step in steps:
            does = {"count": self.count, "killed": self.killed, "finish": self.finish, "lost": self.lost}
            does[step.what](step.release, step.file)
        return self

    # The rule

    def drawn(self, release: Release) -> Draw | None:
        """Return the first draw of a release, from which on its counters must not change."""
        return next((draw for draw in self.draws if draw.release is release), None)

    def in_period(self, user: str, period: int) -> int:
        """Return how many of a user's records are counted in a period."""
        of_period = [held for release, held in self.counters.items() if release.period == period]
        return max((held.get(user, 0) for held in of_period), default=0)

    def in_other_periods(self, user: str, release: Release) -> int:
        periods = {other.period for other in self.counters} - {release.period}
        return sum(self.in_period(user, period) for period in periods)

    def fresh_allowance(self, user: str, release: Release) -> int:
        return max(min(self.m, self.most - self.in_other_periods(user, release)), 0)

    def allowance(self, user: str, release: Release) -> int:
        if self.drawn(release) is not None:
            return self.counters[release].get(user, 0)
        return self.fresh_allowance(user, release)

    def counted(self, user: str, release: Release, file: File) -> Records:
        return in_order(self.key, user, file[user], release)[: self.allowance(user, release)]

    # The steps of a process

    def begin(self, release: Release, file: int = 0) -> Counting:
        """Read the counters and the records. No other process of the year may count until the counters are durable."""
        self.lock()
        self.refuse_missing_counters()
        draw = self.drawn(release)
        if draw is not None:
            self.refuse_other_records(draw, file)
        read = self.files[file]
        return Counting(release, {user: self.counted(user, release, read) for user in read}, file)

    def lock(self) -> None:
        self.refuse_if_locked()
        self.locked = True

    def refuse_if_locked(self) -> None:
        if self.locked:
            raise Refused

    def refuse_missing_counters(self) -> None:
        if any(draw.release not in self.counters for draw in self.draws):
            raise Refused

    def refuse_other_records(self, draw: Draw, file: int) -> None:
        if self.files[draw.file] != self.files[file]:
            raise Refused

    def write_counters(self, counting: Counting) -> None:
        """Make the counters durable; those of a drawn release stay."""
        if self.drawn(counting.release) is None:
            self.counters[counting.release] = {user: len(trips) for user, trips in counting.trips.items()}

    def save_counts(self, counting: Counting) -> None:
        """Save the counts with the counters that they belong to."""
        self.saved[counting.release] = (self.counters.get(counting.release), counting)

    def writes(self) -> Sequence[Callable[[Counting], None]]:
        """Return what a count writes, each durable before the next: the counters before the counts."""
        return self.write_counters, self.save_counts

    def end(self, counting: Counting) -> None:
        draw = self.drawn(counting.release)
        for write in self.writes():
            write(counting)
        if draw is not None:
            self.recounts.append((draw.trips, counting.trips))
        self.locked = False

    def count(self, release: Release, file: int = 0) -> None:
        self.end(self.begin(release, file))

    def killed(self, release: Release, file: int = 0) -> None:
        self.writes()[0](self.begin(release, file))
        self.locked = False

    def may_draw(self, release: Release) -> bool:
        """Return whether counts are saved, and belong to the counters that are stored."""
        return release in self.saved and self.saved[release][0] is self.counters.get(release)

    def draw(self, release: Release, *, is_lost: bool = False) -> None:
        self.refuse_if_locked()
        if self.may_draw(release):
            counting = self.saved[release][1]
            self.draws.append(Draw(release, counting.trips, counting.file, is_lost))

    def finish(self, release: Release, file: int = 0, *, is_lost: bool = False) -> None:
        if not self.may_draw(release):
            self.count(release, file)
        self.draw(release, is_lost=is_lost)

    def lost(self, release: Release, file: int = 0) -> None:
        """Draw, and lose the result. The next ``finish`` draws again; the ledger charges both."""
        self.finish(release, file, is_lost=True)


# Claims about the counted records


def most_by_period(year: Year) -> dict[str, dict[int, int]]:
    """Return, by user, the largest number of records that any draw of a period has counted."""
    most: dict[str, dict[int, int]] = {}
    for draw in year.draws:
        for user, trips in draw.trips.items():
            periods = most.setdefault(user, {})
            periods[draw.release.period] = max(periods.get(draw.release.period, 0), len(trips))
    return most


def breaches(year: Year) -> set[str]:
    """Return the broken claims.

    ``period``, ``year``: more than m or M records are counted. ``recount``, ``redraw``: a drawn release has other
    counts than before. ``revision``: a revision reads the same file, sees the same kinds, and counts fewer trips.
    """
    found = set()
    for periods in most_by_period(year).values():
        if max(periods.values(), default=0) > year.m:
            found.add("period")
        if sum(periods.values()) > year.most:
            found.add("year")
    if any(before != after for before, after in year.recounts):
        found.add("recount")
    for draw, later in combinations(year.draws, 2):
        if draw.release is later.release and draw.trips != later.trips:
            found.add("redraw")
        read, reread = ((d.release.period, d.release.kinds, d.file) for d in (draw, later))
        if read == reread and any(len(later.trips[user]) < len(trips) for user, trips in draw.trips.items()):
            found.add("revision")
    return found


def others_moved(one: Year, other: Year, changed: Iterable[str]) -> bool:
    """Return whether the counted records of a user who did not change differ between two neighbouring inputs."""
    users = set().union(*(draw.trips for year in (one, other) for draw in year.draws)) - set(changed)
    draws = [*zip(one.draws, other.draws, strict=True)]
    return any(a.trips.get(user, ()) != b.trips.get(user, ()) for a, b in draws for user in users)


# The cost


def table(draw: Draw, level: int) -> Counter[str]:
    """Return the trips of all users by the cell of a level."""
    return Counter(record.leaf[:level] for trips in draw.trips.values() for record in trips)


def rho_between(one: Year, other: Year) -> Fraction:
    """Return the sum of squared change / (2 variance) over all draws and levels of two neighbouring inputs."""
    total = ZERO
    for a, b in zip(one.draws, other.draws, strict=True):
        assert a.release is b.release
        for level, variance in a.release.variances.items():
            before, after = table(a, level), table(b, level)
            squared = sum((before[cell] - after[cell]) ** 2 for cell in before.keys() | after.keys())
            total += squared / (2 * variance)
    return total


def spent(draws: Iterable[Draw], sensitivity_squared: Mapping[bool, int]) -> dict[int, Fraction]:
    """Return R of each period: the cost of its draws at a squared sensitivity of the root (True) and below (False)."""
    total: dict[int, Fraction] = {}
    for draw in draws:
        for level, variance in draw.release.variances.items():
            cost = sensitivity_squared[level == 0] / (2 * variance)
            total[draw.release.period] = total.get(draw.release.period, ZERO) + cost
    return total


def vectors(periods: int, m: int, most: int) -> Iterator[tuple[int, ...]]:
    """Return all numbers of counted records by period that m and M allow."""
    return (counted for counted in product(range(m + 1), repeat=periods) if sum(counted) <= most)


def largest_by_search(amounts: Sequence[Fraction], m: int, most: int) -> Fraction:
    """Return the largest sum of R_t (m_t / m)^2 over all integer vectors (m_t)."""
    return max(
        sum((r * Fraction(k * k, m * m) for r, k in zip(amounts, counted, strict=True)), start=ZERO)
        for counted in vectors(len(amounts), m, most)
    )


def largest_replaced_by_search(root: Sequence[Fraction], below: Sequence[Fraction], m: int, most: int) -> Fraction:
    """Return the largest rho of a replaced user, over all pairs of integer vectors (a_t), (b_t).

    The root changes by a_t - b_t. Below it, the records of the two users may be in different cells.

    Args:
        root, below: the sum of 1 / (2 variance) of all draws of each period, of the root and of the levels below it.
    """
    pairs = [*combinations_with_replacement(list(vectors(len(root), m, most)), 2)]
    return max(
        sum(
            (r * (a - b) ** 2 + c * (a * a + b * b) for r, c, a, b in zip(root, below, one, other, strict=True)),
            start=ZERO,
        )
        for one, other in pairs
    )


def largest_replaced(root: Sequence[Fraction], below: Sequence[Fraction], m: int, most: int) -> Fraction:
    """Return what :func:`largest_replaced_by_search` finds if m divides M, as a sum of the largest gains.

    A period with one of the two users costs m^2 (root + below), and the second one adds m^2 (below - root), which is
    less. Each of the two users is in at most M / m periods.
    """
    assert most % m == 0
    both = [*zip(root, below, strict=True)]
    gains = sorted([r + c for r, c in both] + [c - r for r, c in both], reverse=True)
    return m * m * sum((gain for gain in gains[: 2 * (most // m)] if gain > 0), start=ZERO)


def renyi(order: int, shift: int, rho: Fraction, then: Callable[[int], float]) -> float:
    """Return the Rényi divergence of discrete Gaussian noise from that with a shift, and of what follows each result.

    Args:
        order: order of the divergence, above 1.
        shift: change of the count, 1 or -1.
        rho: 1 / (2 variance).
        then: the divergence of all later results, given this one.
    """
    reach = ceil(16 / sqrt(2 * rho)) + order
    whole = fsum(exp(-float(rho) * k * k) for k in range(-reach, reach + 1))
    terms = (
        exp(-float(rho) * (order * k * k + (1 - order) * (k - shift) ** 2) + (order - 1) * then(k)) / whole
        for k in range(-reach, reach + 1)
    )
    return log(fsum(terms)) / (order - 1)
