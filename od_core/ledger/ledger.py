"""Record reservations, draws, measurements and publications of releases, and count for how many periods a cap pays.

The entries form an append-only chain (:mod:`od_core.ledger.chain`). The state of a level is the kind of its newest
entry: RESERVED, DRAWING or MEASURED. The spending of a domain in a period is the sum of its RESERVED entries, so
nothing is ever refunded. If a run finds a level in state DRAWING, the process that drew it has ended, and its draw is
lost. Somebody may have seen the lost draw, so its charge remains, and a new draw needs a further reservation.

The ledger also refuses a release that contradicts its entries. A release that is reserved already must have the same
plan. A series charges all releases to one data set, and all periods of a revision must have the same areas.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from threading import local
from typing import Any, cast

from od_core.errors import STAYS_CHARGED, BudgetExceeded, OdError
from od_core.files.durable import make_folder
from od_core.ledger.balance import (
    LARGEST_NUMBER,
    Balance,
    DomainFacts,
    check_cap,
    compute_balances,
    find_charged_periods,
    find_least_balance,
    read_charge,
)
from od_core.ledger.chain import (
    BUNDLE_FORMAT,
    CAP,
    DOMAIN,
    DRAWING,
    ENVIRONMENT,
    KINDS,
    MEASURED,
    PUBLISHED,
    RESERVED,
    WITHDRAWN,
    Chain,
    Entries,
    Entry,
    EntryName,
    SqliteChain,
    make_damage_error,
    make_newer_version_error,
)
from od_core.ledger.postgres_chain import SCHEMES, PostgresChain
from od_core.ledger.release_key import ReleaseKey
from od_core.periods import Period
from od_core.privacy.budget import Cap, Charge, Spent, make_charge_error, refuse_wrong_charge
from od_core.privacy.domain import PrivacyDomain, list_periods_of_year, list_unit_facts
from od_core.privacy.plan import EARLIER, Plan, check_charges
from od_core.privacy.unit import RECORDS_OF, PrivacyUnit


def _format_cap(facts: dict[str, str]) -> str:
    """Return the facts of a cap, without its reason, as text for a message."""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if name != "reason")


def hold_to_unit(unit: PrivacyUnit, declared: DomainFacts, domain: str) -> None:
    """Raise OdError if the unit of a release is not the one with which the data set ``domain`` was declared."""
    facts = {"max_trips_pair": None, **list_unit_facts(unit)}  # a unit without this bound lists no such fact
    if any(declared.get(name) != fact for name, fact in facts.items()):
        raise _make_conflict_error(
            f"the release's unit or neighbours differ from those of the privacy domain {domain!r}",
            "declare the domain once, and use its unit and neighbours in all its releases",
        )


def _is_declared(entries: Entries, domain: PrivacyDomain) -> bool:
    """Return whether a data set is declared with the facts and the cap of ``domain``."""
    facts = entries.find_newest(DOMAIN, domain=domain.name)
    cap = entries.find_newest(CAP, domain=domain.name)
    if facts is None or cap is None:
        return False
    return facts["content"] == domain.facts() and Cap.from_facts(cap["content"]) == domain.cap


def _append_domain(entries: Entries, domain: PrivacyDomain) -> None:
    """Add the entry of a data set unless there is one. Raises OdError if it was declared with other facts."""
    declared = entries.find_newest(DOMAIN, domain=domain.name)
    if declared is None:
        entries.append(DOMAIN, domain.name, content=domain.facts())
    elif domain.unit.is_of_year and not RECORDS_OF[declared["content"]["unit"]].is_of_year:
        raise _make_conflict_error(
            f"data set {domain.name!r} has releases of unit {declared['content']['unit']!r}, whose users have"
            " no bound for a year",
            "declare a data set with another name, whose series begin with the first period of a year; keep"
            " this one as it was for the periods before",
        )
    elif declared["content"] != domain.facts():
        raise _make_conflict_error(
            f"data set {domain.name!r} is declared with {declared['content']}, not with {domain.facts()}",
            "use the declared unit and neighbours; a data set has only one kind of promise",
        )


def _append_cap(entries: Entries, domain: PrivacyDomain) -> None:
    """Add an entry with the cap of ``domain``, unless the data set has this cap already.

    Raises OdError if the same reason was given for an earlier cap, or earlier charges cannot count against such a cap.
    """
    caps = entries.select("kind = ? AND domain = ?", CAP, domain.name)
    cap = {**domain.cap.facts(), "reason": domain.cap_reason.strip()}
    if caps and Cap.from_facts(caps[-1]["content"]) == domain.cap:
        return
    if any(earlier["content"]["reason"] == cap["reason"] for earlier in caps):
        raise OdError(
            "OD-LEDGER-CAP-REASON",
            f"the cap of {domain.name!r} changed from {_format_cap(caps[-1]['content'])} to {_format_cap(cap)}"
            " without a new reason",
            next_step="state why in the privacy domain's cap reason",
        )
    entries.append(CAP, domain.name, content=cap)
    compute_balances(entries, domain.name, by_release=False)  # raises the OdError for such a cap


def read_declared_facts(entries: Entries, domain: str) -> DomainFacts:
    """Return the facts with which a data set was declared. Raises OdError if it is not declared."""
    declared = entries.find_newest(DOMAIN, domain=domain)
    if declared is None:
        step = "run a release of that domain, or declare it with Ledger.declare"
        raise OdError("OD-DOMAIN-UNDECLARED", f"the privacy domain {domain!r} is not declared", next_step=step)
    facts: DomainFacts = declared["content"]
    return facts


IN_SERIES = "kind = ? AND substr(release, 1, ?) = ?"
"""Condition on the entries of one kind for one series, with the values of :func:`make_series_parameters`."""


def make_series_parameters(kind: str, series: str) -> tuple[str, int, str]:
    """Return the values of the placeholders of :data:`IN_SERIES`."""
    beginning = f"{series}/"  # of the text form of each key of the series
    return kind, len(beginning), beginning


@dataclass(frozen=True)
class Withdrawal:
    """The UTC time at which a public release was withdrawn, and why."""

    at: str
    why: str

    def make_withdrawn_error(self, key: ReleaseKey) -> OdError:
        """Return the OdError for a use of the withdrawn release ``key``."""
        message = f"{key} was withdrawn on {self.at[:10]}: {self.why}"
        step = "use another release; to release the period again, raise `revision`, which is charged anew"
        return OdError("OD-RELEASE-WITHDRAWN", message, next_step=step, spent=STAYS_CHARGED)


def is_reserved(entries: Entries, key: ReleaseKey, domain: str, plan: Plan) -> bool:
    """Return whether a release is reserved. Raises OdError if its plan or its series' data set is another one."""
    refuse_moved_series(entries, key.release, domain)
    changed = list_changed_settings(entries, key, domain, plan)
    if changed:
        message = f"{key} was reserved with different settings; changed: {', '.join(changed)}"
        step = "restore the settings, or give the release a new revision, which is charged again"
        raise OdError("OD-REPLAY-PLAN-CHANGED", message, next_step=step, spent=STAYS_CHARGED)
    return changed is not None  # an empty list: it is reserved with this plan


