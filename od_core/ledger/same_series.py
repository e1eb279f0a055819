"""Check a release against the reservations in the ledger.

A release that is reserved already must have the same plan. All releases of a series must be charged to the same data
set. All periods of a revision must have the same areas.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.entries import RESERVED, Entries
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.plan import Plan

IN_SERIES = "kind = ? AND substr(release, 1, ?) = ?"
"""Condition on the entries of one kind for the releases of one series, with the values of :func:`prefix`."""


def prefix(series: str) -> tuple[int, str]:
    """Return the length and the text with which the text form of each key of a series begins."""
    return len(series) + 1, f"{series}/"


def is_reserved(entries: Entries, key: ReleaseKey, domain: str, plan: Plan) -> bool:
    """Return whether a release is reserved. Raises OdError if it is reserved with another plan or data set."""
    changed = changed_settings(entries, key, domain, plan)
    if changed:
        raise OdError(
            "OD-REPLAY-PLAN-CHANGED",
            f"{key} was reserved with different settings; changed: {', '.join(changed)}",
            next_step="restore the settings, or give the release a new revision, which is charged again",
            spent=STAYS_CHARGED,
        )
    return changed is not None


def changed_settings(entries: Entries, key: ReleaseKey, domain: str, plan: Plan) -> list[str] | None:
    """Return the names of the settings that differ from those of the reservation; None if there is no reservation."""
    found = entries.newest(RESERVED, release=str(key))  # the plan is the same in each entry of the release
    if found is None:
        return None
    then, now = found["content"]["plan"], plan.stored_facts
    changed = sorted(name for name in {**then, **now} if then.get(name) != now.get(name))  # some are stated only if set
    return changed if found["domain"] == domain else ["data set", *changed]


def refuse_moved_series(entries: Entries, key: ReleaseKey, domain: str) -> None:
    """Raise OdError if another release of the same series was charged to another data set.

    Otherwise a new revision could be charged against the cap of another data set, although it contains the same trips.
    """
    for other in entries.groups("domain", f"{IN_SERIES} AND domain <> ?", RESERVED, *prefix(key.release), domain):
        raise OdError(
            "OD-DOMAIN-CONFLICT",
            f"releases of {key.release} are charged to data set {other['domain']!r}, not to {domain!r}",
            next_step="declare the data set that was charged earlier, or rename the series",
        )


def refuse_other_areas(entries: Entries, key: ReleaseKey, plan: Plan) -> None:
    """Raise OdError if another period of the same revision was reserved with other areas.

    Each release of the revision was checked when it was reserved, so all have the areas of the first and of the last.
    The others are read for the message alone.
    """
    now = _areas(plan.facts())
    found: dict[ReleaseKey, dict[str, str]] = {}
    reserved = (RESERVED, *prefix(key.release))
    one = f"number = (SELECT {{}}(number) FROM entries WHERE {IN_SERIES} AND release LIKE ?)"  # noqa: S608  # our own SQL
    of_revision = (*reserved, f"%/r{key.revision}")
    ends = entries.select(f"{one.format('min')} OR {one.format('max')}", *of_revision, *of_revision)
    if all(_areas(row["content"]["plan"]) == now for row in ends):
        return
    first = f"number IN (SELECT min(number) FROM entries WHERE {IN_SERIES} GROUP BY release)"  # noqa: S608
    for row in entries.select(first, *reserved):
        found[ReleaseKey.parse(row["release"])] = _areas(row["content"]["plan"])
    others = {other: then for other, then in sorted(found.items()) if then != now}
    changed = next((other for other in others if other.revision == key.revision), None)
    if changed is None:
        return
    taken = {other.revision for other in others}
    free = next(revision for revision in count(key.revision + 1) if revision not in taken)
    raise OdError(
        "OD-GEOGRAPHY-CHANGED",
        f"{key} has different areas from {changed}, which has the same revision: {changed.period} has"
        f" {_areas_text(others[changed])}, {key.period} has {_areas_text(now)}",
        next_step=f"restore the zone list, or use the new one from a new revision on: set revision: {free}",
    )


def _areas(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of the geographies in the JSON form of a plan, by field."""
    return {name: str(fact) for name, fact in facts.items() if name == "geography" or name.endswith("_geography")}


def _areas_text(areas: Mapping[str, str]) -> str:
    """Return the beginnings of the digests as one line for a message; a single digest if all are equal."""
    short = {name.replace("_", " "): digest[:16] for name, digest in areas.items()}
    if len(set(short.values())) == 1:
        short = {"geography": next(iter(short.values()))}
    return " and ".join(f"{name} {digest}" for name, digest in short.items()) or "none"
