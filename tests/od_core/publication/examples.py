"""Releases of every kind, made from real noise, and their certificates."""

import base64
import functools
import gzip
import json
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from od_core import Balance, Budget, Geography, InfTDA, PrivacyUnit, Release, ReleaseKey, release_flows
from od_core.files.durable import compute_file_digest
from od_core.flows.publishing.kind import FLOWS
from od_core.ledger.chain import EntryName
from od_core.ledger.ledger import ReleaseRecord
from od_core.meaning.subject import Subject
from od_core.privacy.plan import Table
from od_core.publication.bundle import publish_folder, write_bundle
from od_core.publication.bundle_files import CHECKSUMS, format_checksums, locate_zip, write_zip
from od_core.publication.certificate import CheckResult
from od_core.publication.certify import build_certificate
from od_core.publication.kind import ReleaseContext

KEY = ReleaseKey("commuters", "2001-06")
LEVELS = ["region", "county", "zone"]
HOMES = pd.DataFrame(
    [
        ("NA", "01", "001"),
        ("NA", "01", "002"),
        ("NA", "null", "010"),
        ('é, the "far" one', "07", "100"),
        ('é, the "far" one', "07", "101"),
        ('é, the "far" one', "9", "1e5"),
        ("x", "x", "x"),
    ],
    columns=LEVELS,
    dtype="str",
)
"""Codes that a careless reader takes for numbers, for missing values, or for two columns; one in all three levels."""

WORKPLACES = [("d1", "d11", "001"), ("d1", "d12", "w2"), ("d2", "d21", "w3"), ("d2", "d21", "w4")]
WORKS = pd.DataFrame([*WORKPLACES, ("elsewhere", "away", "?")], columns=LEVELS, dtype="str")


TWO_LEVELS = ["region", "zone"]


def geography(zones: pd.DataFrame = HOMES, unknown: str | None = None, levels: Sequence[str] = LEVELS) -> Geography:
    return Geography.from_frame(zones, levels, unknown=unknown)