def list_changed_settings(entries: Entries, key: ReleaseKey, domain: str, plan: Plan) -> list[str] | None:
    """Return the names of the settings that differ from those of the reservation; None if there is no reservation.

    The settings are the facts of the plan, by name, and ``data set``, which comes first.
    """
    reserved = entries.find_newest(RESERVED, release=str(key))  # the plan is the same in each entry of the release
    if reserved is None:
        return None
    reserved_facts, planned_facts = reserved["content"]["plan"], plan.stored_facts
    names = {**reserved_facts, **planned_facts}  # some settings are stated only if set
    changed = sorted(name for name in names if reserved_facts.get(name) != planned_facts.get(name))
    return changed if reserved["domain"] == domain else ["data set", *changed]


def refuse_moved_series(entries: Entries, series: str, domain: str) -> None:
    """Raise OdError if a release of a series was charged to another data set.

    Otherwise a new revision could be charged against the cap of another data set, although it contains the same trips.
    This also stops two projects with one ledger from using the same name of a series.
    """
    others = entries.group_by(
        "domain", f"{IN_SERIES} AND domain <> ?", *make_series_parameters(RESERVED, series), domain
    )
    if others:
        other = others[0]["domain"]
        raise _make_conflict_error(
            f"releases of {series} are charged to data set {other!r}, not to {domain!r}",
            "declare the data set that was charged earlier, or rename the series; if another project with this ledger"
            " has a series of this name, give one of them a key_prefix",
        )


def refuse_other_areas(entries: Entries, key: ReleaseKey, plan: Plan) -> None:
    """Raise OdError if another period of the same revision was reserved with other areas.

    Each release of the revision was checked when it was reserved, so it is enough to compare the areas with those of
    the first and of the last one.
    """
    areas = _select_area_digests(plan.facts())
    from_revision = f"FROM entries WHERE {IN_SERIES} AND release LIKE ?"
    first_or_last = f"number = (SELECT min(number) {from_revision}) OR number = (SELECT max(number) {from_revision})"
    values = (*make_series_parameters(RESERVED, key.release), f"%/r{key.revision}")
    first_and_last = entries.select(first_or_last, *values, *values)
    if any(_select_area_digests(row["content"]["plan"]) != areas for row in first_and_last):
        raise _make_other_areas_error(entries, key, areas)


def _make_other_areas_error(entries: Entries, key: ReleaseKey, areas: dict[str, str]) -> OdError:
    """Return the OdError for a release whose areas differ from those of another period of its revision.

    There must be such a period. The message names it, and the next revision that no release with other areas has.
    ``areas`` has the digests of the release's own areas.
    """
    first_of_each = f"number IN (SELECT min(number) FROM entries WHERE {IN_SERIES} GROUP BY release)"  # noqa: S608  # our own SQL
    rows = entries.select(first_of_each, *make_series_parameters(RESERVED, key.release))
    areas_by_key = {ReleaseKey.parse(row["release"]): _select_area_digests(row["content"]["plan"]) for row in rows}
    others = [other for other in sorted(areas_by_key) if areas_by_key[other] != areas]
    changed = next(other for other in others if other.revision == key.revision)
    used_revisions = {other.revision for other in others}
    free_revision = next(revision for revision in count(key.revision + 1) if revision not in used_revisions)
    return OdError(
        "OD-GEOGRAPHY-CHANGED",
        f"{key} has different areas from {changed}, which has the same revision: {changed.period} has"
        f" {_format_area_digests(areas_by_key[changed])}, {key.period} has {_format_area_digests(areas)}",
        next_step=f"restore the zone list, or use the new one from a new revision on: set revision: {free_revision}",
    )


