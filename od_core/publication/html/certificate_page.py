"""Make the page of a certificate; its words are in the template ``certificate.html``."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from od_core.publication.templates import filled

_PARTS = (
    ("What is protected", ("guarantee", "known_limitations")),
    (
        "What was released",
        ("release", "data_set", "period", "revision", "contents", "uncounted", "interval", "invariants", "promises"),
    ),
    (
        "What was spent",
        ("spent", "privacy_loss", "account", "unit", "neighbours", "contribution_bound", "fault_threshold"),
    ),
    (
        "How it was measured",
        ("records", "mechanism", "noise", "levels", "repeated_levels", "geographies", "geography_versions"),
    ),
    ("How it was checked", ("checks",)),
)
"""Headings of the page and the names of the fields below them; all other fields are below :data:`_REST`."""

_REST = "Plan, ledger and software"


def certificate_page(certificate: dict[str, Any]) -> str:
    """Return the HTML page of a certificate. It contains all fields of the certificate and nothing else."""
    named = {fact for _, facts in _PARTS for fact in facts}
    parts = [*_PARTS, (_REST, tuple(sorted(certificate.keys() - named)))]
    return filled("certificate.html", certificate=certificate, parts=parts)


def confidence(certificate: dict[str, Any]) -> str | None:
    """Return the confidence of the release's intervals, such as ``90 %``; None for a release without intervals."""
    stated = certificate.get("interval")
    return None if stated is None else f"{float(100 * Fraction(stated)):g} %"
