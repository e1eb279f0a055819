"""A release in a process of its own, that may die at a chosen point; every draw leaves a line in a side file."""

import os
import signal
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd

from od_core import Budget, PrivacyUnit, Release, plan_release, release_flows
from od_core.files import durable as files
from od_core.ledger import chain, confidential, measurements
from od_core.ledger.confidential import ConfidentialFolder
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.user_counters import UserCounters
from od_core.noise.opendp import OpenDPNoise
from od_core.privacy.budget import Cap
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.neighbours import NO_FAULTS
from tests.od_core.ledger.ledger_rows import FLOWS, GEOGRAPHY, TRIP, ledger_at

R1 = "commuters/2001-06/r1"
BY_SEGMENT = "commuters/2001-07/r1"
BY_YEAR = "people/2001-06/r1"
"""A release of users whose trips of a year are bounded, in a data set of its own."""
USERS = PrivacyUnit("user_year", "unbounded", "person", 2, max_trips_year=3, id_pattern="p[0-9]+")
TRIPS = FLOWS.loc[FLOWS.index.repeat(FLOWS["trips"])].drop(columns="trips")
PEOPLE = TRIPS.assign(person=[f"p{k % 90}" for k in range(len(TRIPS))])
SEGMENTS: dict[str, Any] = {
    "segments": {"mode": ["car", "bus", "?"], "day_type": ["weekday", "weekend"]},
    "segment_unknown": {"mode": "?"},
    "segment_share": "1/2",  # so that a query of the totals costs twice as much as one by segment
}
BY_CATEGORY = FLOWS.assign(mode=["car", "bus", "tram", None], day_type=["weekday", "weekend"] * 2)
"""The same trips with their categories, of which the first breakdown lists not all."""
RHO = Fraction(4, 7)
LEVEL_RHO = Fraction(1, 7)
BUDGET = Budget(rho=RHO, delta="1e-8", shares="uniform")
REAL_DRAW = OpenDPNoise.draw

POINTS = (
    "before DRAWING",
    "before the head",
    "after DRAWING",
    "during the draw",
    "while writing",
    "before the rename",
    "after the rename",
    "after MEASURED",
)


def die() -> None:
    """As by a power cut: nothing is caught, closed or cleaned up."""
    os.kill(os.getpid(), signal.SIGKILL)


class DyingLedger(Ledger):
    """The ledger, in a process that dies on this or that side of a transition."""

    point = ""
    level = 0

    def _die(self, level: int, point: str) -> None:
        if (level, point) == (self.level, self.point):
            die()

    def start_draw(self, key: ReleaseKey, level: int, *rest: object) -> int:
        self._die(level, "before DRAWING")
        if (level, self.point) == (self.level, "before the head"):
            chain.Chain._renew_head = lambda *_: die()
        draw = super().start_draw(key, level, *rest)
        self._die(level, "after DRAWING")
        return draw

    def finish_draw(self, key: ReleaseKey, level: int, *rest: object) -> None:
        self._die(level, "after the rename")
        super().finish_draw(key, level, *rest)
        self._die(level, "after MEASURED")


def watched(side: Path, *, dies_at: int | None = None) -> Callable[..., object]:
    """The real backend's draw, which writes a line before the first random bit."""

    def drawn(self, variance, level, first, size):
        if first == 0:  # a query by segment is one draw, for which the noise of each category is asked for in turn
            with side.open("a", encoding="utf-8") as file:
                file.write(f"{level}\n")
        noise = REAL_DRAW(self, variance, level, first, size)
        if level == dies_at:
            die()
        return noise

    return drawn


def declare(folder: Path, cap: Fraction, reason: str = "a table and some lost draws") -> Ledger:
    ledger = ledger_at(folder / "ledger.sqlite")
    ledger.declare(PrivacyDomain("commuters", TRIP, Cap(rho=cap), reason))
    return ledger


def released(ledger: Ledger, release_id: str = R1, flows: pd.DataFrame = FLOWS) -> Release:
    """Make a release of the flows, or of those by category or by user, which are those of these names alone."""
    flows, options = (BY_CATEGORY, SEGMENTS) if release_id == BY_SEGMENT else (flows, {})
    unit = unit_of(release_id)
    if unit is USERS:
        flows, options = PEOPLE, {"one_row_a_trip": True}
        ledger.declare(PrivacyDomain("people", USERS, Cap(rho=Fraction(9)), "a year of users"))
    return release_flows(
        flows, GEOGRAPHY, unit=unit, budget=BUDGET, ledger=ledger, release_id=release_id, fault_threshold=0, **options
    )


def unit_of(release_id: str) -> PrivacyUnit:
    return USERS if release_id.startswith("people/") else TRIP


def charges_of(release_id: str) -> dict[int, Fraction]:
    """Return what each query of a release costs, by the number of its step, in the order in which they are drawn."""
    options = SEGMENTS if release_id == BY_SEGMENT else {}
    plan = plan_release(GEOGRAPHY, unit=unit_of(release_id), budget=BUDGET, acceptance=NO_FAULTS, **options)
    return {step.number: step.rho for step in plan.steps}


def side_file(folder: Path, release_id: str = R1) -> Path:
    """Where every draw of a release leaves a line, whatever becomes of it."""
    return folder / f"{release_id.replace('/', '.')}.draws"


COUNTING = ("before the counters", "after the counters", "before the fingerprints", "after the fingerprints")
"""Points of a release of users of a year at which nothing is drawn or reserved yet."""


def die_while_counting(point: str) -> None:
    """Let this process die when it has stored the counters of users, or their fingerprints, or is about to."""
    when, _, what = point.split()
    name = {"counters": "store_or_compare", "fingerprints": "hold_to_input"}[what]
    do = getattr(UserCounters, name)

    def dying(self, *given):
        if when == "after":
            do(self, *given)
        die()

    setattr(UserCounters, name, dying)


def run_and_die(folder: Path, level: int, point: str, release_id: str = R1) -> None:
    """Run a release until it dies at a step, of which ``level`` is the number."""
    if point in COUNTING:
        die_while_counting(point)
    if point in ("while writing", "before the rename"):
        write, replace = measurements.write_checked, Path.replace
        if point == "while writing":

            def half(path, content, **options):
                written = write(path, content, **options)
                if f"measurement_{level}." in str(path):
                    os.truncate(path, path.stat().st_size // 2)
                    die()
                return written

            measurements.write_checked = half
        else:

            def never(self, target):
                return die() if f"measurement_{level}." in str(target) else replace(self, target)

            files.Path.replace = never
    OpenDPNoise.draw = watched(side_file(folder, release_id), dies_at=level if point == "during the draw" else None)
    ledger = ledger_at(folder / "ledger.sqlite", DyingLedger)
    ledger.point, ledger.level = point, level
    released(ledger, release_id)


def make_key_with_another(folder: Path, name: str) -> None:
    """Make the key of a new confidential folder while another process makes it, 'two' the later; say it."""
    random_bytes = confidential.secrets.token_bytes

    def after_the_other(size):
        (folder / f"{name}.ready").touch()
        deadline = time.monotonic() + 2.0
        while len(list(folder.glob("*.ready"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.002)
        time.sleep(0.4 if name == "two" else 0.0)
        return random_bytes(size)

    confidential.secrets.token_bytes = after_the_other
    print(ConfidentialFolder(folder / "confidential").read_or_make_key().hex())


def main(kind: str, folder: str, *rest: str) -> None:
    place = Path(folder)
    if kind == "die":
        run_and_die(place, int(rest[0]), *rest[1:])
    else:
        make_key_with_another(place, rest[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
