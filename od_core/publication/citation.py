"""Cite a release: the one text for its report, its README and the web site."""

from __future__ import annotations

from typing import Any

from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import promise_text
from od_core.publication.certificate import certificate_digest


def citation(certificate: dict[str, Any]) -> str:
    """Return the text with which to cite a release, or flows that are derived from releases.

    It names the period and the revision, because another revision has different noise and different numbers, and the
    certificate, of which there is only one.
    """
    key = ReleaseKey.parse(certificate["release"])
    return (
        f"{key.release}, period {key.period}, revision {key.revision}. {_made(certificate)}, measured"
        f" {certificate['measured_at'][:10]}. Certificate {certificate_digest(certificate)[:16]}."
    )


def _made(certificate: dict[str, Any]) -> str:
    if sources := certificate.get("sources"):
        first, last = sources[0]["release"], sources[-1]["release"]
        span = first if first == last else f"{first} to {last}"
        return f"Derived from {len(sources)} release{'s' * (len(sources) > 1)} with differential privacy ({span})"
    promise = promise_text(certificate["spent"]["epsilon"], certificate["spent"]["delta"])
    return f"Released with differential privacy ({promise}; mechanism {certificate['mechanism']['name']})"
