"""Audit of whole published releases through Dagster; the bound of epsilon is that of ``one_run.py``.

A release that keeps its promise shows less than it; each seeded defect shows more. All that leaves the confidential
folder is looked at: measurements, flows, the order of their rows, names of files, and Dagster's event storage.

One release shows little: at epsilon 1 the best guess about one trip is right in 54 of 100 cases. So what is shown of a
sound release is far below its promise, and defects are seeded that are larger than those of ``test_audit.py``, where
thousands of releases of the measurements alone show a level too many. What is looked for here is what no audit of the
measurements can see: that something else than them tells of a record.
"""

import io
import shutil
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pytest
import yaml
from numpy.typing import NDArray
from scipy import special, stats

import od_assets
import od_core.flows.measuring
import tests.od_assets.conftest
from od_assets.components import OdRelease
from od_assets.resources.warehouse import verify_published_releases
from od_core import Budget, Geography, PrivacyUnit, open_release, release_flows
from od_core.flows.publishing.flow_tables import LevelPair
from od_core.privacy.neighbours import Neighbours
from tests.conftest import FLIGHTS
from tests.od_assets.conftest import Project, failure_text
from tests.statistical import one_run
from tests.statistical.laws import ALPHA

make_project, project = tests.od_assets.conftest.make_project, tests.od_assets.conftest.project
"""The fixtures of the tests of Dagster."""

DELTA = 1e-12
"""Of the small releases; of the flights it is what they declare."""


@pytest.mark.parametrize(("guesses", "epsilon"), [(60, 0.5), (2000, 0.1), (2000, 1.0), (500, 3.0)])
def test_the_bound_is_that_of_randomised_response_and_nearly_attained(guesses, epsilon):
    """Randomised response guesses as well as epsilon allows; its right guesses are binomial, so all is exact."""
    chance = special.expit(epsilon)
    numbers = range(guesses + 1)
    least = bisect_left(numbers, True, key=lambda right: one_run.least_epsilon(guesses, guesses, right, 0.0) > epsilon)
    assert stats.binom.sf(least - 1, guesses, chance) <= ALPHA < stats.binom.sf(least - 2, guesses, chance)
    usual = one_run.least_epsilon(guesses, guesses, int(stats.binom.median(guesses, chance)), 0.0)
    assert guesses < 2000 or epsilon - 6 / np.sqrt(guesses * chance * (1 - chance)) < usual < epsilon


def test_a_bound_that_is_too_strong_would_fail():
    """The odds of right guesses, without a bound from below, exceed epsilon every second time; without the part of
    delta a mechanism that gives all away with probability delta is said to break (0, delta)."""
    chance, delta = special.expit(1.0), 1e-4
    too_often = [right for right in range(1, 2000) if np.log(right / (2000 - right)) > 1.0]
    assert stats.binom.sf(too_often[0] - 1, 2000, chance) > 0.4
    gives_all_away = delta + (1 - delta) * 2.0**-40
    assert one_run.p_value(40, 40, 40, 0.0, 0.0) < gives_all_away <= one_run.p_value(40, 40, 40, 0.0, delta)


def test_the_bound_is_the_published_one():
    """Steinke, Nasr & Jagielski 2023, Appendix D: 75 of 100 guesses on 1000 canaries, delta 1e-4, 95 %."""
    assert one_run.least_epsilon(1000, 100, 75, 1e-4, 0.05) == pytest.approx(0.673, abs=5e-4)


class Narrower:
    """A backend that draws by a part of the variance that it is asked for; no noise at all for a part of 0."""

    def __init__(self, source: Any, part: int) -> None:
        self.source, self.part = source, part

    def draw(self, variance: Any, level: int, first: int, size: int) -> NDArray[np.int64]:
        if self.part == 0:
            return np.zeros(size, dtype=np.int64)
        return self.source.draw(variance / self.part, level, first, size)


class Averaged:
    """A backend that draws so often, and gives the mean, rounded."""

    def __init__(self, source: Any, times: int) -> None:
        self.source, self.times = source, times

    def draw(self, variance: Any, level: int, first: int, size: int) -> NDArray[np.int64]:
        total = np.zeros(size)
        for _ in range(self.times):
            total += self.source.draw(variance, level, first, size)
        return np.rint(total / self.times).astype(np.int64)


def instead_of_measuring(monkeypatch: pytest.MonkeyPatch, changed: Callable[..., Any]) -> None:
    """Seed a defect where the counts of a level get their noise: ``changed`` is called with the sound function."""
    sound = od_core.flows.measuring.measure
    monkeypatch.setattr(od_core.flows.measuring, "measure", lambda *arguments: changed(sound, *arguments))


# Flights: the shipped series, with canaries among the records of June 2001.

FLIGHT_CANARIES = 5000


