"""Read the releases that flows are derived from, from their public bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.flows.derived_flows import not_of_flows
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.release import Release
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import faulty_files
from od_core.publication.certificate import certificate_digest
from od_core.publication.read_back import REPAIR, certificate_of, named, refuse_incomplete


@dataclass(frozen=True)
class Source:
    """A release that flows are derived from.

    Attributes:
        key: the release.
        release: the release, read from its bundle.
        certificate: its certificate.
    """

    key: ReleaseKey
    release: Release
    certificate: dict[str, Any]

    def facts(self) -> dict[str, Any]:
        """Return what the certificate of derived flows states of this release."""
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
    """Return the releases that a bundle's flows are derived from, from the bundles below the same folder.

    Raises:
        OdError: a release is missing, damaged or not the one that the certificate names.
    """
    releases, found = bundle.resolve().parents[2], []
    with refuse_incomplete(named(bundle)):
        for stated in certificate["sources"]:
            key = ReleaseKey.parse(stated["release"])
            source = published_source(releases, key)
            if source.facts() != stated:
                raise _unsound(f"{key} is not the release that was used: its certificate differs")
            found.append(source)
    return found


def published_source(releases: Path, key: ReleaseKey) -> Source:
    """Return a published release of flows. Raises OdError if it is missing, damaged or not of flows."""
    folder = releases / key.folder
    if not folder.is_dir():
        raise _unsound(f"{key} is not published below the same folder as what is derived from it")
    if faults := [f"{name} {fault}" for name, fault in faulty_files(folder)]:
        raise _unsound(f"the bundle of {key} is damaged: {'; '.join(faults)}")
    certificate = certificate_of(folder)
    if certificate.get("format") != FLOWS.format:
        raise not_of_flows(str(key), "derived itself" if "sources" in certificate else "not a release of flows")
    with refuse_incomplete(named(folder)):
        return Source(key, FLOWS.open(folder), certificate)


def by_name(sources: Sequence[Source]) -> Mapping[str, Release]:
    """Return the releases by their keys, which errors name."""
    return {str(source.key): source.release for source in sources}


def _unsound(message: str) -> OdError:
    return OdError("OD-DERIVED-SOURCE", message, next_step=REPAIR)
