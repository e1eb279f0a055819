"""The budget ledger: an append-only record of what was set aside, drawn, measured and published (spec 6, "Ledger").

Its entries are a chain (``chain.py``) that is never changed. The state of a level is
that of its newest entry; what a domain has spent in a period is the sum of its RESERVED entries, so nothing is ever
refunded. A level found DRAWING was lost with its process: nobody can prove that the draw was not seen, so it
stays charged, and drawing again is a further reservation.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.files.durable import make_folder
from od_core.ledger.balance import NEWEST, Balance, balances, charge_of, check_cap
from od_core.ledger.chain import CAP, DOMAIN, DRAWING, MEASURED, PUBLISHED, RESERVED, Chain, Entries, broken
from od_core.ledger.protocols import Planned
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.same_series import is_reserved, refuse_moved_series, refuse_other_areas
from od_core.periods import Period
from od_core.privacy.budget import Spent
from od_core.privacy.cap import Cap, refuse_other_charge
from od_core.privacy.domain import PrivacyDomain, charged_periods, unit_facts
from od_core.privacy.neighbours import Neighbours


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
class EntryName:
    """An entry of the ledger, named so that no other ledger has it.

    Attributes:
        number: its place, from 1.
        hash: its SHA-256, and with it that of all entries before it.
    """

    number: int
    hash: str


@dataclass(frozen=True)
class ReleaseRecord:
    """What the ledger says of a measured release, the same at every replay.

    Attributes:
        measured_at: UTC time at which the last level was measured: the release's time.
        lost_draws: draws that were lost with their process, and charged once more.
        entry: the entry that recorded the last measurement; a ledger without it is older than the release.
    """

    measured_at: str
    lost_draws: int
    entry: EntryName


class Ledger:
    """The ledger in one SQLite file, made on first use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_folder(path.parent)
        self._chain = _chain(path)
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
            caps = entries.select("kind = ? AND domain = ?", CAP, domain.name)
            cap = {**domain.cap.facts(), "reason": domain.cap_reason.strip()}
            if caps and Cap.from_facts(caps[-1]["content"]) == domain.cap:
                return
            if any(earlier["content"]["reason"] == cap["reason"] for earlier in caps):
                raise OdError(
                    "OD-LEDGER-CAP-REASON",
                    f"the cap of {domain.name!r} changed from {_cap_text(caps[-1]['content'])} to {_cap_text(cap)}"
                    " without a reason that was never given before",
                    next_step="state why in the privacy domain's cap reason",
                )
            entries.append(CAP, domain.name, content=cap)

    def reserve(self, key: ReleaseKey, domain: str, plan: Planned) -> None:
        """Set all levels of a release aside, or none; nothing where that same plan is set aside already.

        Raises:
            OdError: the cap does not allow it (nothing is spent); the release was set aside with another plan;
                its unit is not the domain's; another period of its revision was set aside with other areas; a charge
                is not what its noise and the unit's sensitivity cost, or all of them are not the plan's.
        """
        _refuse_other_charges(plan)
        with self._transaction() as entries:
            if is_reserved(entries, key, domain, plan):
                return
            refuse_moved_series(entries, key, domain)
            refuse_other_areas(entries, key, plan)
            declared = entries.newest(DOMAIN, domain=domain)
            unit = unit_facts(plan.unit)
            if declared is None or {name: declared["content"].get(name) for name in unit} != unit:
                raise OdError(
                    "OD-DOMAIN-CONFLICT",
                    f"the release's unit is not that of the privacy domain {domain!r}",
                    next_step="declare the domain once, with the unit and neighbours of all its releases",
                )
            periods = charged_periods(Period(key.period), declared["content"]["elementary_period"], plan.unit.kind)
            check_cap(entries, domain, periods, plan.charge)
            facts = plan.facts()
            for step in plan.steps:
                content = {
                    "mechanism": facts["mechanism"],
                    "periods": periods,
                    **step.law,
                    "plan": facts,
                }
                entries.append(RESERVED, domain, key, level=step.level, draw=1, charge=step.charge, content=content)

    def hold_to_plan(self, key: ReleaseKey, domain: str, plan: Planned) -> None:
        """Refuse another plan than the one that the release was set aside with, if it was. Raises OdError.

        Also, where it was not, areas that are not those of the other periods of its revision.
        """
        with self._transaction() as entries:
            if not is_reserved(entries, key, domain, plan):
                refuse_other_areas(entries, key, plan)

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
                charge, content = charge_of(lost), lost["content"]
                check_cap(entries, row["domain"], content["periods"], charge, lost_draw=True)
                draw += 1
                entries.append(RESERVED, row["domain"], key, level=level, draw=draw, charge=charge, content=content)
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

    def publish(self, key: ReleaseKey, certificate: str, exact: Mapping[str, int] | None = None) -> None:
        """Record that a release is public, with the digest of its certificate; once.

        Args:
            key: the release.
            certificate: its digest.
            exact: numbers that come from the records and are published without noise, by name.

        Raises:
            OdError: not all of its levels are measured.
        """
        with self._transaction() as entries:
            if entries.newest(PUBLISHED, release=str(key)) is not None:
                return
            levels = _levels(entries, key)
            if not levels or any(row["kind"] != MEASURED for row in levels.values()):
                raise OdError(
                    "OD-LEDGER-STATE", f"not every level of {key} is measured", next_step="run the release again"
                )
            domain = next(iter(levels.values()))["domain"]
            content = {"certificate": certificate, **({"exact": dict(exact)} if exact else {})}
            entries.append(PUBLISHED, domain, key, content=content)

    def level_state(self, key: ReleaseKey, level: int) -> LevelState | None:
        """Newest state of a level; None where it was never set aside."""
        with self._transaction() as entries:
            row = entries.newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)
        return None if row is None else LevelState(row["kind"], int(row["draw"]), row["content"].get("digest"))

    def level_kinds(self, key: ReleaseKey) -> list[str]:
        """Newest state of every level of a release that was ever set aside: RESERVED, DRAWING or MEASURED."""
        with self._transaction() as entries:
            return [row["kind"] for row in _levels(entries, key).values()]

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
        return self.published_certificate(key) is not None

    def published_certificate(self, key: ReleaseKey) -> str | None:
        """Digest of the certificate that the release was published with; None where it was not."""
        with self._transaction() as entries:
            row = entries.newest(PUBLISHED, release=str(key))
        return None if row is None else str(row["content"]["certificate"])

    def published_exactly(self, key: ReleaseKey) -> dict[str, int]:
        """Return the numbers of a release that were published without noise, by name; none where it is not public."""
        with self._transaction() as entries:
            row = entries.newest(PUBLISHED, release=str(key))
        return {} if row is None else dict(row["content"].get("exact", {}))

    def record(self, key: ReleaseKey) -> ReleaseRecord:
        """What a certificate says from the ledger. Raises OdError where the release is not measured."""
        with self._transaction() as entries:
            row = entries.newest(MEASURED, release=str(key))
            lost = len(entries.select("kind = ? AND release = ? AND draw > 1", RESERVED, str(key)))
        if row is None:
            raise OdError("OD-LEDGER-STATE", f"{key} is not measured", next_step="run the release")
        return ReleaseRecord(str(row["at"]), lost, EntryName(row["number"], row["hash"]))

    def spent(self, key: ReleaseKey, plan: Planned) -> Spent:
        """What a release was charged, by level, lost draws included."""
        with self._transaction() as entries:
            charges = entries.select("kind = ? AND release = ?", RESERVED, str(key))
        by_level = {step.level: Fraction(0) for step in plan.steps}
        for row in charges:
            by_level[row["level"]] += charge_of(row).as_rho
        return plan.spent_on(tuple(by_level.values()))

    def hold_to(self, witnesses: Mapping[str, EntryName]) -> None:
        """Refuse to go on where the ledger lacks an entry that a public release names. Raises OdError."""
        with self._transaction() as entries:
            _hold_to(entries, witnesses)

    def verify(self) -> int:
        """Number of entries, once the chain of all of them is found whole and as new as its head. Raises OdError.

        Also where a charge is not what its noise costs.
        """
        with self._transaction() as entries:
            return _verify(entries)

    def published(self, until: int = NEWEST) -> list[ReleaseKey]:
        """All releases that were published by an entry up to the number ``until``, oldest first."""
        with self._transaction() as entries:
            found = entries.select("kind = ? AND number <= ?", PUBLISHED, until)
            return [ReleaseKey.parse(entry["release"]) for entry in found]

    def balance(self, domain: str, period: str, until: int = NEWEST) -> Balance:
        """Cap and spending of a domain in the elementary period of a release's period that has least left.

        As it stood after the entry with the number ``until``; now, where it is left out.

        Raises:
            OdError: the domain is not declared.
        """
        with self._transaction() as entries:
            declared = entries.newest(DOMAIN, domain=domain)
            if declared is None:
                raise OdError(
                    "OD-DOMAIN-UNDECLARED",
                    f"the privacy domain {domain!r} is not declared",
                    next_step="run a release of it",
                )
            content = declared["content"]
            periods = charged_periods(Period(period), content["elementary_period"], content["unit"])
            return min(balances(entries, domain, periods, until=until), key=lambda balance: balance.left)

    def balances(self) -> list[Balance]:
        """Every domain and elementary period that anything was charged to, in order."""
        with self._transaction() as entries:
            found = []
            for domain in sorted(entry["domain"] for entry in entries.select("kind = ?", DOMAIN)):
                charges = entries.select("kind = ? AND domain = ?", RESERVED, domain)
                periods = sorted({period for charge in charges for period in charge["content"]["periods"]})
                found += balances(entries, domain, periods)
        return found