@pytest.fixture
def flights_project(make_project, tmp_path) -> tuple[Project, dict[str, Any], one_run.Auditor]:
    """A copy of the shipped series, whose June has 5,000 flights more: each on one of two pairs of airports."""
    project, folder = make_project(), tmp_path / "data" / "us_flights"
    folder.mkdir(parents=True)
    for name in ("airports.csv", "states.geojson"):
        shutil.copy(FLIGHTS / name, folder)
    zones = pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)
    airports, generator = zones["airport"].to_numpy(), np.random.default_rng(1)
    pairs = generator.choice(len(airports) ** 2, (FLIGHT_CANARIES, 2), replace=False)
    ends = {
        f"{side}_{state}": airports[place]
        for state, pair in (("in", pairs[:, 0]), ("out", pairs[:, 1]))
        for side, place in zip(("origin", "destination"), np.divmod(pair, len(airports)), strict=True)
    }
    canaries = one_run.Canaries(one_run.fair_bits(FLIGHT_CANARIES), pd.DataFrame(ends))
    flights = pd.read_parquet(FLIGHTS / "2001-06.parquet")
    records = pd.concat([flights, canaries.records().assign(date=flights["date"].iloc[0])], ignore_index=True)
    records.to_parquet(folder / "2001-06.parquet", index=False)
    declared = yaml.safe_load((Path(od_assets.__file__).parent / "defs/us_flights/defs.yaml").read_text())
    areas = zones.set_index("airport", drop=False)[["region", "division", "state", "airport"]].assign(all="all")
    auditor = one_run.Auditor(canaries, flights[["origin", "destination"]], areas)
    return project, declared["attributes"], auditor


def shown_by_flights(project: Project, attributes: dict[str, Any], auditor: one_run.Auditor) -> tuple[str, float]:
    assert project.run(OdRelease.model_validate(attributes), "2001-06").success
    bundle = project.var / "releases" / "us_flights" / "2001-06" / "r1"
    return one_run.best(auditor.canaries.bits, auditor.guesses(bundle, 0.3), 1e-8)


def test_the_flights_show_less_than_they_promise(flights_project):
    """As they are declared, but for the canaries. Fails with probability 1e-6."""
    attacker, epsilon = shown_by_flights(*flights_project)
    assert epsilon < 1, (attacker, epsilon)


def test_the_flights_show_more_than_they_promise_with_a_twentieth_of_the_noise(flights_project, monkeypatch):
    """A four hundredth of the variance: about 1,430 of 1,500 guesses are right, and 1,259 show more than 1.

    With a hundredth about 1,270 are, which is too near.
    """
    project, attributes, auditor = flights_project
    instead_of_measuring(monkeypatch, lambda measure, *given: measure(*given[:-1], Narrower(given[-1], 400)))
    attacker, epsilon = shown_by_flights(project, attributes | {"noise": "table"}, auditor)
    assert attacker == "all levels"
    assert epsilon > 1


# A small series: what is published beside the measurements, and one level of these.

REGIONS, LISTED = 8, 15
"""Regions, and zones of each: 0 has most trips, canaries go between 1 and 6, and nobody leaves the others otherwise."""


def code(region: Any, zone: Any) -> str:
    return f"{'ZONE' if zone < 7 else 'QUIET'}{region:02}{zone:02}"


@dataclass(frozen=True)
class Small:
    """A small project with canaries.

    Attributes:
        auditor: of canaries on two pairs of zones each; no two share a cell of level 3 or 4.
        quiet: zones from which there is a trip, if the bit is set, or none.
        bits: of the quiet zones.
    """

    project: Project
    auditor: one_run.Auditor
    quiet: list[str]
    bits: NDArray[np.bool_]

    def run(self, **changes: Any) -> None:
        given = {"privacy": {"epsilon": "1", "delta": str(DELTA)}, "noise": "table", "domain__cap__rho": "1"}
        result = self.project.run(self.project.component(trips__one_row_a_trip=True, **given | changes))
        assert result.success, failure_text(result)

    def shown(self) -> tuple[str, float]:
        """The attacker who shows most, by coins of both kinds, and what."""
        bundle = self.project.var / "releases" / "trips" / "2001-01" / "r1"
        names = " ".join(str(path.relative_to(self.project.var)) for path in one_run.public_paths(self.project.root))
        tables = self.auditor.guesses(bundle, 0.5)
        more = {
            "names of files": one_run.tokens_in([names], self.quiet),
            "events": one_run.tokens_in(one_run.told(self.project.instance), self.quiet),
        }
        silent = np.zeros(len(self.bits), dtype=np.int64), np.zeros(len(self.auditor.canaries.bits), dtype=np.int64)
        guesses = {name: np.concatenate([each, silent[0]]) for name, each in tables.items()}
        guesses |= {name: np.concatenate([silent[1], each]) for name, each in more.items()}
        return one_run.best(np.concatenate([self.auditor.canaries.bits, self.bits]), guesses, DELTA)

    def counted(self) -> pd.Series:
        """The true counts, as a defect may tell them: by origin and destination, those of canaries last."""
        records = pd.read_csv(self.project.root / "2001-01.csv")
        return records.value_counts(["origin", "destination"])