def flows(origins: pd.DataFrame, destinations: pd.DataFrame, seed: int = 4, size: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    codes = {"origin": origins["zone"].to_numpy(object), "destination": destinations["zone"].to_numpy(object)}
    ends = {side: generator.choice(zones, size) for side, zones in codes.items()}
    return pd.DataFrame({**ends, "trips": generator.integers(0, 200, size)})


KINDS: dict[str, dict[str, Any]] = {
    "bounded": {},
    "unbounded": {"neighbours": "unbounded"},
    "origin tree": {"tree": "origin", "budget": Budget(epsilon="0.7", delta="1e-6", conversion="bun_steinke")},
    "unbounded origin tree": {
        "neighbours": "unbounded",
        "tree": "origin",
        "budget": Budget(rho=Fraction(1, 3), delta="1e-8", shares=("geometric", "1.2")),
    },
    "other destinations": {
        "destinations": WORKS,
        "budget": Budget(rho="0.25", delta="1e-8", shares=[Fraction(k, 21) for k in range(1, 7)]),
        "mechanism": InfTDA("descending"),
    },
    "unknown zones": {"unknown": "x", "destinations": WORKS, "destination_unknown": "?"},
    "no trips": {"size": 0},
    "no trips, unbounded": {"size": 0, "neighbours": "unbounded", "tree": "origin"},
}


def released_trips(trips: pd.DataFrame, geography: Geography, **changes: Any) -> Release:
    """A release of trips, none of which may be left out."""
    given = {"unit": PrivacyUnit("trip"), "budget": Budget(rho=2, delta="1e-8"), "fault_threshold": 0}
    return release_flows(trips, geography, **given | changes)


def release(kind: str = "bounded", seed: int = 4) -> Release:
    """The release of this kind, or of flows with two levels, the same at every call; with another seed, of others."""
    return drawn(kind, seed)


@functools.cache
def drawn(kind: str, seed: int) -> Release:
    """A release, drawn once: a cache takes a default value and the same value given for two cases."""
    chosen = (KINDS | {"two levels": {"levels": TWO_LEVELS}})[kind]
    destinations = chosen.get("destinations", HOMES)
    origins = geography(unknown=chosen.get("unknown"), levels=chosen.get("levels", LEVELS))
    return release_flows(
        flows(HOMES, destinations, seed, chosen.get("size", 60)),
        origins,
        destination_geography=geography(WORKS, chosen.get("destination_unknown")) if "destinations" in chosen else None,
        unit=PrivacyUnit("trip", chosen.get("neighbours", "bounded")),
        budget=chosen.get("budget", Budget(rho=2, delta="1e-8")),
        mechanism=chosen.get("mechanism", "inftda"),
        tree=chosen.get("tree", "destination"),
        fault_threshold=0,
    )


RECORD = ReleaseRecord("2001-07-03T09:00:00+00:00", 0, EntryName(7, "5" * 64))
SUBJECTS = {"flows": "sum to n", "levels/estimate_1": "whole numbers"}
CHECKS = [CheckResult(subject=subject, check=check, passed=True) for subject, check in SUBJECTS.items()]


ALL_FORMATS = ("csv", "gis", "omx", "sdmx", "spreadsheet")


def files_of(bundle: Path) -> dict[str, Path]:
    """The files of a bundle by their names below its folder."""
    return {path.relative_to(bundle).as_posix(): path for path in sorted(bundle.rglob("*")) if path.is_file()}


def facts(made: Release, key: ReleaseKey = KEY, **changes: Any) -> dict[str, Any]:
    """Its certificate."""
    given = {"record": RECORD, "formats": ALL_FORMATS}
    return build_certificate(FLOWS, made, key, "survey", CHECKS, **(given | changes))


def by_hand(made: Release, origin_level: str, destination_level: str) -> dict[tuple[str, str], int]:
    """Trips of a pair of levels, summed by pandas from the leaf table and the zone lists."""
    sides = []
    for side, level, tree in (
        ("origin", origin_level, made.plan.tree.origin),
        ("destination", destination_level, made.plan.tree.destination),
    ):
        zones = (HOMES if {*tree.zones} == {*HOMES["zone"]} else WORKS).assign(all="all")
        sides.append(made.flows[side].map(dict(zip(zones["zone"], zones[level], strict=True))))
    grouped = made.flows["trips"].groupby(sides).sum()
    return {pair: int(trips) for pair, trips in grouped.items()}


AROUND = ReleaseContext(Balance("survey", "2001-06", Fraction(9), Fraction(2), {str(KEY): Fraction(2)}, 0), None)


def staged_bundle(
    release: Release,
    certificate: dict[str, Any],
    target: Path,
    context: ReleaseContext[Release] = AROUND,
    published: str | None = None,
) -> AbstractContextManager[None]:
    """The bundle of a release of flows, prepared beside its place."""
    report = FLOWS.render_report(release, certificate, context)
    return publish_folder(
        lambda folder: write_bundle(FLOWS, release, certificate, lambda _: report, folder, balance=context.balance),
        target,
        published,
    )


def publish_bundle(release: Release, certificate: dict[str, Any], target: Path, published: str | None = None) -> None:
    """Put the bundle of a release of flows in its place."""
    with staged_bundle(release, certificate, target, published=published):
        pass


def checked_again(bundle: Path) -> None:
    """Checksums of files that were changed, as somebody would make them who wants it unseen."""
    digests = {name: compute_file_digest(file) for name, file in files_of(bundle).items() if name != CHECKSUMS}
    (bundle / CHECKSUMS).write_text(format_checksums(digests), encoding="utf-8")


def sealed_again(bundle: Path) -> None:
    """The same, and the zip file."""
    checked_again(bundle)
    release = json.loads((bundle / "certificate.json").read_text(encoding="utf-8"))["release"]
    write_zip(bundle, release, locate_zip(bundle))


def restated(bundle: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the certificate of a bundle, and make its checksums and its zip file again."""
    path = bundle / "certificate.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    change(facts)
    path.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    sealed_again(bundle)


def atlas_header(page: Path) -> dict[str, Any]:
    """What an atlas says beside its columns of numbers."""
    data = re.findall('(?<=id="data">)[^<]*', page.read_text(encoding="utf-8"))[0]
    content = gzip.decompress(base64.b64decode(data))
    return json.loads(content[4 : 4 + int.from_bytes(content[:4], "little")])


def of_unit(unit: PrivacyUnit, table: Table = "flows", *, may_leave: bool = True) -> Subject:
    """The subject of a release that protects a unit, without words of a publisher."""
    return Subject(table, unit.kind, unit.neighbours, record_may_leave=may_leave).with_unit(unit)
