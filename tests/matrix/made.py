"""A row of the matrix from its plan to its public files: drawn with fixed noise, charged, published, derived, shown."""

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from od_core import Ledger, OdError
from od_core.ledger.release_key import ReleaseKey
from od_core.ledger.user_counters import UserCounters
from od_core.publication.bundle import publish_folder, write_bundle
from od_core.publication.bundle_files import locate_zip
from od_core.publication.certificate import CheckResult, compute_certificate_digest
from od_core.publication.certify import build_certificate, read_release_context
from od_core.published.derived import publish_assisted, publish_sum
from od_core.published.publishing import Published
from od_core.published.site import write_site
from od_core.published.site_release import SiteDescription
from tests.behaviour import fixed
from tests.matrix.declared import ABOUT, FORMATS, OTHER_SERIES, Records, domain_of, draw, keys_of, kind_of
from tests.matrix.options import OPTIONS, Row

CHECKS = [
    CheckResult(subject="tables", check="as_promised", passed=True),
    CheckResult(subject="figures", check="whole_numbers", passed=True),
]
SITE = SiteDescription("Statistics of Aland", "https://statistics.example/od", "Office of Aland")


@dataclass(frozen=True)
class Bundle:
    """A published release, or what is derived from releases.

    Attributes:
        name: ``release``, ``earlier``, ``other`` (of another series), ``sum`` or ``assisted``.
        release: as it was drawn, or derived.
        facts: its certificate.
    """

    name: str
    key: ReleaseKey
    folder: Path
    release: Any
    facts: dict[str, Any]

    def file(self, name: str) -> Path:
        """Return the path of a file of the bundle."""
        return self.folder / name

    def files(self) -> dict[str, Path]:
        """Return all files by their names in the bundle."""
        return {str(path.relative_to(self.folder)): path for path in sorted(self.folder.rglob("*")) if path.is_file()}


@dataclass(frozen=True)
class Made:
    """What a row has published below a folder.

    Attributes:
        bundles: the published bundles by their names; ``release`` is always there.
        site: folder of the site.
        refused: what could not be derived, by name, with the error.
    """

    row: Row
    root: Path
    ledger: Ledger
    bundles: dict[str, Bundle]
    site: Path
    refused: dict[str, OdError]

    @property
    def main(self) -> Bundle:
        """The release that the row is about."""
        return self.bundles["release"]

    def place(self, bundle: Bundle) -> Published:
        """Return where a bundle is, for its verification."""
        return replace(Published.from_folder(self.root, bundle.key, self.ledger), bundle=bundle.folder)


@contextmanager
def fixed_noise() -> Iterator[None]:
    """Let clock, keys and noise be the same at every call."""
    with ExitStack() as stack:
        for each in fixed():
            stack.enter_context(each)
        yield


def make(row: Row, root: Path) -> Made:
    """Draw and publish the releases of a row below a folder, derive what can be derived, and write the site."""
    with fixed_noise():
        ledger = Ledger(root / "ledger.sqlite")
        ledger.declare(domain_of(row))
        bundles, previous, keys = dict[str, Bundle](), None, keys_of(row)
        for key in keys:
            is_last = key == keys[-1]
            release = draw(row, key, ledger, Records(0 if is_last else 1), previous)
            bundle = publish(row, key, ledger, release, root, "release" if is_last else "earlier")
            kind = kind_of(row)
            kind.store(root / "release.duckdb", release, key, bundle.facts)
            ledger.publish(key, compute_certificate_digest(bundle.facts), bundle.facts["exact"])
            bundles[bundle.name] = bundle
            previous = release if "auto" in row["mechanism"] else None
        if row["series"] == "and another series":
            bundles["other"] = _other_series(row, root)
        refused = dict[str, OdError]()
        releases = root / "releases"
        derivations = {
            "sum": lambda: publish_sum(releases, keys),
            "assisted": lambda: publish_assisted(releases, keys[-1]),
        }
        for name, publish_derived in derivations.items():
            try:
                made = publish_derived()
            except OdError as error:
                refused[name] = error
            else:
                bundles[name] = Bundle(name, made.key, made.folder, made.flows, dict(made.certificate))
        write_site(releases, root / "site", SITE, root / "release.duckdb")
    return Made(row, root, ledger, bundles, root / "site", refused)


def _other_series(row: Row, root: Path) -> Bundle:
    """Publish a release of another series of the same data set and period, which counts with the other rule of faults.

    It has a ledger of its own: in one call of the library, a series has the name of its data set.
    """
    values = OPTIONS["total"]
    other = {**row, "total": values[1 - values.index(row["total"])]}
    (root / "other").mkdir()
    key, ledger = ReleaseKey(OTHER_SERIES, keys_of(row)[-1].period), Ledger(root / "other" / "ledger.sqlite")
    ledger.declare(domain_of(row, OTHER_SERIES))
    made = publish(other, key, ledger, draw(other, key, ledger, Records()), root / "other", "other")
    folder = root / "releases" / key.folder
    shutil.copytree(made.folder, folder)
    shutil.copy2(locate_zip(made.folder), locate_zip(folder))
    return replace(made, folder=folder)


def publish(row: Row, key: ReleaseKey, ledger: Ledger, release: Any, root: Path, name: str) -> Bundle:
    """Write the bundle of a release below a folder, without an entry in the ledger or the database."""
    kind = kind_of(row)
    given = {"formats": FORMATS[row["formats"]], "about": ABOUT[row["words"]], "intervals": row["intervals"] == "yes"}
    facts = build_certificate(kind, release, key, domain_of(row).name, CHECKS, record=ledger.record(key), **given)
    context = read_release_context(kind, ledger, key, key.release, root / "releases")
    report = kind.render_report(release, facts, context)
    folder = root / "releases" / key.folder
    with publish_folder(
        lambda place: write_bundle(kind, release, facts, lambda _: report, place, balance=context.balance), folder
    ):
        pass
    return Bundle(name, key, folder, release, json.loads((folder / "certificate.json").read_text(encoding="utf-8")))


@contextmanager
def _any_input() -> Iterator[None]:
    """Let other records than those of a release be counted for it, which the library refuses."""
    with (
        patch("od_core.ledger.measurements.hold_to_input", lambda *_, **__: None),
        patch.object(UserCounters, "hold_to_input", lambda *_: None),
        patch.object(UserCounters, "store_or_compare", lambda *_: None),
    ):
        yield


def of_neighbour(made: Made, root: Path) -> Bundle:
    """Publish the same release once more, from the records of a neighbour and the noisy values that are stored.

    The ledger and the measurements are copied, so what is drawn is read back. All public bytes are to be the same, but
    for numbers that are published exactly.
    """
    for name in ("ledger.sqlite", "confidential"):
        source = made.root / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, root / name)
    if "earlier" in made.bundles:
        earlier = made.bundles["earlier"]
        shutil.copytree(earlier.folder, root / "releases" / earlier.key.folder)
    with fixed_noise(), _any_input():
        ledger = Ledger(root / "ledger.sqlite")
        earlier_release = made.bundles["earlier"].release if "earlier" in made.bundles else None
        previous = earlier_release if "auto" in made.row["mechanism"] else None
        release = draw(made.row, made.main.key, ledger, Records(0, is_neighbour=True), previous)
        return publish(made.row, made.main.key, ledger, release, root, "release")