def _select_area_digests(facts: Mapping[str, object]) -> dict[str, str]:
    """Return the digests of the geographies in the facts of a plan, by name of the fact."""
    return {name: str(fact) for name, fact in facts.items() if name == "geography" or name.endswith("_geography")}


def _format_area_digests(areas: Mapping[str, str]) -> str:
    """Return the names and the first 16 digits of the digests for a message; one digest if all are equal."""
    if len(set(areas.values())) == 1:
        areas = {"geography": next(iter(areas.values()))}
    return " and ".join(f"{name.replace('_', ' ')} {digest[:16]}" for name, digest in areas.items()) or "none"


@dataclass(frozen=True)
class LevelState:
    """The newest state of one level of a release.

    Attributes:
        kind: RESERVED, DRAWING or MEASURED.
        draw: number of the draw: 1 for the first, and 1 more after each lost draw.
        digest: SHA-256 of the measurement file, or over the digests of its parts. None until the level is MEASURED.
    """

    kind: str
    draw: int
    digest: str | None


@dataclass(frozen=True)
class ReleaseState:
    """How far a release has come; see :meth:`Ledger.read_states`.

    Attributes:
        kinds: newest state of each reserved level, as :meth:`Ledger.list_level_kinds` returns it.
        rho: rho of all its reservations, including those of lost draws.
        is_published: whether it is public.
        is_withdrawn: whether it was public, and was withdrawn.
    """

    kinds: Sequence[str] = ()
    rho: Fraction = Fraction(0)
    is_published: bool = False
    is_withdrawn: bool = False


@dataclass(frozen=True)
class ReleaseRecord:
    """The ledger's record of a measured release. It is the same whenever the release is run again.

    Attributes:
        measured_at: UTC time at which the last level was measured, which is the time of the release.
        lost_draws: number of draws that were lost with their process and charged once more.
        entry: number and hash of the last MEASURED entry. A ledger that lacks this entry is older than the release.
        account: JSON-ready rules by which the release was charged: ``cap``, as it was when the release was measured,
            and under a unit of a year ``periods_of_year``, the number of elementary periods of its year.
    """

    measured_at: str
    lost_draws: int
    entry: EntryName
    account: Mapping[str, Any] = field(default_factory=dict)


_UNUSED_REVISION = 1 << 31  # number of a revision that no release has


class _Opened(local):
    """The entries that each thread has opened by :meth:`Ledger.one_look` or :meth:`Ledger.trial`; None if none."""

    reading: Entries | None = None
    trial: Entries | None = None


def make_chain(path: Path, server: str | None = None) -> Chain:
    """Return the chain of a ledger, from the arguments of :class:`Ledger`.

    Raises OdError if the address is not that of a PostgreSQL database, or psycopg is not installed.
    """
    if server is None:
        return SqliteChain(path)
    if not server.startswith(SCHEMES):
        step = "write it as postgresql://role@host/database, with the password in a file of libpq"
        raise OdError("OD-CONFIG", "the address of the ledger is not that of a PostgreSQL database", next_step=step)
    return PostgresChain(server, path.parent)


