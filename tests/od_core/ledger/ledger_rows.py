"""The ledger read with its database, hashlib and json alone, and the small release that the tests charge to it."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from od_core import (
    Budget,
    Cap,
    Geography,
    InfTDARefined,
    Ledger,
    PrivacyUnit,
    ReleaseKey,
    ReleasePlan,
    plan_release,
)
from od_core.ledger import measurements
from od_core.privacy.domain import PrivacyDomain
from od_core.privacy.neighbours import NO_FAULTS
from tests.postgres import restore, server_of, session, without_guards

PAIRS = [("a", "aa"), ("a", "ab"), ("b", "ba"), ("b", "bb"), ("b", "bc")]
ZONES = pd.DataFrame(PAIRS, columns=["region", "zone"], dtype="str")
GEOGRAPHY = Geography.from_frame(ZONES, ["region", "zone"])
ONE_LEVEL = Geography.from_frame(ZONES[["zone"]], ["zone"])
"""For tests that say nothing of levels: its release has the files of 4 pairs of levels, and not of 9."""
TRIP = PrivacyUnit("trip")
FLOWS = pd.DataFrame(
    [("aa", "ba", 40), ("ab", "ab", 7), ("ba", "aa", 1), ("bc", "bb", 300)], columns=["origin", "destination", "trips"]
)


def small_plan(rho: object = Fraction(3, 7), **changes: Any) -> ReleasePlan:
    """Four levels (five when n is noised) of unequal charges that no float holds."""
    unit = changes.pop("unit", TRIP)
    levels = 4 if unit == TRIP else 5
    shares = changes.pop("shares", [Fraction(k + 1, levels * (levels + 1) // 2) for k in range(levels)])
    budget = Budget(rho=rho, delta=changes.pop("delta", "1e-8"), shares=shares)
    return plan_release(changes.pop("geography", GEOGRAPHY), unit=unit, budget=budget, **changes, acceptance=NO_FAULTS)


def pure_plan(epsilon: str) -> ReleasePlan:
    """A plan with Laplace noise at each level, which is charged a pure epsilon."""
    laplace = InfTDARefined(noise_distribution="laplace")
    budget = Budget(epsilon)
    return plan_release(GEOGRAPHY, unit=TRIP, budget=budget, mechanism=laplace, tree="both", acceptance=NO_FAULTS)


def domain(cap: object, reason: str = "decided by the board", unit: PrivacyUnit = TRIP) -> PrivacyDomain:
    return PrivacyDomain("commuters", unit, Cap(rho=Fraction(cap)), reason)


def declared(folder: Path, data_set: str, unit: PrivacyUnit, cap: Cap | None = None) -> Ledger:
    """A new ledger in a folder, with a data set of a rho of 1 at most, or of another cap."""
    ledger = ledger_at(folder / "ledger.sqlite")
    ledger.declare(PrivacyDomain(data_set, unit, cap or Cap(rho=Fraction(1)), "a test"))
    return ledger


def finish(ledger: Ledger, key: ReleaseKey, level: int, digest: str) -> None:
    """Say that the newest draw of a level is durable."""
    ledger.finish_draw(key, level, ledger.count_draws(key, level), digest)


def ledger_at(path: Path, kind: type[Ledger] = Ledger) -> Ledger:
    """The ledger of the folder, in the file or in the database that the folder names."""
    return kind(path, server_of(path))


def rows(path: Path) -> list[dict[str, Any]]:
    """All rows of the ledger, oldest first, as they are stored."""
    if server_of(path):
        with session(path) as connection:
            return list(connection.execute("SELECT * FROM entries ORDER BY number"))
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM entries ORDER BY number")]


def saved(path: Path) -> bytes | list[dict[str, Any]]:
    """A copy of the ledger: of its file, or of its rows in a database."""
    return rows(path) if server_of(path) else path.read_bytes()


def put_back(path: Path, copy: bytes | list[dict[str, Any]] | None) -> None:
    """Put a copy in the place of the ledger; None for a ledger that is lost."""
    if server_of(path):
        restore(path, list(copy or ()))
    elif copy is None:
        path.unlink()
    else:
        path.write_bytes(copy)


def edit(path: Path, statement: str, *values: object) -> None:
    """Change rows, as whoever takes the guards of the ledger away first."""
    if server_of(path):
        assert without_guards(path, statement) >= 1
        return
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for guard in ("entries_are_final", "entries_stay"):
            connection.execute(f"DROP TRIGGER {guard}")
        assert connection.execute(statement, values).rowcount >= 1


def published(ledger: Ledger, key: ReleaseKey) -> Path:
    """Publish a release, so that the ledger holds a row of every kind; return the path of the ledger."""
    ledger.reserve(key, "commuters", small_plan())
    for level in (1, 2, 3, 4):
        ledger.start_draw(key, level)
        finish(ledger, key, level, f"{level}" * 64)
    ledger.publish(key, "0" * 64)
    kinds = {"DOMAIN", "CAP", "RESERVED", "DRAWING", "MEASURED", "PUBLISHED"}
    assert {row["kind"] for row in rows(ledger.path)} == kinds
    assert_chain(ledger.path)
    return ledger.path


class Claims:
    """A plan or a step that states other facts than it has."""

    def __init__(self, given: Any, **stated: Any) -> None:
        self._given, self._stated = given, stated

    def __getattr__(self, name: str) -> Any:
        return self._stated[name] if name in self._stated else getattr(self._given, name)


def charged(path: Path, **columns: object) -> Fraction:
    """Exact sum of what was set aside in the rows with these columns."""
    return sum((Fraction(row["rho"]) for row in reservations(path, **columns)), start=Fraction(0))


def reservations(path: Path, **columns: object) -> list[dict[str, Any]]:
    wanted = {"kind": "RESERVED", **columns}
    return [row for row in rows(path) if all(row[name] == value for name, value in wanted.items())]


def states(path: Path, release: str) -> dict[int, str]:
    """Newest state of every level of a release."""
    return {row["level"]: row["kind"] for row in rows(path) if row["release"] == release and row["level"] is not None}


def assert_chain(path: Path) -> None:
    """Every row carries the hash of the row before it, and its own."""
    previous = ""
    for number, row in enumerate(rows(path), start=1):
        stated = row.pop("hash")
        assert row["number"] == number
        assert row["previous"] == previous
        assert stated == hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()
        previous = stated


def try_to_declare(ledger, declared):
    """Declare a data set in a trial."""
    with ledger.trial():
        ledger.declare(declared)


def try_release(ledger, key, declared, plan, lost=()):
    """Declare a data set, reserve a release of it, and begin the draws of levels, in a trial."""
    with ledger.trial():
        ledger.declare(declared)
        ledger.reserve(key, declared.name, plan)
        for level in lost:
            ledger.start_draw(key, level)


@contextmanager
def baselines_charged() -> Iterator[None]:
    """Charge mechanisms that measure the leaves alone in this context, as earlier versions did."""
    with pytest.MonkeyPatch.context() as context:
        context.setattr(measurements, "refuse_unsupported", lambda *_given: None)
        yield
