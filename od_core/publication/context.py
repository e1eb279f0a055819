"""What stands around a release when it is measured: what is left of its cap, and what was published before it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic

from od_core.errors import OdError
from od_core.ledger.ledger import Ledger
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import CERTIFICATE
from od_core.publication.kind import R

if TYPE_CHECKING:
    from od_core.publication.kind import Kind


@dataclass(frozen=True, eq=False)
class Circumstances(Generic[R]):
    """What the report of a release says beside the release itself.

    All of it follows from the ledger's entries up to the one that the release's certificate names, its last
    measurement, so that the report is the same whenever it is made.

    Attributes:
        period: the elementary period of those that were charged which has least left.
        cap: rho that the cap allows in it.
        left: rho left of it once the release was charged.
        others: releases that had charged it before, or with it.
        previous: the newest release of the series' last published period before this one; None where there is none.
    """

    period: str
    cap: Fraction
    left: Fraction
    others: int
    previous: tuple[ReleaseKey, R] | None


def circumstances(kind: Kind[R], ledger: Ledger, key: ReleaseKey, data_set: str, releases: Path) -> Circumstances[R]:
    """The circumstances of a measured release.

    Args:
        kind: of the series.
        ledger: that was charged.
        key: the release.
        data_set: name of the privacy domain.
        releases: folder of all public bundles.

    Raises:
        OdError: it is not measured; the bundle of the release before it is missing or damaged.
    """
    until = ledger.record(key).entry.number
    balance = ledger.balance(data_set, key.period, until)
    before = [other for other in ledger.published(until) if other.release == key.release and other.period < key.period]
    previous = None if not before else _opened(kind, max(before), releases)
    return Circumstances(balance.period, balance.cap, balance.left, balance.releases - 1, previous)


def _opened(kind: Kind[R], key: ReleaseKey, releases: Path) -> tuple[ReleaseKey, R] | None:
    """A published release read back; None for one of another kind, of before the series had this one."""
    folder = releases / key.folder
    try:
        stated: dict[str, Any] = json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))
        return (key, kind.open(folder)) if stated["format"] == kind.format else None
    except (OdError, OSError, ValueError, KeyError, TypeError):
        raise OdError(
            "OD-PREVIOUS-ABSENT",
            f"the bundle of {key}, which this release is compared with, is missing or damaged",
            next_step=f"restore it, or remove what is left of it and run {key.release} {key.period}: the same bytes",
            spent="what was set aside before stays charged",
        ) from None
