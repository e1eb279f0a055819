"""The budget ledger: an append-only record of what was set aside, drawn, measured and published (spec 6, "Ledger").

One SQLite file. Every row carries the hash of the row before it and is never changed. The state of a level is
that of its newest row; what a domain has spent in a period is the sum of its RESERVED rows, so nothing is ever
refunded. A level found DRAWING was lost with its process: nobody can prove that the draw was not seen, so it
stays charged, and drawing again is a further reservation.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.plan import ReleasePlan
from od_core.privacy.budget import Spent
from od_core.privacy.domain import PrivacyDomain

DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED = "DOMAIN", "CAP", "RESERVED", "DRAWING", "MEASURED", "PUBLISHED"

_LOCK_SECONDS = 60.0

_PASSING = ("BUSY", "LOCKED", "READONLY", "CANTOPEN", "FULL", "IOERR", "PERM")
"""Errors of SQLite that say nothing about what stands in the file; any other means that it is damaged."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    domain TEXT NOT NULL,
    period TEXT,
    release TEXT,
    level INTEGER,
    draw INTEGER,
    rho TEXT,
    content TEXT NOT NULL,
    previous TEXT NOT NULL,
    hash TEXT NOT NULL
) STRICT;
CREATE TRIGGER IF NOT EXISTS entries_are_final BEFORE UPDATE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never changed'); END;
CREATE TRIGGER IF NOT EXISTS entries_stay BEFORE DELETE ON entries
BEGIN SELECT RAISE(ABORT, 'ledger entries are never removed'); END;
"""


@dataclass(frozen=True)
class LevelState:
    """Newest state of one level of a release.

    Attributes:
        kind: RESERVED, DRAWING or MEASURED.
        draw: 1, or one more for each draw that was lost.
        digest: SHA-256 of the measurement file, once MEASURED.
    """

    kind: str
    draw: int
    digest: str | None


@dataclass(frozen=True)
class Balance:
    """What a domain may spend in one elementary period, and has spent."""

    domain: str
    period: str
    cap: Fraction
    spent: Fraction

    @property
    def left(self) -> Fraction:
        """What further reservations may ask for."""
        return self.cap - self.spent


class Ledger:
    """The ledger in one SQLite file, made on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._transaction() as rows:
            rows.verify()

    def declare(self, domain: PrivacyDomain) -> None:
        """Declare a data set's privacy domain, or a new cap of it with its reason.

        Raises:
            OdError: the domain is declared with another unit or relation; the cap changed without a new reason.
        """
        with self._transaction() as rows:
            declared = rows.newest(DOMAIN, domain=domain.name)
            if declared is None:
                rows.append(DOMAIN, domain.name, content=domain.facts())
            elif declared["content"] != domain.facts():
                raise OdError(
                    "OD-DOMAIN-CONFLICT",
                    f"data set {domain.name!r} is declared with {declared['content']}, not with {domain.facts()}",
                    next_step="use the declared unit and neighbours; two promises of different kinds do not coexist",
                )
            cap = {"cap": str(domain.cap), "reason": domain.cap_reason}
            stands = rows.newest(CAP, domain=domain.name)
            if stands is None or stands["content"]["cap"] != cap["cap"]:
                if stands is not None and stands["content"]["reason"] == cap["reason"]:
                    raise OdError(
                        "OD-LEDGER-CAP-REASON",
                        f"the cap of {domain.name!r} changed from {stands['content']['cap']} to {cap['cap']}"
                        " without a new reason",
                        next_step="state why in the configuration's cap reason",
                    )
                rows.append(CAP, domain.name, content=cap)

    def reserve(self, key: ReleaseKey, domain: str, plan: ReleasePlan) -> None:
        """Set all levels of a release aside, or none; nothing where that same plan is set aside already.

        Raises:
            OdError: the cap does not allow it (nothing is spent); the release was set aside with another plan;
                its unit is not the domain's.
        """
        with self._transaction() as rows:
            first = rows.first_reservation(key)
            if first is not None:
                _check_same_plan(key, first, domain, plan)
                return
            declared = rows.newest(DOMAIN, domain=domain)
            facts = PrivacyDomain(domain, plan.unit, Fraction(1), "-").facts()
            if declared is None or declared["content"] != facts:
                raise OdError(
                    "OD-DOMAIN-CONFLICT",
                    f"the release's unit is not that of the privacy domain {domain!r}",
                    next_step="declare the domain once, with the unit and neighbours of all its releases",
                )
            rows.check_cap(domain, key, plan.spent.rho)
            for step in plan.steps:
                content = {
                    "mechanism": plan.mechanism.name,
                    "sensitivity_squared": step.sensitivity_squared,
                    "variance": str(step.variance),
                    "plan": plan.facts(),
                }
                rows.append(RESERVED, domain, key, level=step.level, draw=1, rho=step.rho, content=content)

    def start_draw(self, key: ReleaseKey, level: int) -> int:
        """Mark a level as being drawn, durably, before the first random bit; returns the number of the draw.

        A level that is marked already was lost: it is set aside once more.

        Raises:
            OdError: the level is not set aside, or is measured; the cap does not allow drawing it once more.
        """
        with self._transaction() as rows:
            row = rows.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
            if row is None or row["kind"] == MEASURED:
                raise OdError(
                    "OD-LEDGER-STATE",
                    f"level {level} of {key} is {'not set aside' if row is None else 'measured already'}",
                    next_step="run the whole release again",
                )
            draw = int(row["draw"])
            if row["kind"] == DRAWING:
                lost = rows.newest(RESERVED, release=str(key), level=level)
                if lost is None:
                    raise _broken()
                rho = Fraction(lost["rho"])
                rows.check_cap(row["domain"], key, rho, lost_draw=True)
                draw += 1
                rows.append(RESERVED, row["domain"], key, level=level, draw=draw, rho=rho, content=lost["content"])
            rows.append(DRAWING, row["domain"], key, level=level, draw=draw)
            return draw

    def finish_draw(self, key: ReleaseKey, level: int, digest: str) -> None:
        """Record that a drawn level is durable, with the digest of its file. Raises OdError in any other state."""
        with self._transaction() as rows:
            row = rows.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
            if row is None or row["kind"] != DRAWING:
                raise OdError(
                    "OD-LEDGER-STATE", f"level {level} of {key} is not being drawn", next_step="run the release again"
                )
            rows.append(MEASURED, row["domain"], key, level=level, draw=row["draw"], content={"digest": digest})

    def publish(self, key: ReleaseKey) -> None:
        """Record that a release is public; once. Raises OdError unless all its levels are measured."""
        with self._transaction() as rows:
            if rows.newest(PUBLISHED, release=str(key)) is not None:
                return
            levels = rows.levels(key)
            if not levels or any(row["kind"] != MEASURED for row in levels.values()):
                raise OdError(
                    "OD-LEDGER-STATE", f"not every level of {key} is measured", next_step="run the release again"
                )
            rows.append(PUBLISHED, next(iter(levels.values()))["domain"], key)

    def level_state(self, key: ReleaseKey, level: int) -> LevelState | None:
        """Newest state of a level; None where it was never set aside."""
        with self._transaction() as rows:
            row = rows.levels(key).get(level)
        return None if row is None else LevelState(row["kind"], int(row["draw"]), row["content"].get("digest"))

    def measured_digest(self, key: ReleaseKey, level: int) -> str:
        """SHA-256 of a measured level's file. Raises OdError where the level is not measured."""
        state = self.level_state(key, level)
        if state is None or state.digest is None:
            raise OdError(
                "OD-LEDGER-STATE", f"level {level} of {key} is not measured", next_step="run the release again"
            )
        return state.digest

    def draws(self, key: ReleaseKey, level: int) -> int:
        """How often a level was set aside to be drawn: once, and once more for each draw that was lost."""
        state = self.level_state(key, level)
        return 0 if state is None else state.draw

    def is_published(self, key: ReleaseKey) -> bool:
        """Whether the release was published."""
        with self._transaction() as rows:
            return rows.newest(PUBLISHED, release=str(key)) is not None

    def measured_at(self, key: ReleaseKey) -> str:
        """UTC time at which the last level was measured: the release's time, the same at every replay."""
        with self._transaction() as rows:
            row = rows.newest(MEASURED, release=str(key))
        if row is None:
            raise OdError("OD-LEDGER-STATE", f"{key} is not measured", next_step="run the release")
        return str(row["at"])

    def spent(self, key: ReleaseKey, plan: ReleasePlan) -> Spent:
        """What a release was charged, by level, lost draws included."""
        with self._transaction() as rows:
            charges = rows.select("kind = ? AND release = ?", RESERVED, str(key))
        by_level = {step.level: Fraction(0) for step in plan.steps}
        for row in charges:
            by_level[row["level"]] += Fraction(row["rho"])
        return Spent(levels=tuple(by_level.values()), delta=plan.budget.delta)

    def lost_draws(self, key: ReleaseKey) -> int:
        """How many draws of a release were lost with their process and charged once more."""
        with self._transaction() as rows:
            return len(rows.select("kind = ? AND release = ? AND draw > 1", RESERVED, str(key)))

    def balance(self, domain: str, period: str) -> Balance:
        """Cap and spending of a domain in one elementary period. Raises OdError for an undeclared domain."""
        with self._transaction() as rows:
            return rows.balance(domain, period)

    @contextmanager
    def _transaction(self) -> Iterator[_Rows]:
        """One immediate transaction: its writer is alone, and it is whole or absent."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_LOCK_SECONDS, isolation_level=None)) as connection:
                connection.row_factory = sqlite3.Row
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.executescript(_SCHEMA)
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield _Rows(connection)
                except BaseException:
                    connection.execute("ROLLBACK")
                    raise
                connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "").partition("_")[2].startswith(_PASSING):
                raise OdError(
                    "OD-LEDGER-UNAVAILABLE",
                    f"the ledger cannot be used: {error}",
                    next_step="see to the disk and to other programs that have it open, then run the release again",
                    spent="what was set aside before stays charged",
                ) from None
            raise _broken() from None


class _Rows:
    """The rows of the ledger inside one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def select(self, where: str, *values: str | int) -> list[dict[str, Any]]:
        found = self._connection.execute(f"SELECT * FROM entries WHERE {where} ORDER BY number", values)  # noqa: S608
        return [{**dict(row), "content": json.loads(row["content"])} for row in found]

    def newest(self, *kinds: str, **columns: str | int) -> dict[str, Any] | None:
        where = f"kind IN ({', '.join('?' * len(kinds))})" + "".join(f" AND {name} = ?" for name in columns)
        found = self.select(where, *kinds, *columns.values())
        return found[-1] if found else None

    def levels(self, key: ReleaseKey) -> dict[int, dict[str, Any]]:
        """Newest row of every level of a release."""
        return {row["level"]: row for row in self.select("release = ? AND level IS NOT NULL", str(key))}

    def first_reservation(self, key: ReleaseKey) -> dict[str, Any] | None:
        found = self.select("kind = ? AND release = ?", RESERVED, str(key))
        return found[0] if found else None

    def balance(self, domain: str, period: str) -> Balance:
        cap = self.newest(CAP, domain=domain)
        if cap is None:
            raise OdError(
                "OD-DOMAIN-UNDECLARED",
                f"the privacy domain {domain!r} is not declared",
                next_step="run a release of it",
            )
        charges = self.select("kind = ? AND domain = ? AND period = ?", RESERVED, domain, period)
        spent = sum((Fraction(row["rho"]) for row in charges), start=Fraction(0))
        return Balance(domain, period, Fraction(cap["content"]["cap"]), spent)

    def check_cap(self, domain: str, key: ReleaseKey, asked: Fraction, *, lost_draw: bool = False) -> None:
        balance = self.balance(domain, key.period)
        if asked > balance.left:
            what = "drawing a lost level again" if lost_draw else "the release"
            raise OdError(
                "OD-LEDGER-CAP",
                f"{what} asks for rho {float(asked):.6g} in {key.period}, but of the cap {float(balance.cap):.6g}"
                f" of data set {domain!r}, {float(balance.spent):.6g} is spent and {float(balance.left):.6g} is left",
                next_step="ask for less, or raise the cap with a stated reason",
                spent="nothing more was spent" if lost_draw else "nothing was spent",
            )

    def append(
        self,
        kind: str,
        domain: str,
        key: ReleaseKey | None = None,
        *,
        level: int | None = None,
        draw: int | None = None,
        rho: Fraction | None = None,
        content: dict[str, Any] | None = None,
    ) -> None:
        last = self._connection.execute("SELECT number, hash FROM entries ORDER BY number DESC LIMIT 1").fetchone()
        row = {
            "number": 1 if last is None else last["number"] + 1,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "kind": kind,
            "domain": domain,
            "period": None if key is None else key.period,
            "release": None if key is None else str(key),
            "level": level,
            "draw": draw,
            "rho": None if rho is None else str(rho),
            "content": json.dumps(content or {}, sort_keys=True),
            "previous": "" if last is None else last["hash"],
        }
        row["hash"] = _row_hash(row)
        names = ", ".join(row)
        self._connection.execute(
            f"INSERT INTO entries ({names}) VALUES ({', '.join('?' * len(row))})",  # noqa: S608  # column names only
            tuple(row.values()),
        )

    def verify(self) -> None:
        """Refuse a ledger whose chain of hashes is broken."""
        previous = ""
        for number, found in enumerate(self._connection.execute("SELECT * FROM entries ORDER BY number"), start=1):
            row = dict(found)
            stated = row.pop("hash")
            if row["number"] != number or row["previous"] != previous or _row_hash(row) != stated:
                raise _broken()
            previous = stated


def _row_hash(row: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).hexdigest()


def _check_same_plan(key: ReleaseKey, first: dict[str, Any], domain: str, plan: ReleasePlan) -> None:
    facts = json.loads(json.dumps(plan.facts()))
    changed = sorted(name for name in facts if first["content"]["plan"].get(name) != facts[name])
    if first["domain"] != domain:
        changed.insert(0, "data set")
    if changed:
        raise OdError(
            "OD-REPLAY-PLAN-CHANGED",
            f"{key} was set aside with other settings; changed: {', '.join(changed)}",
            next_step="restore the settings, or give the release a new revision, which is charged again",
            spent="what was set aside before stays charged",
        )


def _broken() -> OdError:
    return OdError(
        "OD-LEDGER-BROKEN",
        "the ledger is damaged or was edited",
        next_step="restore the ledger file; nothing is drawn or published without it",
    )
