"""Read the releases that a sum is made of from their public bundles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.flows.flow_sum import FlowSum, sum_of
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.release import Release
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle_integrity import faulty_files
from od_core.publication.certificate import certificate_digest
from od_core.publication.read_back import certificate_of, refuse_incomplete

SUM_FORMAT = "od-release sum certificate 1"
"""Format that the certificates of sums state."""


@dataclass(frozen=True)
class Source:
    """A release of a sum.

    Attributes:
        key: the release.
        release: the release, read from its bundle.
        certificate: its certificate.
    """

    key: ReleaseKey
    release: Release
    certificate: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return what the certificate of a sum states of this release."""
        spent = self.certificate["spent"]
        return {
            "release": str(self.key),
            "certificate": certificate_digest(self.certificate),
            "measured_at": self.certificate["measured_at"],
            "rho_exact": spent["rho_exact"],
            "epsilon": spent["epsilon"],
            "delta": spent["delta"],
        }


def sources_of(bundle: Path, certificate: dict[str, Any]) -> list[Source]:
    """Return the releases of a sum. Raises OdError if one is missing, damaged or not the one that was summed."""
    releases, found = bundle.resolve().parents[2], []
    with refuse_incomplete(bundle.name):
        for stated in certificate["sources"]:
            key = ReleaseKey.parse(stated["release"])
            source = published_source(releases, key)
            if source.facts() != stated:
                raise _unsound(f"{key} is not the release that was summed: its certificate differs", key)
            found.append(source)
    return found


def published_source(releases: Path, key: ReleaseKey) -> Source:
    """Return a published release of flows. Raises OdError if it is missing, damaged or not of flows."""
    folder = releases / key.folder
    if not folder.is_dir():
        raise _unsound(f"{key} is not published below the same folder as its sum", key)
    if faults := [f"{name} {fault}" for name, fault in faulty_files(folder)]:
        raise _unsound(f"the bundle of {key} is damaged: {'; '.join(faults)}", key)
    certificate = certificate_of(folder)
    if certificate.get("format") != FLOWS.format:
        kind = "a sum" if certificate.get("format") == SUM_FORMAT else "not a release of flows"
        raise OdError(
            "OD-SUM-KIND",
            f"{key} is {kind}; only releases of flows can be summed",
            next_step="name releases of flows; to extend a sum, name all releases that it is made of",
        )
    with refuse_incomplete(folder.name):
        return Source(key, FLOWS.open(folder), certificate)


def summed(sources: Sequence[Source]) -> FlowSum:
    """Return the sum of releases; errors name them by their keys."""
    return sum_of({str(source.key): source.release for source in sources})


def _unsound(message: str, key: ReleaseKey) -> OdError:
    return OdError("OD-SUM-SOURCE", message, next_step=f"restore its bundle, which od-release verify {key} examines")