@pytest.fixture
def small(make_project, request) -> Small:
    """One row a person; canaries are people with as many trips as the parameter says, or with one."""
    project, trips = make_project(), getattr(request, "param", 1)
    zones = pd.DataFrame(
        [(f"R{r}", code(r, z)) for r in range(REGIONS) for z in range(LISTED)], columns=["region", "zone"]
    )
    zones.to_csv(project.root / "zones.csv", index=False)
    places = np.random.default_rng(1).permutation(REGIONS * REGIONS * 6)  # cells of level 3: from a region to a zone
    region, (to_region, to_zone) = places // (REGIONS * 6), np.divmod(places % (REGIONS * 6), 6)
    cells = [
        (code(r, 1 + k % 6), code(t, 1 + z)) for k, (r, t, z) in enumerate(zip(region, to_region, to_zone, strict=True))
    ]
    half = len(cells) // 2
    sides = [(*one, *other) for one, other in zip(cells[:half], cells[half:], strict=True)]
    ends = pd.DataFrame(sides, columns=["origin_in", "destination_in", "origin_out", "destination_out"])
    canaries = one_run.Canaries(one_run.fair_bits(half), ends)
    hubs = np.random.default_rng(2).integers(0, REGIONS, (2000, 2))
    base = pd.DataFrame([(code(o, 0), code(d, 0)) for o, d in hubs], columns=["origin", "destination"])
    quiet = [code(r, z) for r in range(REGIONS) for z in range(7, LISTED)]
    bits, hub = one_run.fair_bits(len(quiet)), code(0, 0)
    others = pd.DataFrame({"origin": np.where(bits, quiet, hub), "destination": hub})
    people = pd.concat([base, others, canaries.records()], ignore_index=True).assign(date="2001-01-15")
    people["person"] = people.index
    several = np.where(people.index < len(base) + len(others), 1, trips)
    project.write_records(people.loc[people.index.repeat(several)])
    areas = zones.set_index("zone", drop=False).assign(all="all")
    # Of the quiet zones' trips, the auditor of the others knows all: he is told more than he needs.
    return Small(project, one_run.Auditor(canaries, pd.concat([base, others]), areas), quiet, bits)


def test_a_small_series_shows_less_than_it_promises(small):
    """Fails with probability 1e-6."""
    small.run()
    attacker, epsilon = small.shown()
    assert epsilon < 1, (attacker, epsilon)
    assert [row["verified"] for row in verify_published_releases()] == [True]


