"""Audit of whole published releases through Dagster; the bound of epsilon is that of ``one_run.py``.

A release that keeps its promise shows less than it; each seeded defect shows more. All that leaves the confidential
folder is looked at: measurements, flows, the order of their rows, names of files, and Dagster's event storage.

One release shows little: at epsilon 1 the best guess about one trip is right in 54 of 100 cases. So what is shown of a
sound release is far below its promise, and defects are seeded that are larger than those of ``test_audit.py``, where
thousands of releases of the measurements alone show a level too many. What is looked for here is what no audit of the
measurements can see: that something else than them tells of a record.
"""

from __future__ import annotations

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

import od_assets.assets.levels
import tests.od_assets.conftest
from od_assets.components import OdRelease
from od_assets.verifying import verified
from od_core.publication.flow_tables import FlowTables
from tests.conftest import FLIGHTS
from tests.od_assets.conftest import Project
from tests.statistical.laws import ALPHA
from tests.statistical.one_run import (
    Auditor,
    Canaries,
    best,
    fair_bits,
    least_epsilon,
    p_value,
    public_paths,
    tokens_in,
    told,
)

make_project = tests.od_assets.conftest.make_project
"""The fixture of the tests of Dagster."""

DELTA = 1e-12
"""Of the small releases; of the flights it is what they declare."""


@pytest.mark.parametrize(("guesses", "epsilon"), [(60, 0.5), (2000, 0.1), (2000, 1.0), (500, 3.0)])
def test_the_bound_is_that_of_randomised_response_and_nearly_attained(guesses, epsilon):
    """Randomised response guesses as well as epsilon allows; its right guesses are binomial, so all is exact."""
    chance = special.expit(epsilon)
    numbers = range(guesses + 1)
    least = bisect_left(numbers, True, key=lambda right: least_epsilon(guesses, guesses, right, 0.0) > epsilon)
    assert stats.binom.sf(least - 1, guesses, chance) <= ALPHA < stats.binom.sf(least - 2, guesses, chance)
    usual = least_epsilon(guesses, guesses, int(stats.binom.median(guesses, chance)), 0.0)
    assert guesses < 2000 or epsilon - 6 / np.sqrt(guesses * chance * (1 - chance)) < usual < epsilon


def test_a_bound_that_is_too_strong_would_fail():
    """The odds of right guesses, without a bound from below, exceed epsilon every second time; without the part of
    delta a mechanism that gives all away with probability delta is said to break (0, delta)."""
    chance, delta = special.expit(1.0), 1e-4
    too_often = [right for right in range(1, 2000) if np.log(right / (2000 - right)) > 1.0]
    assert stats.binom.sf(too_often[0] - 1, 2000, chance) > 0.4
    gives_all_away = delta + (1 - delta) * 2.0**-40
    assert p_value(40, 40, 40, 0.0, 0.0) < gives_all_away <= p_value(40, 40, 40, 0.0, delta)


def test_the_bound_is_the_published_one():
    """Steinke, Nasr & Jagielski 2023, Appendix D: 75 of 100 guesses on 1000 canaries, delta 1e-4, 95 %."""
    assert least_epsilon(1000, 100, 75, 1e-4, 0.05) == pytest.approx(0.673, abs=5e-4)


class Narrower:
    """A backend that draws by a part of the variance that it is asked for; no noise at all for a part of 0."""

    def __init__(self, source: Any, part: int) -> None:
        self.source, self.part = source, part

    def draw(self, variance: Any, level: int, first: int, size: int) -> NDArray[np.int64]:
        if self.part == 0:
            return np.zeros(size, dtype=np.int64)
        return self.source.draw(variance / self.part, level, first, size)


def instead_of_measuring(monkeypatch: pytest.MonkeyPatch, changed: Callable[..., Any]) -> None:
    """Seed a defect where the counts of a level get their noise: ``changed`` is called with the sound function."""
    sound = od_assets.assets.levels.measure
    monkeypatch.setattr(od_assets.assets.levels, "measure", lambda *arguments: changed(sound, *arguments))


# Flights: the shipped series, with canaries among the records of June 2001.

FLIGHT_CANARIES = 5000


@pytest.fixture
def flights_project(make_project: Callable[[], Project], tmp_path: Path) -> tuple[Project, OdRelease, Auditor]:
    """A copy of the shipped series, whose June has 5,000 flights more: each on one of two pairs of airports."""
    project, folder = make_project(), tmp_path / "data" / "us_flights"
    folder.mkdir(parents=True)
    shutil.copy(FLIGHTS / "airports.csv", folder)
    zones = pd.read_csv(FLIGHTS / "airports.csv", dtype=str, keep_default_na=False)
    airports, generator = zones["airport"].to_numpy(), np.random.default_rng(1)
    pairs = generator.choice(len(airports) ** 2, (FLIGHT_CANARIES, 2), replace=False)
    ends = {
        f"{side}_{state}": airports[place]
        for state, pair in (("in", pairs[:, 0]), ("out", pairs[:, 1]))
        for side, place in zip(("origin", "destination"), np.divmod(pair, len(airports)), strict=True)
    }
    canaries = Canaries(fair_bits(FLIGHT_CANARIES), pd.DataFrame(ends))
    flights = pd.read_parquet(FLIGHTS / "2001-06.parquet")
    records = pd.concat([flights, canaries.records().assign(date=flights["date"].iloc[0])], ignore_index=True)
    records.to_parquet(folder / "2001-06.parquet", index=False)
    declared = yaml.safe_load((Path(od_assets.__file__).parent / "defs/us_flights/defs.yaml").read_text())
    areas = zones.set_index("airport", drop=False)[["region", "division", "state", "airport"]].assign(all="all")
    auditor = Auditor(canaries, flights[["origin", "destination"]], areas)
    return project, OdRelease.resolve_from_dict(declared["attributes"]), auditor


