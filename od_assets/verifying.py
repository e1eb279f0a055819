"""Verification of published releases, for the command line and for the daily check."""

from __future__ import annotations

from typing import Any

from od_assets.resources.warehouse import Warehouse
from od_core.archive.release_key import ReleaseKey
from od_core.errors import OdError
from od_core.publication.verification import verify_release


def verified(release: str | None = None) -> list[dict[str, Any]]:
    """Findings of published releases as JSON-ready rows: release, verified, faults by part.

    Args:
        release: a key as ``us_flights/2001-06/r1``, the name of a series, or None for all.

    Raises:
        OdError: nothing of that name was published; the ledger cannot be used.
    """
    warehouse = Warehouse()
    published = warehouse.existing_ledger().published()
    unknown = sorted({*warehouse.public_releases()} - {*published})
    keys = [key for key in (*published, *unknown) if release in (None, key.release, str(key))]
    if release is not None and not keys:
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"{release} was never published here",
            next_step="see od-release status for those that were",
        )
    return [_row(warehouse, key) for key in keys]


def _row(warehouse: Warehouse, key: ReleaseKey) -> dict[str, Any]:
    findings = verify_release(warehouse.published(key))
    faults = {finding.part: finding.fault for finding in findings if finding.fault is not None}
    return {"release": str(key), "verified": not faults, "faults": faults}
