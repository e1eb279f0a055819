"""Read the certificate and the tables of a bundle of any kind, and check the plan and the spending that they state."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fractions import Fraction
from pathlib import Path, PurePath

import pandas as pd
import pyarrow.parquet as pq

from od_core.errors import OdError
from od_core.files.durable import compute_file_digest
from od_core.geography.geography import Geography
from od_core.ledger.chain import BUNDLE_FORMAT, EntryName
from od_core.ledger.ledger import Withdrawal
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.budget import Spent
from od_core.privacy.plan import Plan
from od_core.publication.bundle_files import BOUNDARIES, CERTIFICATE, NOTICE, PARQUET, locate_table, read_checksums
from od_core.publication.certificate import Certificate, compute_certificate_digest, read_certificate
from od_core.publication.tables import build_published_geography, join_boundaries

REPAIR = (
    "make it again, which spends nothing and replaces missing and damaged files (od-release run; sum or assist for"
    " derived flows), or restore its bundle from a copy"
)
"""Next step if the bundle of a published release is missing or damaged, wherever it is found."""


def read_certificate_and_tables(bundle: str | Path, names: Iterable[str]) -> tuple[Certificate, list[pd.DataFrame]]:
    """Return the certificate and the tables of these names of a bundle. Raises OdError if a file is unreadable."""
    folder = Path(bundle)
    try:
        certificate = read_certificate(folder / CERTIFICATE)
        return certificate, [pd.read_parquet(locate_table(folder, f"{name}.parquet")) for name in names]
    except (OSError, ValueError):
        raise make_incomplete_bundle_error(
            folder, "a table or the certificate of this kind of release cannot be read"
        ) from None


def read_published_areas(bundle: Path) -> pd.DataFrame:
    """Return the table of areas of a bundle, with their boundaries in a column if it has some.

    Raises OSError or ValueError if a table is missing or cannot be read.
    """
    areas = pd.read_parquet(locate_table(bundle, PARQUET["areas"]))
    boundaries = locate_table(bundle, BOUNDARIES)
    return join_boundaries(areas, pq.read_table(boundaries)) if boundaries.exists() else areas


def describe_as_published(geography: Geography, bundle: Path, published: str | None) -> Geography:
    """Return a geography with the names, coordinates, boundaries and version with which a release was published.

    A zone list may describe the same areas differently later, but a published description does not change.

    Args:
        geography: the areas as they are described now.
        bundle: folder of the release.
        published: digest of the published certificate, from the ledger; None if the ledger has none.

    Returns:
        The geography of the bundle; ``geography`` if there is no such bundle, it has other areas, or its certificate or
        one of its tables of areas is lost or damaged.
    """
    if published is None or not geography.levels or not read_checksums(bundle):
        return geography
    try:
        certificate = read_bundle_certificate(bundle)
        sides = [side for side, digest in certificate.get("geographies", {}).items() if digest == geography.digest]
        if compute_certificate_digest(certificate) != published or not sides or has_lost_areas(bundle):
            return geography
        version = certificate.get("geography_versions", {}).get(sides[0])
        return build_published_geography(read_published_areas(bundle), geography.digest, geography.unknown, version)
    except (OdError, OSError, ValueError):  # the files that cannot be read are made again
        return geography


def has_lost_areas(bundle: Path) -> bool:
    """Return whether a table of areas or of boundaries that the checksums of a bundle state is missing or damaged.

    If the table of boundaries is missing, a release would be read as one without boundaries.
    """
    digests = read_checksums(bundle)
    tables = [name for name in digests if PurePath(name).name in (PARQUET["areas"], BOUNDARIES)]
    return any(not (bundle / name).is_file() or compute_file_digest(bundle / name) != digests[name] for name in tables)


def read_bundle_certificate(bundle: Path) -> Certificate:
    """Return the certificate in a bundle's folder. Raises OdError if it is missing or cannot be read."""
    try:
        certificate = read_certificate(bundle / CERTIFICATE)
        ReleaseKey.parse(certificate["release"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise make_incomplete_bundle_error(bundle, f"it lacks a {CERTIFICATE} that can be read") from None
    return certificate


def refuse_newer_bundle(certificate: Certificate) -> None:
    """Raise OdError if a later version of this software published the bundle of a certificate in another format."""
    known_format = " certificate 1"  # end of the formats of all kinds
    is_known = str(certificate.get("format", known_format)).endswith(known_format)
    if not is_known or certificate.get("bundle_format", 1) > BUNDLE_FORMAT:
        raise OdError(
            "OD-BUNDLE-NEWER",
            f"{certificate['release']} has a bundle of a later format than this version of od-release knows",
            next_step="use at least the version that published it, or restore the copy of var from before the upgrade",
            spent="nothing was spent",
        )


def read_certified_entries(releases: Path) -> dict[str, EntryName]:
    """Return the ledger entries that readable certificates name, by release.

    Raises OdError as :func:`refuse_newer_bundle`.
    """
    entries = {}
    for path in sorted(releases.glob(f"*/*/r*/{CERTIFICATE}")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # verification reports faults of bundles
            certificate = json.loads(path.read_text(encoding="utf-8"))
            refuse_newer_bundle(certificate)
            entry = certificate["ledger"]
            entries[str(certificate["release"])] = EntryName(int(entry["entry"]), str(entry["hash"]))
    return entries


def name_bundle(bundle: Path) -> str:
    """Return the name of a bundle for messages: the key of its release if the path ends with it, else the last part.

    >>> name_bundle(Path("var/releases/us_flights/2001-06/r1")), name_bundle(Path("downloads/flights"))
    ('us_flights/2001-06/r1', 'flights')
    """
    with suppress(OdError):
        return str(ReleaseKey.parse("/".join(bundle.parts[-3:])))
    return bundle.name


@contextmanager
def refuse_incomplete(name: str) -> Iterator[None]:
    """Replace a KeyError, for a fact that the bundle or database ``name`` lacks, by an OdError."""
    try:
        yield
    except KeyError as error:
        raise make_absent_release_error(
            f"{name} is not complete, or newer software wrote it: it has no {', '.join(map(str, error.args))}",
            f"read it with the software that its certificate names; if it is damaged, {REPAIR}",
        ) from None


def refuse_other_plan(plan: Plan, facts: Mapping[str, object]) -> None:
    """Raise OdError if a plan that was made from a certificate does not have the certificate's ``facts`` of it."""
    if plan.stored_facts != facts:
        raise make_changed_data_error("plan")


def read_spent_budget(plan: Plan, certificate: Certificate) -> Spent:
    """Return the budget that a release has spent according to its certificate. The ledger is not read.

    Raises OdError if the certificate has another number of charges than the plan.
    """
    charged = [Fraction(rho) for rho in certificate["spent"]["rho_by_level_exact"]]
    if len(charged) != len(plan.charged_steps):
        raise make_changed_data_error("charges")
    draws = [rho / step.charge.as_rho for rho, step in zip(charged, plan.charged_steps, strict=True)]
    return plan.compute_spent(draws)


def make_changed_data_error(what: str) -> OdError:
    """Return the OdError for published data that do not fit their certificate; ``what`` names them in the message."""
    return OdError(
        "OD-BUNDLE-CHANGED",
        f"the published {what} differ from those that the certificate and the noisy measurements give",
        next_step=f"read it with the software that the certificate names; if it is damaged, {REPAIR}",
    )


def make_absent_release_error(message: str, next_step: str = "name a published release") -> OdError:
    """Return the OdError for a release that does not exist."""
    return OdError("OD-RELEASE-ABSENT", message, next_step=next_step)


def make_incomplete_bundle_error(bundle: Path, why: str) -> OdError:
    """Return the OdError for a folder that is not a complete bundle."""
    return make_absent_release_error(f"{name_bundle(bundle)} is not a complete bundle: {why}", REPAIR)


def read_withdrawals(releases: Path) -> dict[ReleaseKey, Withdrawal]:
    """Return the withdrawn releases of a folder of bundles, from their notices, in the order of their keys."""
    withdrawals = {}
    for notice in releases.glob(f"*/*/r*{NOTICE}"):
        with suppress(OSError, ValueError, KeyError, TypeError, OdError):  # it is no notice
            facts = json.loads(notice.read_text(encoding="utf-8"))
            withdrawals[ReleaseKey.parse(facts["release"])] = Withdrawal(facts["withdrawn_at"], facts["reason"])
    return dict(sorted(withdrawals.items()))


def refuse_withdrawn(releases: Path, *keys: ReleaseKey) -> None:
    """Raise OdError if one of the releases ``keys`` was withdrawn, according to the folder of all bundles."""
    for key, withdrawal in read_withdrawals(releases).items():
        if key in keys:
            raise withdrawal.make_withdrawn_error(key)


def make_damaged_bundle_error(key: ReleaseKey, fault: str) -> OdError:
    """Return the OdError for the bundle of a published release with a damaged file."""
    return OdError("OD-BUNDLE-DAMAGED", f"the bundle of {key} is damaged: {fault}", next_step=REPAIR)


def make_missing_bundles_error(keys: Sequence[ReleaseKey]) -> OdError:
    """Return the OdError for published releases whose bundles are missing."""
    bundles = f"the bundle of {keys[0]} is" if len(keys) == 1 else f"the bundles of {', '.join(map(str, keys))} are"
    step = REPAIR if len(keys) == 1 else f"for each: {REPAIR}"
    return OdError("OD-BUNDLE-ABSENT", f"{bundles} missing, although published", next_step=step)
