"""A year of releases of unit ``user_year`` in a folder: counted, drawn and killed step by step, without noise."""

import hashlib
import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from od_core import Budget, Cap, Geography, NoiseSource, PrivacyUnit, ReleaseKey, ReleasePlan, Uncounted, plan_release
from od_core.flows.release import Release, run_plan
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.measurements import begin_release
from od_core.ledger.user_counters import Allowances, UserCounters
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.neighbours import Neighbours
from od_core.records.counting import CountQuery, count_trips
from od_core.records.counts import TripCounts
from tests.od_core.doubles import no_noise
from tests.od_core.ledger.ledger_rows import ledger_at

GEOGRAPHY = Geography.from_frame(pd.DataFrame({"zone": [f"z{k}" for k in range(6)]}, dtype="str"), ["zone"])
PATTERN = "[a-z]+[0-9]?"
COLUMNS = ["person", "origin", "destination"]

Trip = tuple[str, str, str]
"""User, origin and destination."""

JANUARY, FEBRUARY, MARCH, REVISED = (
    ReleaseKey("commuters", f"2001-{month}", revision)
    for month, revision in (("01", 1), ("02", 1), ("03", 1), ("02", 2))
)
WALKERS = ReleaseKey("walkers", "2001-01")


def unit_of(m: int, most: int, neighbours: str = "unbounded", of_pair: int | None = None) -> PrivacyUnit:
    bounds = {"max_trips_year": most, "max_trips_pair": of_pair}
    return PrivacyUnit("user_year", neighbours, "person", m, id_pattern=PATTERN, **bounds)  # type: ignore[arg-type]


@cache
def plan_of(unit: PrivacyUnit, uncounted: Uncounted | None = None) -> ReleasePlan:
    budget = Budget(rho=1, delta="1e-8")
    return plan_release(GEOGRAPHY, unit=unit, budget=budget, mechanism="inftda", uncounted=uncounted)


def trips_of(user: str, number: int, zone: int = 0) -> list[Trip]:
    """Trips of a user from one zone, each to another zone than the last."""
    return [(user, f"z{zone}", f"z{k % 6}") for k in range(number)]


