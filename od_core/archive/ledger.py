"""The budget ledger: an append-only record of what was set aside, drawn, measured and published (spec 6, "Ledger").

Its entries are a chain (``chain.py``) that is never changed. The state of a level is
that of its newest entry; what a domain has spent in a period is the sum of its RESERVED entries, so nothing is ever
refunded. A level found DRAWING was lost with its process: nobody can prove that the draw was not seen, so it
stays charged, and drawing again is a further reservation.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_core.archive.chain import Chain, Entries, broken
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.plan import ReleasePlan
from od_core.privacy.budget import Spent
from od_core.privacy.domain import PrivacyDomain

DOMAIN, CAP, RESERVED, DRAWING, MEASURED, PUBLISHED = "DOMAIN", "CAP", "RESERVED", "DRAWING", "MEASURED", "PUBLISHED"


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
        self._chain = Chain(path, path.parent / "confidential" / "ledger.head")
        with self._transaction() as entries:
            entries.verify()

    def _transaction(self) -> AbstractContextManager[Entries]:
        return self._chain.transaction()

    def kept_open(self) -> AbstractContextManager[None]:
        """While this lasts, entries cost less; for a run that makes many of them."""
        return self._chain.kept_open()

    def declare(self, domain: PrivacyDomain) -> None:
        """Declare a data set's privacy domain, or a new cap of it with its reason.

        Raises:
            OdError: the domain is declared with another unit or relation; the cap changed without a new reason.
        """
        with self._transaction() as entries:
            declared = entries.newest(DOMAIN, domain=domain.name)
            if declared is None:
                entries.append(DOMAIN, domain.name, content=domain.facts())
            elif declared["content"] != domain.facts():
                raise OdError(
                    "OD-DOMAIN-CONFLICT",
                    f"data set {domain.name!r} is declared with {declared['content']}, not with {domain.facts()}",
                    next_step="use the declared unit and neighbours; two promises of different kinds do not coexist",
                )
            cap = {"cap": str(domain.cap), "reason": domain.cap_reason.strip()}
            stands = entries.newest(CAP, domain=domain.name)
            if stands is None or stands["content"]["cap"] != cap["cap"]:
                if stands is not None and stands["content"]["reason"] == cap["reason"]:
                    raise OdError(
                        "OD-LEDGER-CAP-REASON",
                        f"the cap of {domain.name!r} changed from {stands['content']['cap']} to {cap['cap']}"
                        " without a new reason",
                        next_step="state why in the configuration's cap reason",
                    )
                entries.append(CAP, domain.name, content=cap)

    def reserve(self, key: ReleaseKey, domain: str, plan: ReleasePlan) -> None:
        """Set all levels of a release aside, or none; nothing where that same plan is set aside already.

        Raises:
            OdError: the cap does not allow it (nothing is spent); the release was set aside with another plan;
                its unit is not the domain's.
        """
        with self._transaction() as entries:
            if _is_reserved(entries, key, domain, plan):
                return
            declared = entries.newest(DOMAIN, domain=domain)
            unit = PrivacyDomain(domain, plan.unit, Fraction(1), "-").facts()
            if declared is None or declared["content"] != unit:
                raise OdError(
                    "OD-DOMAIN-CONFLICT",
                    f"the release's unit is not that of the privacy domain {domain!r}",
                    next_step="declare the domain once, with the unit and neighbours of all its releases",
                )
            _check_cap(entries, domain, key, plan.spent.rho)
            facts = plan.facts()
            for step in plan.steps:
                content = {
                    "mechanism": plan.mechanism.name,
                    "sensitivity_squared": step.sensitivity_squared,
                    "variance": str(step.variance),
                    "plan": facts,
                }
                entries.append(RESERVED, domain, key, level=step.level, draw=1, rho=step.rho, content=content)

    def hold_to_plan(self, key: ReleaseKey, domain: str, plan: ReleasePlan) -> None:
        """Refuse another plan than the one that the release was set aside with, if it was. Raises OdError."""
        with self._transaction() as entries:
            _is_reserved(entries, key, domain, plan)

    def start_draw(self, key: ReleaseKey, level: int, noise: str | None = None) -> int:
        """Mark a level as being drawn, durably, before the first random bit; returns the number of the draw.

        A level that is marked already was lost: it is set aside once more. ``noise`` names the backend.

        Raises:
            OdError: the level is not set aside, or is measured; the cap does not allow drawing it once more.
        """
        with self._transaction() as entries:
            row = entries.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
            if row is None or row["kind"] == MEASURED:
                raise OdError(
                    "OD-LEDGER-STATE",
                    f"level {level} of {key} is {'not set aside' if row is None else 'measured already'}",
                    next_step="run the whole release again",
                )
            draw = int(row["draw"])
            if row["kind"] == DRAWING:
                lost = entries.newest(RESERVED, release=str(key), level=level)
                if lost is None:
                    raise broken()
                rho = Fraction(lost["rho"])
                _check_cap(entries, row["domain"], key, rho, lost_draw=True)
                draw += 1
                entries.append(RESERVED, row["domain"], key, level=level, draw=draw, rho=rho, content=lost["content"])
            entries.append(DRAWING, row["domain"], key, level=level, draw=draw, content={"noise": noise})
            return draw

    def finish_draw(self, key: ReleaseKey, level: int, draw: int, digest: str) -> None:
        """Record that a draw is durable, with the digest of its file.

        Raises:
            OdError: the level is in another state, or another draw of it was begun since.
        """
        with self._transaction() as entries:
            row = entries.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
            if row is None or row["kind"] != DRAWING or row["draw"] != draw:
                raise OdError(
                    "OD-LEDGER-STATE",
                    f"level {level} of {key} is not being drawn, or is by another run",
                    next_step="run the release again",
                )
            entries.append(MEASURED, row["domain"], key, level=level, draw=draw, content={"digest": digest})

    def publish(self, key: ReleaseKey) -> None:
        """Record that a release is public; once. Raises OdError unless all its levels are measured."""
        with self._transaction() as entries:
            if entries.newest(PUBLISHED, release=str(key)) is not None:
                return
            levels = _levels(entries, key)
            if not levels or any(row["kind"] != MEASURED for row in levels.values()):
                raise OdError(
                    "OD-LEDGER-STATE", f"not every level of {key} is measured", next_step="run the release again"
                )
            entries.append(PUBLISHED, next(iter(levels.values()))["domain"], key)

    def level_state(self, key: ReleaseKey, level: int) -> LevelState | None:
        """Newest state of a level; None where it was never set aside."""
        with self._transaction() as entries:
            row = entries.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
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

    def is_drawn(self, key: ReleaseKey) -> bool:
        """Whether any level of the release was ever drawn, or began to be."""
        with self._transaction() as entries:
            return entries.newest(DRAWING, release=str(key)) is not None

    def noise(self, key: ReleaseKey) -> str:
        """Names of the backends that drew a release: one, but where the setting changed between two levels."""
        with self._transaction() as entries:
            drawn = entries.select("kind = ? AND release = ?", DRAWING, str(key))
        # Entries of before there were two backends name none: OpenDP was the only one.
        return ", ".join(sorted({entry["content"].get("noise") or "opendp" for entry in drawn}))

    def is_published(self, key: ReleaseKey) -> bool:
        """Whether the release was published."""
        with self._transaction() as entries:
            return entries.newest(PUBLISHED, release=str(key)) is not None

    def measured_at(self, key: ReleaseKey) -> str:
        """UTC time at which the last level was measured: the release's time, the same at every replay."""
        with self._transaction() as entries:
            row = entries.newest(MEASURED, release=str(key))
        if row is None:
            raise OdError("OD-LEDGER-STATE", f"{key} is not measured", next_step="run the release")
        return str(row["at"])

    def spent(self, key: ReleaseKey, plan: ReleasePlan) -> Spent:
        """What a release was charged, by level, lost draws included."""
        with self._transaction() as entries:
            charges = entries.select("kind = ? AND release = ?", RESERVED, str(key))
        by_level = {step.level: Fraction(0) for step in plan.steps}
        for row in charges:
            by_level[row["level"]] += Fraction(row["rho"])
        return Spent(levels=tuple(by_level.values()), delta=plan.budget.delta)

    def lost_draws(self, key: ReleaseKey) -> int:
        """How many draws of a release were lost with their process and charged once more."""
        with self._transaction() as entries:
            return len(entries.select("kind = ? AND release = ? AND draw > 1", RESERVED, str(key)))

    def balance(self, domain: str, period: str) -> Balance:
        """Cap and spending of a domain in one elementary period. Raises OdError for an undeclared domain."""
        with self._transaction() as entries:
            return _balance(entries, domain, period)