def look_at_ledger(path: Path, witnesses: Mapping[str, EntryName]) -> int:
    """Number of entries of a ledger that is found whole, without entering or making anything.

    Args:
        path: of its file, which is there.
        witnesses: the entries that public releases name, as :meth:`Ledger.hold_to`.

    Raises:
        OdError: it is edited or damaged, older than its head or than a witness, or cannot be used now.
    """
    with _chain(path).look() as entries:
        _hold_to(entries, witnesses)
        return _verify(entries)


def _verify(entries: Entries) -> int:
    """As :meth:`Ledger.verify`."""
    number = entries.verify()
    for row in entries.select("kind = ?", RESERVED):
        refuse_other_charge(_noise_of(row["content"]), charge_of(row))
    return number


def _noise_of(facts: Mapping[str, Any]) -> dict[str, int | str]:
    """The facts of the noise among those of a step."""
    named = ("sensitivity_squared", "sensitivity", "variance", "scale")
    return {name: fact for name, fact in facts.items() if name in named or name.startswith("scale_of_")}


def _refuse_other_charges(plan: Planned) -> None:
    """Refuse a plan whose charges are not what its noise costs. Raises OdError."""
    neighbours = Neighbours(plan.unit, plan.acceptance)
    for step in plan.steps:
        refuse_other_charge(_noise_of(step.law), step.charge)
        expected = neighbours.sensitivity_squared(step.level)
        if step.law.get("sensitivity_squared", expected) != expected:
            raise _wrong(f"the sensitivity of level {step.level} is not that of the unit")
    charges = [step.charge for step in plan.steps]
    stated, asked = plan.charge, sum((charge.as_rho for charge in charges), start=Fraction(0))
    if (stated.as_rho, stated.delta) != (asked, sum((charge.delta for charge in charges), start=Fraction(0))):
        raise _wrong("the charge of the whole plan is not the sum of its steps")


def _wrong(message: str) -> OdError:
    step = "make plans by the functions of this library; if you did, report this defect"
    return OdError("OD-CHARGE", message, next_step=step)


def _chain(path: Path) -> Chain:
    return Chain(path, path.parent / "confidential" / "ledger.head")


def _hold_to(entries: Entries, witnesses: Mapping[str, EntryName]) -> None:
    """As :meth:`Ledger.hold_to`."""
    for release, entry in witnesses.items():
        if not entries.has(entry.number, entry.hash):
            raise OdError(
                "OD-LEDGER-ROLLED-BACK",
                f"{release} is public, but the ledger lacks the entry that its certificate names",
                next_step="restore the newest ledger; an older one has forgotten what was spent",
                spent="what was set aside before stays charged",
            )


def _levels(entries: Entries, key: ReleaseKey) -> dict[int, dict[str, Any]]:
    """Newest row of every level of a release."""
    return {row["level"]: row for row in entries.select("release = ? AND level IS NOT NULL", str(key))}


def _cap_text(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items() if name != "reason")