class Ledger:
    """A ledger. Its whole chain of hashes is verified when it is opened, and whenever a release begins.

    Args:
        path: the SQLite file that stores the entries, which is created if it is missing. Its folder also contains the
            folder ``confidential`` and the lock of releases.
        server: address of a PostgreSQL database that stores the entries instead, such as
            ``postgresql://role@host/database``. No file is created at ``path`` then.
        whole: False to verify the chain only from the entry that the head file names, until an entry is added. Every
            entry up to that one was verified when it was added. This serves readers that charge nothing.

    Raises:
        OdError: the ledger cannot be used now, is damaged or edited, or lacks the entry that its head file names. Or
            the server has no ledger, or does not guard it against changes.

    Examples:
        >>> ledger.verify() > 0  # the number of entries, whose hashes and charges are right
        True
        >>> [balance.domain for balance in ledger.balances()]
        ['flights']
    """

    def __init__(self, path: str | Path, server: str | None = None, *, whole: bool = True) -> None:
        self.path = Path(path)
        self._chain = make_chain(self.path, server)
        self._opened = _Opened()
        whole = whole or not self._chain.exists()
        if whole:
            make_folder(self.path.parent)
        with self._open_transaction() if whole else self._open_read_only():
            pass  # both verify the chain

    def _open_transaction(self, *, whole: bool = False) -> AbstractContextManager[Entries]:
        """Open a transaction as :meth:`Chain.open_transaction` does; within a trial, use its copy of the entries."""
        trial = self._opened.trial
        return self._chain.open_transaction(whole=whole) if trial is None else nullcontext(trial)

    def _open_read_only(self) -> AbstractContextManager[Entries]:
        """Open the entries for reading, or use those that this thread has opened."""
        opened = self._opened.reading
        return self._chain.open_read_only() if opened is None else nullcontext(opened)

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Open a context in which this thread reads the ledger as it is now, in one transaction, which is faster.

        No entry may be added in the context.
        """
        with self._chain.open_read_only() as self._opened.reading:
            try:
                yield
            finally:
                self._opened.reading = None

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Open a context in which entries are added to a copy, to see whether they are refused, and then forgotten.

        A trial within a trial uses the same copy.
        """
        if self._opened.trial is not None:
            yield
            return
        with self._chain.open_trial() as entries:
            self._opened.reading = self._opened.trial = entries
            try:
                yield
            finally:
                self._opened.reading = self._opened.trial = None

    def keep_open(self) -> AbstractContextManager[None]:
        """Return a context in which all transactions use one connection. This saves time if there are many."""
        return self._chain.keep_open()

    def lock_for_release(self) -> AbstractContextManager[None]:
        """Return a context that only one release can be in.

        Raises OdError if another release is in it for too long; or within :meth:`trial` or :meth:`one_look`, which
        would keep no charge of the release.
        """
        if self._opened.reading is not None:
            raise _make_state_error("a trial or a look at the ledger keeps no charge", "release outside of its context")
        return self._chain.lock_for_release()

    def declare(self, domain: PrivacyDomain) -> None:
        """Enter the privacy domain of a data set, or a new cap with its reason. Do nothing if both are entered already.

        Raises OdError if the domain was declared with another unit, neighbour relation, user column, elementary period
        or time zone; or the cap has changed and its reason was given before.
        """
        with self._open_read_only() as entries:  # faster than a transaction, if there is nothing to add
            if _is_declared(entries, domain):
                return
        with self._open_transaction() as entries:
            _append_domain(entries, domain)
            _append_cap(entries, domain)

    def hold_to_environment(self, name: str | None, domain: str | None = None) -> None:
        """Raise OdError if the ledger names another environment than the one that is about to use it.

        ``name`` is that of this environment; None if it has none. ``domain`` is the data set that is about to be
        charged, or None. If both are given, and the ledger names no environment yet, ``name`` is entered.
        """
        with self._open_read_only() as entries:
            entered = entries.find_newest(ENVIRONMENT)
        if entered is None:
            if name is not None and domain is not None:
                with self._open_transaction() as entries:
                    entries.append(ENVIRONMENT, domain, content={"name": name})
        elif entered["content"]["name"] != name:
            owner = entered["content"]["name"]
            here = "one without a name" if name is None else repr(name)
            message = f"the ledger is that of environment {owner!r}, and this environment is {here}"
            step = f"give this environment a ledger of its own, or state OD_ENVIRONMENT={owner} if it is that one"
            raise OdError("OD-LEDGER-ENVIRONMENT", message, next_step=step)

    def read_declared_facts(self, domain: str) -> DomainFacts:
        """Return the facts with which a data set was declared. Raises OdError if it is not declared."""
        with self._open_read_only() as entries:
            return read_declared_facts(entries, domain)

    def read_newest_entry(self, domain: str) -> EntryName:
        """Return the name of a declared data set's newest entry, which no other ledger and no older copy has."""
        with self._open_read_only() as entries:
            newest = entries.find_newest(*sorted(KINDS), domain=domain)
            if newest is None:
                raise make_damage_error()
            return EntryName(newest["number"], newest["hash"])

    def has(self, entry: EntryName) -> bool:
        """Return whether the ledger has an entry with this number and hash."""
        with self._open_read_only() as entries:
            return entries.has(entry)

    def reserve(self, key: ReleaseKey, domain: str, plan: Plan) -> None:
        """Reserve the budget of all levels of a release. Do nothing if it is already reserved with the same plan.

        All levels are reserved in one transaction: after an error, none of them is reserved. First the whole chain is
        verified, because an entry may have been edited since this object verified it.

        Raises OdError if the cap does not allow the charge; the release was reserved with another plan; the series was
        charged to another data set, or this one is not declared; the unit differs from the domain's unit; the period of
        the release cannot be charged; another period of the same revision was reserved with other areas; a charge is
        not the cost of its noise at the unit's sensitivity; the charges do not sum to the charge of the plan; a later
        version of this software reserved the newest release; or the release was withdrawn.
        """
        check_charges(plan)
        with self._open_transaction(whole=True) as entries:
            newest = entries.find_newest(RESERVED)
            if newest is not None and newest["content"].get("bundle_format", 1) > BUNDLE_FORMAT:
                raise make_newer_version_error("releases whose bundles have a later format")
            withdrawal = _find_withdrawal(entries, key)
            if withdrawal is not None:
                raise withdrawal.make_withdrawn_error(key)
            if is_reserved(entries, key, domain, plan):
                return
            refuse_other_areas(entries, key, plan)
            facts = read_declared_facts(entries, domain)
            hold_to_unit(plan.unit, facts, domain)
            periods = find_charged_periods(facts, key.period)
            check_cap(entries, domain, periods, [(step.noise_facts, step.charge) for step in plan.charged_steps])
            planned = plan.facts()
            for step in plan.charged_steps:
                content = {"mechanism": planned["mechanism"], "periods": periods, **step.noise_facts, "plan": planned}
                content["bundle_format"] = BUNDLE_FORMAT  # for versions that know only earlier ones
                entries.append(RESERVED, domain, key, level=step.number, draw=1, charge=step.charge, content=content)

    def count_payable_periods(self, series: str, domain: PrivacyDomain, plan: Plan, periods: Iterable[Period]) -> int:
        """Return for how many of the periods the remaining cap pays, if each is released in turn with the plan.

        A period for which the cap is too small is not counted, and later ones are still tried. No entry is added.
        Raises OdError as :meth:`declare` and :meth:`reserve` do, except for a cap that is too small.
        """
        number = 0
        with self.trial():
            self.declare(domain)
            for period in periods:
                with suppress(BudgetExceeded):
                    self.reserve(ReleaseKey(series, period.text, _UNUSED_REVISION), domain.name, plan)
                    number += 1
        return number

    def hold_to_plan(self, key: ReleaseKey, domain: str, plan: Plan) -> None:
        """Check a plan against the reservations in the ledger, without adding an entry.

        Raises OdError if the release was reserved with another plan, or the series is charged to another data set; or
        if it is not reserved, and its areas differ from those of another period of the same revision.
        """
        with self._open_read_only() as entries:
            if not is_reserved(entries, key, domain, plan):
                refuse_other_areas(entries, key, plan)

    def list_changed_settings(self, key: ReleaseKey, domain: str, plan: Plan) -> list[str]:
        """Return the names of the settings that differ from those with which the release was reserved.

        The list is empty if nothing changed, or if the release is not reserved. The setting ``EARLIER`` is left out.
        """
        with self._open_read_only() as entries:
            return [name for name in list_changed_settings(entries, key, domain, plan) or [] if name != EARLIER]

    def read_reserved_plan(self, key: ReleaseKey) -> dict[str, Any] | None:
        """Return the facts of the plan with which a release is reserved; None if it is not reserved."""
        with self._open_read_only() as entries:
            row = entries.find_newest(RESERVED, release=str(key))
        return None if row is None else row["content"]["plan"]

    def start_draw(self, key: ReleaseKey, level: int, noise: str | None = None, store: str | None = None) -> int:
        """Enter durably that the draw of a level begins, and return the number of the draw.

        Call this method before the first random bit is taken. If the level is already in state DRAWING, the earlier
        draw is lost, and the level is reserved once more.

        ``noise`` is the name of the noise backend, and ``store`` the mark of the store of a release in parts, otherwise
        None. Raises OdError if the level is not reserved or is already measured; or a draw was lost, and the cap allows
        no other.
        """
        with self._open_transaction() as entries:
            row = _find_level_entry(entries, key, level)
            if row is None or row["kind"] == MEASURED:
                state = "not reserved" if row is None else "already measured"
                raise _make_state_error(f"level {level} of {key} is {state}", "run the whole release again")
            draw = int(row["draw"])
            if row["kind"] == DRAWING:
                lost = entries.find_newest(RESERVED, release=str(key), level=level)
                if lost is None:
                    raise make_damage_error()
                charge, content = read_charge(lost), lost["content"]
                check_cap(entries, row["domain"], content["periods"], [(content, charge)], lost_draw=True)
                draw += 1
                entries.append(RESERVED, row["domain"], key, level=level, draw=draw, charge=charge, content=content)
            drawn_with = {"noise": noise} if store is None else {"noise": noise, "store": store}
            entries.append(DRAWING, row["domain"], key, level=level, draw=draw, content=drawn_with)
            return draw

    def continue_draw(self, key: ReleaseKey, level: int, noise: str | None, store: str) -> None:
        """Enter the noise backend and the mark of the store with which the same draw of a level continues.

        Do nothing if both are those of the newest entry, or if the level is not being drawn. Nothing is charged.
        """
        content = {"noise": noise, "store": store}
        with self._open_transaction() as entries:
            row = _find_level_entry(entries, key, level)
            if row is not None and row["kind"] == DRAWING and row["content"] != content:
                entries.append(DRAWING, row["domain"], key, level=level, draw=row["draw"], content=content)

    def finish_draw(self, key: ReleaseKey, level: int, draw: int, digest: str) -> None:
        """Record that a level is measured. The file of the draw must be durable before this method is called.

        ``draw`` is the number that :meth:`start_draw` returned, and ``digest`` is as in :class:`LevelState`. Raises
        OdError if the level is not being drawn, or another draw of the level has begun since.
        """
        with self._open_transaction() as entries:
            row = _find_level_entry(entries, key, level)
            if row is None or row["kind"] != DRAWING or row["draw"] != draw:
                raise _make_state_error(f"level {level} of {key} is not being drawn, or another run is drawing it")
            entries.append(MEASURED, row["domain"], key, level=level, draw=draw, content={"digest": digest})

    def publish(self, key: ReleaseKey, certificate: str, exact: Mapping[str, int] | None = None) -> None:
        """Enter that a release is public, with the digest of its certificate. Do nothing if this was entered before.

        ``exact`` has the numbers published without noise, by name. Raises OdError if a level is not measured.
        """
        with self._open_transaction() as entries:
            if entries.find_newest(PUBLISHED, release=str(key)) is not None:
                return
            levels = _index_newest_by_level(entries, key)
            if not levels or any(row["kind"] != MEASURED for row in levels.values()):
                raise _make_state_error(f"not every level of {key} is measured")
            domain = next(iter(levels.values()))["domain"]
            content: dict[str, object] = {"certificate": certificate}
            if exact:
                content["exact"] = dict(exact)
            entries.append(PUBLISHED, domain, key, content=content)

    def withdraw(self, key: ReleaseKey, reason: str, data_set: str) -> Withdrawal:
        """Enter that a public release is withdrawn, and why, unless this was entered before. Its charges stay.

        ``data_set`` is that of derived flows, which were not charged.
        """
        with self._open_transaction() as entries:
            if _find_withdrawal(entries, key) is None:
                charged = entries.find_newest(RESERVED, release=str(key))
                domain = data_set if charged is None else charged["domain"]
                entries.append(WITHDRAWN, domain, key, content={"reason": reason})
            return cast("Withdrawal", _find_withdrawal(entries, key))

    def find_withdrawal(self, key: ReleaseKey) -> Withdrawal | None:
        """Return the withdrawal of a release; None if it was not withdrawn."""
        with self._open_read_only() as entries:
            return _find_withdrawal(entries, key)

    def find_level_state(self, key: ReleaseKey, level: int) -> LevelState | None:
        """Return the newest state of a level, or None if it was never reserved."""
        with self._open_read_only() as entries:
            row = _find_level_entry(entries, key, level)
        return None if row is None else LevelState(row["kind"], int(row["draw"]), row["content"].get("digest"))

    def list_level_kinds(self, key: ReleaseKey) -> list[str]:
        """Return the newest state of each reserved level of a release, RESERVED, DRAWING or MEASURED, in any order."""
        with self._open_read_only() as entries:
            return [row["kind"] for row in _index_newest_by_level(entries, key).values()]

    def read_states(self) -> dict[str, ReleaseState]:
        """Return the state of every release in the ledger, by its key as text.

        The entries are read once, without their content. For one release, :meth:`list_level_kinds`,
        :meth:`list_charges` and :meth:`is_published` read less.
        """
        with self._open_read_only() as entries:
            groups = entries.group_by("release, level, draw, kind, rho, epsilon, delta", "release IS NOT NULL")
        kind_of_level: dict[str, dict[int, str]] = {row["release"]: {} for row in groups}
        rho = dict.fromkeys(kind_of_level, Fraction(0))
        publication: dict[str, str] = {}
        for row in groups:  # oldest first, so that the newest kind of each level and of the publication remains
            name, kind = row["release"], row["kind"]
            if kind in (PUBLISHED, WITHDRAWN):
                publication[name] = kind
                continue
            kind_of_level[name][row["level"]] = kind
            if kind == RESERVED:
                rho[name] += read_charge(row).as_rho
        return {
            name: ReleaseState(
                list(kinds.values()),
                rho[name],
                is_published=publication.get(name) == PUBLISHED,
                is_withdrawn=publication.get(name) == WITHDRAWN,
            )
            for name, kinds in kind_of_level.items()
        }

    def read_measured_digest(self, key: ReleaseKey, level: int) -> str:
        """Return the digest of a measured level (see :class:`LevelState`). Raises OdError if it is not measured."""
        state = self.find_level_state(key, level)
        if state is None or state.digest is None:
            raise _make_state_error(f"level {level} of {key} is not measured")
        return state.digest

    def count_draws(self, key: ReleaseKey, level: int) -> int:
        """Return how many times a level was reserved: 0, 1, or 1 more for each lost draw that was drawn again."""
        state = self.find_level_state(key, level)
        return 0 if state is None else state.draw

    def is_drawn(self, key: ReleaseKey) -> bool:
        """Return whether a draw of any level of the release has ever begun."""
        with self._open_read_only() as entries:
            return entries.find_newest(DRAWING, release=str(key)) is not None

    def has_drawn(self) -> bool:
        """Return whether a draw of any release in this SQLite file has begun.

        Return False for a ledger in PostgreSQL, because its releases may have been drawn from other folders.
        """
        with self._open_read_only() as entries:
            return isinstance(self._chain, SqliteChain) and entries.find_newest(DRAWING) is not None

    def hold_to_domain(self, series: str, domain: str) -> None:
        """Raise OdError if a release of a series was charged to another data set."""
        with self._open_read_only() as entries:
            refuse_moved_series(entries, series, domain)

    def list_drawn_periods(self, domain: str) -> dict[ReleaseKey, list[str]]:
        """Return the elementary periods that each release of a data set charges, for releases with a begun draw."""
        with self._open_read_only() as entries:
            drawn = entries.group_by("release", "kind = ? AND domain = ?", DRAWING, domain)
            if not drawn:
                return {}
            facts = read_declared_facts(entries, domain)
        keys = [ReleaseKey.parse(group["release"]) for group in drawn]
        return {key: list(find_charged_periods(facts, key.period)) for key in keys}

    def read_noise_backends(self, key: ReleaseKey) -> str:
        """Return the names of the noise backends that drew a release, separated by commas if there are several."""
        names: set[str] = set()
        for _level, content in self.list_begun_draws(key):
            names.add(content.get("noise") or "opendp")  # early versions named none, because it was the only one
        return ", ".join(sorted(names))

    def list_begun_draws(self, key: ReleaseKey) -> list[tuple[int, dict[str, Any]]]:
        """Return the level and the facts of each DRAWING entry of a release, oldest first.

        The facts are those that :meth:`start_draw` or :meth:`continue_draw` entered.
        """
        with self._open_read_only() as entries:
            drawn = entries.select("kind = ? AND release = ?", DRAWING, str(key))
        return [(row["level"], row["content"]) for row in drawn]

    def read_publication(self, key: ReleaseKey) -> dict[str, Any]:
        """Return the content of the PUBLISHED entry of a release, as :meth:`publish` made it; empty if not public."""
        with self._open_read_only() as entries:
            row = entries.find_newest(PUBLISHED, release=str(key))
        return {} if row is None else row["content"]

    def is_published(self, key: ReleaseKey) -> bool:
        """Return whether the release was published, and not withdrawn."""
        return bool(self.read_publication(key)) and self.find_withdrawal(key) is None

    def record(self, key: ReleaseKey) -> ReleaseRecord:
        """Return the ledger's record of a release, for its certificate. Raises OdError if no level is measured."""
        with self._open_read_only() as entries:
            row = entries.find_newest(MEASURED, release=str(key))
            if row is None:
                raise _make_state_error(f"{key} is not measured", "run the release")
            declared = read_declared_facts(entries, row["domain"])
            caps = entries.select("kind = ? AND domain = ? AND number < ?", CAP, row["domain"], row["number"])
        account: dict[str, Any] = {"cap": Cap.from_facts(caps[-1]["content"]).facts()}  # without its reason
        if "year" in declared:
            year = list_periods_of_year(Period(key.period), declared["elementary_period"], declared["year"])
            account["periods_of_year"] = len(year)
        name = EntryName(row["number"], row["hash"])
        return ReleaseRecord(str(row["at"]), len(self.list_lost_draws(key)), name, account)

    def list_lost_draws(self, key: ReleaseKey) -> list[tuple[int, Charge]]:
        """Return the level and the charge of every draw that was lost and then charged once more, oldest first."""
        return self.list_charges(key, first_draw=2)

    def list_charges(self, key: ReleaseKey, first_draw: int = 1) -> list[tuple[int, Charge]]:
        """Return the level and the charge of every reservation of a release, oldest first.

        Reservations for draws with a number below ``first_draw`` are left out.
        """
        with self._open_read_only() as entries:
            rows = entries.select("kind = ? AND release = ? AND draw >= ?", RESERVED, str(key), first_draw)
        return [(row["level"], read_charge(row)) for row in rows]

    def compute_spent_budget(self, key: ReleaseKey, plan: Plan) -> Spent:
        """Return the budget that a release has spent, including the charges of lost draws.

        Raises OdError if a reservation has another charge than the plan has for its level.
        """
        charges = self.list_charges(key)
        charge_of_level = {step.number: step.charge for step in plan.charged_steps}
        if any(charge_of_level.get(level) != charge for level, charge in charges):
            raise make_charge_error(f"the charges of {key} differ from its plan")
        return plan.compute_spent([charges.count((level, charge)) for level, charge in charge_of_level.items()])

    def hold_to(self, witnesses: Mapping[str, EntryName]) -> None:
        """Raise OdError unless the ledger has the entry that the certificate of each public release names.

        ``witnesses`` has the number and hash of this entry by the key of the release as text. If one is missing, the
        ledger is older than the release.
        """
        with self._open_read_only() as entries:
            for release, entry in witnesses.items():
                if not entries.has(entry):
                    message = f"{release} is public, but the ledger lacks the entry that its certificate names"
                    step = "restore the newest ledger; an older one does not record all that was spent"
                    raise OdError("OD-LEDGER-ROLLED-BACK", message, next_step=step, spent=STAYS_CHARGED)

    def verify(self) -> int:
        """Verify the chain of hashes and every charge, and return the number of entries.

        Raises OdError if the chain is broken or lacks the entry of its head, or a charge is not the cost of its noise.
        """
        with self._open_read_only() as entries:
            number = entries.verify().number
            for row in entries.select("kind = ?", RESERVED):
                refuse_wrong_charge(_select_noise_facts(row["content"]), read_charge(row))
        return number

    def list_published_releases(
        self, until: int = LARGEST_NUMBER, series: str | None = None, *, withdrawn_until: int = LARGEST_NUMBER
    ) -> dict[ReleaseKey, datetime.datetime]:
        """Return the published releases and the times of their publication, oldest first.

        Args:
            until: number of the last entry to consider for publications.
            series: series whose releases are returned; None for all.
            withdrawn_until: number of the last entry to consider for withdrawals. A release that was withdrawn up to
                this entry is left out.
        """
        published = "kind = ?" if series is None else IN_SERIES
        parameters = (PUBLISHED,) if series is None else make_series_parameters(PUBLISHED, series)
        withdrawn = "SELECT release FROM entries WHERE kind = ? AND number <= ?"
        where = f"{published} AND number <= ? AND release NOT IN ({withdrawn})"
        with self._open_read_only() as entries:
            rows = entries.group_by("release, at", where, *parameters, until, WITHDRAWN, withdrawn_until)
        return {ReleaseKey.parse(row["release"]): datetime.datetime.fromisoformat(row["at"]) for row in rows}

    def list_compared_releases(self, key: ReleaseKey) -> dict[ReleaseKey, datetime.datetime]:
        """Return the releases with which a release is compared, and the times at which they were published.

        These are the releases of its series that were public when it was measured, without those that were withdrawn
        before it was published. So the result is the same for as long as the release is public. Raises OdError if the
        release is not measured.
        """
        until = self.record(key).entry.number
        with self._open_read_only() as entries:
            published = entries.find_newest(PUBLISHED, release=str(key))
        withdrawn_until = LARGEST_NUMBER if published is None else published["number"]
        return self.list_published_releases(until, key.release, withdrawn_until=withdrawn_until)

    def balance(self, domain: str, period: str, until: int = LARGEST_NUMBER) -> Balance:
        """Return the balance of a domain for a release of a period; that of its year under a unit of a year.

        If such a release charges several elementary periods, the balance with the least remaining part is returned.
        Only entries up to number ``until`` count. Raises OdError if the domain is undeclared, or cannot charge this.
        """
        with self._open_read_only() as entries:
            periods = find_charged_periods(read_declared_facts(entries, domain), period)
            balances = compute_balances(entries, domain, periods, until=until)
        return find_least_balance(balances)

    def find_balances(self, domain: str, periods: Iterable[str], plan: Plan | None = None) -> dict[str, Balance]:
        """Return the balance of a domain for a release of each period, by period, as :meth:`balance` does for one.

        If a plan is given, each balance includes the plan's charges as requested ones, and is in the measure in which
        these count. The ledger is read once for all periods.
        """
        requested = [] if plan is None else [(step.noise_facts, step.charge) for step in plan.charged_steps]
        with self._open_read_only() as entries:
            facts = read_declared_facts(entries, domain)
            parts_of = {period: find_charged_periods(facts, period) for period in periods}  # elementary periods
            all_parts = list(dict.fromkeys(part for parts in parts_of.values() for part in parts))
            balances = compute_balances(entries, domain, all_parts, requested, by_release=False)
        balance_of = {part: balance for balance in balances for part in balance.of}
        return {period: find_least_balance(balance_of[part] for part in parts) for period, parts in parts_of.items()}

    def balances(self) -> list[Balance]:
        """Return the balance of each domain in each elementary period that was charged, sorted by domain and period.

        Under a unit of a year, the balances are those of years.
        """
        with self._open_read_only() as entries:
            domains = sorted(entry["domain"] for entry in entries.select("kind = ?", DOMAIN))
            return [balance for domain in domains for balance in compute_balances(entries, domain)]


