"""Verify published releases, for the command line and for the daily check."""

from typing import Any

from od_assets.interrupts import stoppable
from od_assets.resources.warehouse import Warehouse
from od_core import OdError, Published, verify_release


def verified(release: str | None = None, warehouse: Warehouse | None = None) -> list[dict[str, Any]]:
    """Verify published releases, and return one JSON-ready row per release.

    A row has the names release, verified (True if there is no fault), faults (by part), and next_step if there is one.

    Args:
        release: a key such as ``us_flights/2001-06/r1``, the name of a series, or None for all releases.
        warehouse: warehouse of the releases; by default that of the current project.

    Raises:
        OdError: no release with that name was published; or the ledger is missing or cannot be used.
    """
    warehouse = warehouse or Warehouse()
    ledger = warehouse.existing_ledger()  # opened once, since each opening checks the whole chain
    published = ledger.published()
    unknown = sorted({*warehouse.public_releases()} - {*published})
    keys = [key for key in (*published, *unknown) if release in (None, key.release, str(key))]
    if release is not None and not keys:
        raise OdError(
            "OD-RELEASE-ABSENT",
            f"{release} was never published here",
            next_step="od-release status lists the published releases",
        )
    with stoppable(keys, "releases were not verified") as rest:
        return [_row(warehouse.published(key, ledger)) for key in rest]


def _row(published: Published) -> dict[str, Any]:
    findings = verify_release(published)
    faults = {finding.part: finding.fault for finding in findings if finding.fault is not None}
    steps = [finding.next_step for finding in findings if finding.next_step is not None]
    step = {"next_step": "; ".join(steps)} if steps else {}
    return {"release": str(published.key), "verified": not faults, "faults": faults, **step}
