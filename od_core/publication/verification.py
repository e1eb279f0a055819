"""Verification: a published release is what its measurements give, and the ledger bears it out (spec 6, "Replay").

Everything after the measurements is deterministic: the flows are estimated anew from the published measurements, all
files are written anew from them, and compared byte by byte. Needs no record, no true count and no key.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from od_core.archive.ledger import Ledger
from od_core.archive.measurements import DurableMeasurements
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.estimation.refinement import refine
from od_core.estimation.top_down import estimate, root_of
from od_core.flow_tree import Nodes
from od_core.publication.bundle import CERTIFICATE, differing_files, write_bundle
from od_core.publication.certificate import CheckResult, certificate, certificate_digest
from od_core.publication.database import differing_facts
from od_core.publication.reading import open_release
from od_core.release import Release


@dataclass(frozen=True)
class Finding:
    """Outcome of one part of a verification.

    Attributes:
        part: what was looked at.
        fault: what is wrong with it, in a line; None where nothing is.
    """

    part: str
    fault: str | None


@dataclass(frozen=True)
class Published:
    """Where a published release stands.

    Attributes:
        key: its name.
        bundle: its public folder.
        database: the public release database.
        ledger: the ledger that it was charged to.
        measurements: folder of its measurement files on the confidential side.
    """

    key: ReleaseKey
    bundle: Path
    database: Path
    ledger: Ledger
    measurements: Path


def verify_release(published: Published) -> list[Finding]:
    """Look at every part of a published release; nothing is changed, and nothing is drawn."""
    try:
        stated = json.loads((published.bundle / CERTIFICATE).read_text(encoding="utf-8"))
        public = open_release(published.bundle)
        levels = _levels(public, stated)
    except Exception as error:  # noqa: BLE001  # whatever may be wrong with a damaged file is a finding
        return [Finding("bundle", _line(error))]
    rebuilt = replace(public, leaves=levels[-1])
    looks: dict[str, Callable[[], Iterator[str]]] = {
        "flows": lambda: _flows(public, rebuilt),
        "invariants": lambda: _invariants(public, levels),
        "bundle": lambda: _bundle(published, rebuilt, stated),
        "measurements": lambda: _measurements(published, public),
        "ledger": lambda: _ledger(published, public, stated),
        "database": lambda: _database(published, public, stated),
    }
    return [Finding(part, _fault(look)) for part, look in looks.items()]


def _fault(look: Callable[[], Iterator[str]]) -> str | None:
    try:
        return "; ".join(look()) or None
    except Exception as error:  # noqa: BLE001  # whatever may be wrong with a damaged file is a finding
        return _line(error)


def _line(error: Exception) -> str:
    return str(error) if isinstance(error, OdError) else f"missing, or cannot be read ({type(error).__name__})"


def _levels(public: Release, stated: dict[str, Any]) -> list[Nodes]:
    """The estimates of all levels, root first, made anew from the published measurements."""
    plan = public.plan
    nodes = root_of(plan, stated["contents"]["trips"]) if plan.publishes_total else None
    if plan.mechanism.refines:
        return refine(plan, nodes, public.measured)
    levels = [] if nodes is None else [nodes]
    for measurement in public.measured:
        nodes = estimate(plan, measurement.step, nodes, measurement.noisy)
        levels.append(nodes)
    return levels


def _flows(public: Release, rebuilt: Release) -> Iterator[str]:
    """The published leaves are those that the measurements give."""
    for name in ("origin", "destination", "trips"):
        if not np.array_equal(getattr(public.leaves, name), getattr(rebuilt.leaves, name)):
            yield f"the {name} column is not what the measurements give"


def _invariants(public: Release, levels: Sequence[Nodes]) -> Iterator[str]:
    """Whole numbers of at least 1, and the children of every node sum to it, as published."""
    tree = public.plan.tree
    if np.any(public.leaves.trips < 1):
        yield "a flow is below 1"
    for above, below in pairwise([*levels[:-1], public.leaves]):
        if not tree.sums_agree(above, below):
            yield f"level {below.level} does not sum to the level above"


def _bundle(published: Published, rebuilt: Release, stated: dict[str, Any]) -> Iterator[str]:
    """Every file of the bundle, written anew from measurements and ledger, has the same bytes."""
    checks = [CheckResult(check["subject"], check["check"], check["passed"]) for check in stated["checks"]]
    if not all(check.passed for check in checks):
        yield "a check had failed"
    ledger = published.ledger
    facts = certificate(
        replace(rebuilt, spent=ledger.spent(published.key, rebuilt.plan), noise=ledger.noise(published.key)),
        published.key,
        stated["data_set"],
        checks,
        record=ledger.record(published.key),
        fault_threshold=Fraction(stated["fault_threshold"]),
    )
    with TemporaryDirectory(prefix="od-release-verify-") as name:
        write_bundle(rebuilt, facts, Path(name))
        for file in differing_files(Path(name), published.bundle):
            yield f"{file} is not what measurements and ledger give"


def _measurements(published: Published, public: Release) -> Iterator[str]:
    """The public measurements are those of the write-once files, whose digests the ledger has."""
    kept = DurableMeasurements(published.measurements, published.ledger, published.key)
    for measurement in public.measured:
        if not np.array_equal(kept.read(measurement.step).values(), measurement.noisy.values()):
            yield f"the public measurements of level {measurement.step.level} are not those that were drawn"


def _ledger(published: Published, public: Release, stated: dict[str, Any]) -> Iterator[str]:
    """The chain is whole; the release was set aside, charged, drawn and published as it says."""
    ledger, key = published.ledger, published.key
    ledger.verify()
    ledger.hold_to_plan(key, stated["data_set"], public.plan)
    digest = ledger.published_certificate(key)
    if digest is None:
        yield "the ledger does not have it as published"
    elif digest != certificate_digest(stated):
        yield "its certificate is not the one that it was published with"
    if ledger.spent(key, public.plan) != public.spent:
        yield "it was charged something else"
    if ledger.noise(key) != public.noise:
        yield "it was drawn by another backend"
    record = ledger.record(key)
    if stated.get("ledger") != {"entry": record.entry.number, "hash": record.entry.hash}:
        yield "its certificate names another entry"


def _database(published: Published, public: Release, stated: dict[str, Any]) -> Iterator[str]:
    """The release database holds the same certificate and facts, plan, charge, flows and measurements."""
    yield from differing_facts(published.database, public, published.key, stated)
    stored = open_release(published.database, str(published.key))
    if stored.plan.digest != public.plan.digest or stored.spent != public.spent:
        yield "it holds another plan or charge"
    yield from (f"of its flows, {fault}" for fault in _flows(stored, public))
    for there, here in zip(stored.measured, public.measured, strict=True):
        if not np.array_equal(there.noisy.values(), here.noisy.values()):
            yield f"it holds other measurements of level {here.step.level}"
