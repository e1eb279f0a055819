"""List the kinds of releases (flows, group sizes, trips with stops), and find the kind that a certificate states."""

from __future__ import annotations

from typing import Any

from od_core.errors import OdError
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.publishing.sum_kind import SUMS
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.publication.kind import BundleKind, Kind
from od_core.stops.publishing import STOPS

KINDS: tuple[Kind[Any], ...] = (FLOWS, GROUP_SIZES, STOPS)


def bundle_kind_of(certificate: dict[str, Any]) -> BundleKind[Any]:
    """Return what a certificate is of: a kind of release, or sums of releases. Raises OdError if it is unknown."""
    return SUMS if certificate.get("format") == SUMS.format else kind_of(certificate)


def kind_of(certificate: dict[str, Any]) -> Kind[Any]:
    """Return the kind of release (flows, group sizes or stops) of a certificate. Raises OdError if it is unknown."""
    stated = certificate.get("format")
    for kind in KINDS:
        if kind.format == stated:
            return kind
    raise OdError(
        "OD-CERTIFICATE-FORMAT",
        f"the certificate states the format {str(stated)[:60]!r}, which this version does not read",
        next_step="use the version of the software that the certificate names",
    )