@pytest.mark.parametrize("part", [1, 100])
def test_flights_show_less_than_they_promise_and_more_with_a_hundredth_of_the_variance(
    flights_project, monkeypatch, part
):
    """Fails with probability 1e-6."""
    project, component, auditor = flights_project
    instead_of_measuring(
        monkeypatch,
        lambda measure, *given: measure(*given[:-1], Narrower(given[-1], part) if part > 1 else given[-1]),
    )
    assert project.run(component, "2001-06").success
    bundle = project.var / "releases" / "us_flights" / "2001-06" / "r1"
    attacker, epsilon = best(auditor.canaries.bits, auditor.guesses(bundle, 0.3), 1e-8)
    assert epsilon < 1 if part == 1 else epsilon > 1, (attacker, epsilon)


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
    auditor: Auditor
    quiet: list[str]
    bits: NDArray[np.bool_]

    def run(self, **changes: Any) -> None:
        given = {"privacy": {"epsilon": "1", "delta": str(DELTA)}, "noise": "table", "domain__cap__rho": "1"}
        assert self.project.run(self.project.component(**given | changes)).success

    def shown(self) -> tuple[str, float]:
        """The attacker who shows most, by coins of both kinds, and what."""
        bundle = self.project.var / "releases" / "trips" / "2001-01" / "r1"
        names = [str(path.relative_to(self.project.var)) for path in public_paths(self.project.root)]
        tables = self.auditor.guesses(bundle, 0.5)
        more = {
            "names of files": tokens_in(names, self.quiet),
            "events": tokens_in(told(self.project.instance), self.quiet),
        }
        silent = np.zeros(len(self.bits), dtype=np.int64), np.zeros(len(self.auditor.canaries.bits), dtype=np.int64)
        guesses = {name: np.concatenate([each, silent[0]]) for name, each in tables.items()}
        guesses |= {name: np.concatenate([silent[1], each]) for name, each in more.items()}
        return best(np.concatenate([self.auditor.canaries.bits, self.bits]), guesses, DELTA)

    def counted(self) -> pd.Series:
        """The true counts, as a defect may tell them: by origin and destination, those of canaries last."""
        records = pd.read_csv(self.project.root / "2001-01.csv")
        return records.value_counts(["origin", "destination"])


@pytest.fixture
def small(make_project: Callable[[], Project]) -> Small:
    project = make_project()
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
    canaries = Canaries(fair_bits(half), ends)
    hubs = np.random.default_rng(2).integers(0, REGIONS, (2000, 2))
    base = pd.DataFrame([(code(o, 0), code(d, 0)) for o, d in hubs], columns=["origin", "destination"])
    quiet = [code(r, z) for r in range(REGIONS) for z in range(7, LISTED)]
    bits, hub = fair_bits(len(quiet)), code(0, 0)
    others = pd.DataFrame({"origin": np.where(bits, quiet, hub), "destination": hub})
    records = pd.concat([base, canaries.records(), others], ignore_index=True)
    project.write_records(records.assign(date="2001-01-15"))
    areas = zones.set_index("zone", drop=False).assign(all="all")
    # Of the quiet zones' trips, the auditor of the others knows all: he is told more than he needs.
    return Small(project, Auditor(canaries, pd.concat([base, others]), areas), quiet, bits)


def test_a_small_series_shows_less_than_it_promises(small):
    """Fails with probability 1e-6."""
    small.run()
    attacker, epsilon = small.shown()
    assert epsilon < 1, (attacker, epsilon)
    assert [row["verified"] for row in verified()] == [True]


def a_level_without_noise(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(measure: Callable[..., Any], plan: Any, step: Any, parents: Any, trips: Any, noise: Any) -> Any:
        return measure(plan, step, parents, trips, Narrower(noise, 0) if step.level == 3 else noise)

    instead_of_measuring(monkeypatch, exact)


def an_event_that_names_zones(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def talkative(measure: Callable[..., Any], *given: Any) -> Any:
        dg.get_dagster_logger().info(f"counted trips from {sorted(set(small.counted().reset_index()['origin']))}")
        return measure(*given)

    instead_of_measuring(monkeypatch, talkative)


def a_file_for_each_zone_with_trips(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    def filing(measure: Callable[..., Any], *given: Any) -> Any:
        folder = small.project.var / "zones"
        folder.mkdir(exist_ok=True)
        for zone in set(small.counted().reset_index()["origin"]):
            (folder / f"{zone}.txt").touch()
        return measure(*given)

    instead_of_measuring(monkeypatch, filing)


def rows_in_the_order_of_true_counts(small: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = FlowTables.write_csv

    def write_csv(tables: FlowTables, path: Path) -> None:
        sound(tables, path)
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
        true = small.counted().reindex(pd.MultiIndex.from_frame(table[["origin", "destination"]]), fill_value=0)
        table.iloc[np.argsort(-true.to_numpy(), kind="stable")].to_csv(path, index=False, lineterminator="\r\n")

    monkeypatch.setattr(FlowTables, "write_csv", write_csv)


DEFECTS = {
    "all levels": a_level_without_noise,
    "events": an_event_that_names_zones,
    "names of files": a_file_for_each_zone_with_trips,
    "order of flows": rows_in_the_order_of_true_counts,
}
"""By the attacker who is to find it."""


@pytest.mark.parametrize("finder", DEFECTS)
def test_a_release_with_a_defect_shows_more_than_it_promises(small, monkeypatch, finder):
    """What is found here is told for certain: nothing is left to chance."""
    DEFECTS[finder](small, monkeypatch)
    small.run()
    attacker, epsilon = small.shown()
    assert attacker == finder
    assert epsilon > 1