@dataclass
class PersonYear:
    """A ledger, its confidential folder, and the releases that were counted and drawn."""

    folder: Path
    m: int
    most: int
    neighbours: str = "unbounded"
    of_pair: int | None = None
    saved: dict[ReleaseKey, TripCounts] = field(default_factory=dict)
    drawn: list[tuple[ReleaseKey, Release]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.unit = unit_of(self.m, self.most, self.neighbours, self.of_pair)
        self.plan = plan_of(self.unit)
        self.ledger = ledger_at(self.folder / "ledger.sqlite")
        self.ledger.declare(PrivacyDomain("commuters", self.unit, Cap(rho=Fraction(10**6)), "a test"))
        self.confidential = ConfidentialFolder(self.folder / "confidential")
        if not (self.confidential.path / "hmac.key").exists():  # the same in neighbouring worlds
            (self.confidential.path / "hmac.key").write_bytes(bytes(range(32)))

    def counters(self, key: ReleaseKey) -> UserCounters:
        return UserCounters(self.confidential, self.ledger, key, "commuters", self.unit, "month", "calendar")

    def killed(self, key: ReleaseKey, trips: Iterable[Trip]) -> TripCounts:
        """Count, and end when the counters are durable and the counts are not."""
        with self.ledger.lock_for_release(), self.ledger.keep_open():
            records = pd.DataFrame(list(trips), columns=COLUMNS, dtype="str")
            given = {"unit": self.unit, "key": self.confidential.read_or_make_key(), "period": key.period}
            given |= {"fault_threshold": Fraction(1), "counters": self.counters(key)}
            return count_trips(records, self.plan.tree, **given)

    def count(self, key: ReleaseKey, trips: Iterable[Trip]) -> TripCounts:
        counted = self.killed(key, trips)
        self.counters(key).hold_to_input(counted)
        self.saved[key] = counted
        return counted

    def draw(self, key: ReleaseKey, noise: NoiseSource | None = None) -> Release:
        """Draw a release from the counts that were saved."""
        with self.ledger.lock_for_release(), self.ledger.keep_open():
            counted, counters = self.saved[key], self.counters(key)
            given = (self.confidential, self.ledger, key, "commuters", self.plan, counted, "table")
            begun = begin_release(*given, counters=counters)
            release = run_plan(self.plan, counted, noise or no_noise(), begun)
        self.drawn.append((key, release))
        return release

    def finish(self, key: ReleaseKey, trips: Iterable[Trip]) -> Release:
        self.count(key, trips)
        return self.draw(key)

    def counted(self, key: ReleaseKey, users: Sequence[str]) -> dict[str, int]:
        """Return how many trips of each user the stored counters of a release have; every row is one of the users."""
        names = {hashed(user, self.confidential.read_or_make_key()): user for user in users}
        table = pq.read_table(self.path(key)).to_pydict()
        columns = (table[name] for name in ("user_high", "user_low", "counted"))
        return {names[high, low]: counted for high, low, counted in zip(*columns, strict=True)}

    def path(self, key: ReleaseKey) -> Path:
        folder = self.confidential.path / "user-counters" / "commuters" / key.period[:4] / key.period
        return folder / f"{key.release}.{key.period}.r{key.revision}.parquet"


def hashed(user: str, key: bytes) -> tuple[int, int]:
    """Return the two numbers by which a user is named, in plain Python."""
    digest = hmac.new(key, b"user " + user.encode().hex().upper().encode(), hashlib.sha256).hexdigest()
    return int(digest[:15], 16), int(digest[15:30], 16)


def pairs(release: Release) -> Counter[tuple[str, str]]:
    """Return the released trips by origin and destination, which are the counted ones without noise."""
    flows = release.flows
    return Counter(dict(zip(zip(flows["origin"], flows["destination"], strict=True), flows["trips"], strict=True)))


def by_origin(release: Release) -> dict[str, int]:
    """Return the released trips by origin, of those that have any."""
    found: Counter[str] = Counter()
    for (origin, _), trips in pairs(release).items():
        found[origin] += int(trips)
    return dict(+found)


def rho_between(one: PersonYear, other: PersonYear) -> Fraction:
    """Return the sum of squared change / (2 variance) over all draws and levels of two neighbouring inputs."""
    total = Fraction(0)
    for (key, a), (other_key, b) in zip(one.drawn, other.drawn, strict=True):
        assert key == other_key
        frames = (one.measurements.iloc[:, :4].itertuples(index=False) for one in (a, b))
        before, after = ({(level, o, d): int(v) for level, o, d, v in rows} for rows in frames)
        for step in one.plan.steps:
            cells = {cell for cell in before.keys() | after.keys() if cell[0] == step.level}
            squared = sum((before.get(cell, 0) - after.get(cell, 0)) ** 2 for cell in cells)
            total += squared / (2 * step.variance)
    return total


# Defects of the product


def forget_the_year(patch: pytest.MonkeyPatch) -> None:
    """Let m alone bound the trips of a user, in what is counted and in what is checked before a draw."""
    allowances = UserCounters.compute_allowances

    def of_a_period(self: UserCounters) -> Allowances:
        found = allowances(self)
        return found if self.ledger.is_drawn(self.key) else Allowances(found.table.slice(0, 0), found.others)

    patch.setattr(UserCounters, "compute_allowances", of_a_period)


def skip_the_check_of_the_year(patch: pytest.MonkeyPatch) -> None:
    """Let nothing but the allowances hold the bounds."""
    patch.setattr(UserCounters, "check_counts_and_bounds", lambda *_: None)


def lose_the_counters(patch: pytest.MonkeyPatch) -> None:
    """Let a kill come before the counters are durable, and after they were believed to be."""
    patch.setattr(UserCounters, "store_or_compare", lambda self, batches: [*batches] and None)


def count_a_revision_afresh(patch: pytest.MonkeyPatch) -> None:
    """Let the other releases of the same period use up what the year allows, as those of other periods do."""
    files = UserCounters._list_checked_files
    patch.setattr(UserCounters, "_list_checked_files", lambda self, left_out=None: files(self))


def share_one_counter(patch: pytest.MonkeyPatch) -> None:
    """Let all users have the same hash, so that what is counted of one depends on the others."""
    sql = CountQuery.render_sql
    patch.setattr(CountQuery, "render_sql", lambda *given: sql(*given).replace("'user ' || hex(person)", "'user '"))


def recompute_allowances(patch: pytest.MonkeyPatch) -> None:
    """Let a drawn release be counted again by what the year leaves now, and not by what was counted then."""
    allowances = UserCounters.compute_allowances

    def afresh(self: UserCounters) -> Allowances:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(type(self.ledger), "is_drawn", lambda *_: False)
            return allowances(self)

    patch.setattr(UserCounters, "compute_allowances", afresh)


def charge_the_root_of_a_year_as_one_of_a_period(patch: pytest.MonkeyPatch) -> None:
    """Let the root change by m alone if a user is replaced, as it does within a period."""
    sensitivity = Neighbours.sensitivity_squared

    def of_a_period(self: Neighbours, level: int, *, by_segment: bool = False) -> int:
        if level or by_segment:
            return sensitivity(self, level, by_segment=by_segment)
        return self.unit.contribution_bound**2

    patch.setattr(Neighbours, "sensitivity_squared", of_a_period)


Mutant = Callable[[pytest.MonkeyPatch], None]
