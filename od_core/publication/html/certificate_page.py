"""Make the page of a certificate, and the parts of reports that show a certificate.

The words are in the templates ``certificate.html`` and ``certificate_parts.html``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from markupsafe import Markup

from od_core.privacy.accounting import text_above
from od_core.publication.codebook import citation
from od_core.publication.kind import ReleaseContext
from od_core.publication.templates import filled, filled_part

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


def promise_figures(certificate: dict[str, Any]) -> list[tuple[str, object]]:
    """Return the names and values of epsilon, and of delta if it is not 0, for the top of the page."""
    spent = certificate["spent"]
    return [(name, text_above(spent[name])) for name in ("epsilon", "delta") if name == "epsilon" or spent[name]]


def under_title(certificate: dict[str, Any]) -> Markup:
    """Return the line below the title: revision, date, data set, mechanism and versions of the geographies."""
    return _part("under_title", certificate)


def protected(certificate: dict[str, Any]) -> Markup:
    """Return a list of the certificate's sentences on the guarantee, and of the numbers published exactly."""
    return _part("protected", certificate)


def how_to_cite(certificate: dict[str, Any]) -> Markup:
    """Return the text that cites the release, with two explanations."""
    return _part("how_to_cite", citation(certificate))


def limitations(certificate: dict[str, Any]) -> Markup:
    """Return a list of the known limitations that the certificate states."""
    return _part("limitations", certificate)


def common_sections(certificate: dict[str, Any], context: ReleaseContext[Any]) -> list[tuple[str, Markup]]:
    """Return the last sections of a report, which all kinds of releases have, as pairs of heading and content."""
    return [
        ("Checks", _part("checks", certificate)),
        ("Spent and remaining budget", _part("spending", certificate, context)),
        ("How to cite", how_to_cite(certificate)),
        ("Assumptions and limitations", limitations(certificate)),
    ]


def _part(name: str, *values: object) -> Markup:
    return filled_part("certificate_parts.html", name, *values)
