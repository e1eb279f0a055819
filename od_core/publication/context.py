"""Collect the context of a release for its report: the remaining cap and the previous release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from od_core.errors import STAYS_CHARGED, OdError
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import CERTIFICATE
from od_core.publication.kind import Kind, R, ReleaseContext
from od_core.publication.read_back import REPAIR


def context_of(kind: Kind[R], ledger: Ledger, key: ReleaseKey, data_set: str, releases: Path) -> ReleaseContext[R]:
    """Return the context of a release that has been measured, from the ledger and the folder of all public bundles.

    Raises:
        OdError: the release is not measured, or the bundle of the previous release is missing or damaged.
    """
    until = ledger.record(key).entry.number
    balance = ledger.balance(data_set, key.period, until)
    previous, stated = None, dict[str, Any]()
    if earlier := [other for other in ledger.published(until, key.release) if other.period < key.period]:
        newest = max(earlier)
        folder = releases / newest.folder
        try:
            found: dict[str, Any] = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
            if found["format"] == kind.format:
                previous, stated = (newest, kind.open(folder)), found
        except (OdError, OSError, ValueError, KeyError, TypeError):
            raise OdError(
                "OD-PREVIOUS-ABSENT",
                f"the bundle of {newest}, with which this release is compared, is missing or damaged",
                next_step=REPAIR,
                spent=STAYS_CHARGED,
            ) from None
    return ReleaseContext(balance.period, balance.cap, balance.left, balance.releases - 1, previous, stated)