def _make_conflict_error(message: str, next_step: str) -> OdError:
    """Return the OdError for a declaration or a release that contradicts the declaration of its data set."""
    return OdError("OD-DOMAIN-CONFLICT", message, next_step=next_step)


def _make_state_error(message: str, next_step: str = "run the release again") -> OdError:
    """Return the OdError for a step of a release that its state in the ledger does not allow."""
    return OdError("OD-LEDGER-STATE", message, next_step=next_step, spent=STAYS_CHARGED)


def _find_withdrawal(entries: Entries, key: ReleaseKey) -> Withdrawal | None:
    """Return the withdrawal of a release; None if it was not withdrawn."""
    row = entries.find_newest(WITHDRAWN, release=str(key))
    return None if row is None else Withdrawal(row["at"], row["content"]["reason"])


def _find_level_entry(entries: Entries, key: ReleaseKey, level: int) -> Entry | None:
    """Return the newest entry of a level, whose kind is its state; None if it was never reserved."""
    return entries.find_newest(RESERVED, DRAWING, MEASURED, release=str(key), level=level)


def _index_newest_by_level(entries: Entries, key: ReleaseKey) -> dict[int, Entry]:
    """Return the newest entry of each level of a release, by level."""
    where = "kind IN (?, ?, ?) AND release = ?"
    oldest_first = entries.select(where, RESERVED, DRAWING, MEASURED, str(key))
    return {row["level"]: row for row in oldest_first}  # later entries replace earlier ones


def _select_noise_facts(facts: Mapping[str, Any]) -> dict[str, int | str]:
    """Return the sensitivity and the noise parameters from the content of a RESERVED entry, by name."""
    parameters = ("sensitivity_squared", "sensitivity", "variance", "scale")
    return {name: fact for name, fact in facts.items() if name in parameters or name.startswith("scale_of_")}
