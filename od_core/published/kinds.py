"""List the kinds of releases (flows, group sizes, trips with stops), and find the kind that a certificate states."""

from __future__ import annotations

from typing import Any

from od_core.errors import OdError
from od_core.flows.publishing.assisted_kind import ASSISTED
from od_core.flows.publishing.derived_kind import DerivedKind
from od_core.flows.publishing.kind import FLOWS
from od_core.flows.publishing.sum_kind import SUMS
from od_core.group_sizes.publishing import GROUP_SIZES
from od_core.publication.kind import BundleKind, Kind
from od_core.stops.publishing import STOPS

KINDS: tuple[Kind[Any], ...] = (FLOWS, GROUP_SIZES, STOPS)
DERIVED: tuple[DerivedKind[Any], ...] = (SUMS, ASSISTED)


def bundle_kind_of(certificate: dict[str, Any]) -> BundleKind[Any]:
    """Return what a certificate is of: a kind of release, or derived flows. Raises OdError if it is unknown."""
    return derived_kind_of(certificate) or kind_of(certificate)


def derived_kind_of(certificate: dict[str, Any]) -> DerivedKind[Any] | None:
    """Return the kind of derived flows (sums, or model-assisted flows) of a certificate; None if it is of a release."""
    return next((kind for kind in DERIVED if kind.format == certificate.get("format")), None)


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