def _levels(entries: Entries, key: ReleaseKey) -> dict[int, dict[str, Any]]:
    """Newest row of every level of a release."""
    return {row["level"]: row for row in entries.select("release = ? AND level IS NOT NULL", str(key))}


def _is_reserved(entries: Entries, key: ReleaseKey, domain: str, plan: ReleasePlan) -> bool:
    """Whether the release is set aside; refuses one that is, with another plan or for another data set."""
    found = entries.select("kind = ? AND release = ?", RESERVED, str(key))
    if found:
        _check_same_plan(key, found[0], domain, plan)
    return bool(found)


def _balance(entries: Entries, domain: str, period: str) -> Balance:
    cap = entries.newest(CAP, domain=domain)
    if cap is None:
        raise OdError(
            "OD-DOMAIN-UNDECLARED",
            f"the privacy domain {domain!r} is not declared",
            next_step="run a release of it",
        )
    charges = entries.select("kind = ? AND domain = ? AND period = ?", RESERVED, domain, period)
    spent = sum((Fraction(row["rho"]) for row in charges), start=Fraction(0))
    return Balance(domain, period, Fraction(cap["content"]["cap"]), spent)


def _check_cap(entries: Entries, domain: str, key: ReleaseKey, asked: Fraction, *, lost_draw: bool = False) -> None:
    balance = _balance(entries, domain, key.period)
    if asked > balance.left:
        what = "drawing a lost level again" if lost_draw else "the release"
        raise OdError(
            "OD-LEDGER-CAP",
            f"{what} asks for rho {float(asked):.6g} in {key.period}, but of the cap {float(balance.cap):.6g}"
            f" of data set {domain!r}, {float(balance.spent):.6g} is spent and {float(balance.left):.6g} is left",
            next_step="ask for less, or raise the cap with a stated reason",
            spent="nothing more was spent" if lost_draw else "nothing was spent",
        )


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