def a_level_without_noise(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(measure, plan, step, parents, trips, noise):
        return measure(plan, step, parents, trips, Narrower(noise, 0) if step.level == 3 else noise)

    instead_of_measuring(monkeypatch, exact)


def an_event_that_names_zones(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def talkative(measure, *given):
        dg.get_dagster_logger().info(f"counted trips from {sorted(set(small.counted().reset_index()['origin']))}")
        return measure(*given)

    instead_of_measuring(monkeypatch, talkative)


def a_file_for_each_zone_with_trips(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def filing(measure, *given):
        folder = small.project.var / "zones"
        folder.mkdir(exist_ok=True)
        for zone in set(small.counted().reset_index()["origin"]):
            (folder / f"{zone}.txt").touch()
        return measure(*given)

    instead_of_measuring(monkeypatch, filing)


def rows_in_the_order_of_true_counts(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = LevelPair.write_csv

    def write_csv(pair, file):
        written = io.BytesIO()
        sound(pair, written)
        table = pd.read_csv(io.BytesIO(written.getvalue()), dtype=str, keep_default_na=False)
        true = small.counted().reindex(pd.MultiIndex.from_frame(table[["origin", "destination"]]), fill_value=0)
        table.iloc[np.argsort(-true.to_numpy(), kind="stable")].to_csv(file, index=False, lineterminator="\r\n")

    monkeypatch.setattr(LevelPair, "write_csv", write_csv)


def users_with_the_noise_of_one_trip(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty trips of a person are counted, and noise is added for one."""
    monkeypatch.setattr(Neighbours, "sensitivity_squared", lambda self, level, by_segment=False: 2 if level else 60**2)


def all_levels_drawn_again_and_again(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that are resumed draw anew, each under the first charge; what is published is the mean of 4,000 draws."""

    def averaged(measure, *given):
        return measure(*given[:-1], Averaged(given[-1], 4000))

    instead_of_measuring(monkeypatch, averaged)


BY_USER = {"domain__unit": "user_period", "domain__column": "person", "bounds__max_trips": 60}


@pytest.mark.parametrize(
    ("defect", "small", "changes", "finder"),
    [
        (a_level_without_noise, 1, {}, "all levels"),
        (all_levels_drawn_again_and_again, 1, {}, "all levels"),
        (users_with_the_noise_of_one_trip, 60, BY_USER, "all levels"),
        (an_event_that_names_zones, 1, {}, "events"),
        (a_file_for_each_zone_with_trips, 1, {}, "names of files"),
        (rows_in_the_order_of_true_counts, 1, {}, "order of flows"),
    ],
    indirect=["small"],
)
def test_a_release_with_a_defect_shows_more_than_it_promises(small, monkeypatch, defect, changes, finder):
    """Misses a defect with a probability far below 1e-6.

    Bits are told for certain where an event, a file or the order of rows tells them; all 64, or 96, guesses are right.
    Where noise is left, a bold guess is wrong less than once in 2,000, and 5 wrong ones of 96 still show more than 1.
    """
    defect(small, monkeypatch)
    small.run(**changes)
    attacker, epsilon = small.shown()
    assert attacker == finder
    assert epsilon > 1


# Records with weights: what one number tells. A canary of weight 2^k is the k-th bit of the sum.

BITS, KNOWN, WEIGHTED_PROMISE = 21, 723, 0.05
"""All of 21 guesses are right with a probability of 2^-21 < 1e-6 where nothing is told, and of 1e-6 at epsilon 0.07."""


def weighted_audit(project: Project, alpha: float = ALPHA) -> dict[str, float]:
    """What the total of a release shows, and what the numbers show that Dagster's messages say.

    The weights of the records sum to 723 * 2^21 and those of the canaries that are in. Each bound fails with
    probability alpha.
    """
    bits = one_run.fair_bits(BITS)
    weights = np.array([*(2 * KNOWN * [1 << 20]), *(1 << np.flatnonzero(bits))])
    project.write_records(
        pd.DataFrame({"date": "2001-01-15", "origin": "Z00", "destination": "Z10", "weight": weights})
    )
    component = project.component(
        trips__columns={"date": "date", "weight": "weight"},
        max_weight=1 << 20,
        domain__neighbours="unbounded",
        privacy={"epsilon": str(WEIGHTED_PROMISE), "delta": str(DELTA)},
    )
    assert project.run(component).success
    total = int(open_release(project.var / "releases" / "trips" / "2001-01" / "r1").flows["trips"].sum())
    said = {"total": [str(total)], "messages": one_run.messages(project.instance)}
    return {
        name: one_run.shown(bits, one_run.bits_of_numbers(texts, KNOWN, BITS), DELTA, alpha)
        for name, texts in said.items()
    }


def test_numbers_of_weighted_records_show_less_than_they_promise(project):
    """Fails with probability 1e-6."""
    assert max(weighted_audit(project, ALPHA / 2).values()) < WEIGHTED_PROMISE


def test_a_true_total_in_an_event_shows_more_than_it_promises(project, monkeypatch):
    def talkative(measure, plan, step, parents, trips, noise):
        dg.get_dagster_logger().info(f"{trips.total:,} trips are counted")
        return measure(plan, step, parents, trips, noise)

    instead_of_measuring(monkeypatch, talkative)
    assert weighted_audit(project)["messages"] > WEIGHTED_PROMISE


# The total number of trips: one coin a release, so that many releases are needed; without Dagster.

PERIODS_WITH_A_COIN, TOTALS_PROMISE = 24, 0.05


def totals_audit() -> float:
    """What the totals of 24 periods show of a record that is replaced by one from a place that is not listed."""
    zones = pd.DataFrame({"region": ["A", "B"], "zone": ["a", "b"]})
    geography, bits = Geography.from_frame(zones, ["region", "zone"]), one_run.fair_bits(PERIODS_WITH_A_COIN)
    totals = []
    for bit in bits:
        flows = pd.DataFrame({"origin": 3000 * ["a"], "destination": [*(2999 * ["b"]), "b" if bit else "nowhere"]})
        budget = Budget(epsilon=TOTALS_PROMISE, delta=DELTA)
        release = release_flows(flows, geography, unit=PrivacyUnit("trip"), budget=budget, noise="table")
        totals.append(int(release.flows["trips"].sum()))
    return one_run.shown(bits, np.where(np.array(totals) >= 3000, 1, -1), DELTA)


def test_totals_show_less_than_they_promise_where_a_record_may_leave():
    """Fails with probability 1e-6."""
    assert totals_audit() <= TOTALS_PROMISE


def test_exact_totals_show_more_than_they_promise_where_a_record_may_leave(monkeypatch):
    monkeypatch.setattr(Neighbours, "have_equal_totals", True)
    assert totals_audit() > TOTALS_PROMISE
