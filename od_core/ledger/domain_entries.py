"""Enter the privacy domain of a data set and its cap in a ledger."""

from __future__ import annotations

from typing import Any

from od_core.errors import OdError
from od_core.ledger.entries import CAP, DOMAIN, Entries
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain


def enter_domain(entries: Entries, domain: PrivacyDomain) -> None:
    """Enter a domain, or a new cap with its reason, as :meth:`od_core.ledger.ledger.Ledger.declare` does."""
    declared = entries.newest(DOMAIN, domain=domain.name)
    if declared is None:
        entries.append(DOMAIN, domain.name, content=domain.facts())
    elif domain.unit.kind == "user_year" != declared["content"]["unit"]:
        raise OdError(
            "OD-DOMAIN-CONFLICT",
            f"data set {domain.name!r} has releases of unit {declared['content']['unit']!r}, whose users have no bound"
            " for a year",
            next_step="declare a data set with another name, whose series begin with the first period of a year; keep"
            " this one as it was for the periods before",
        )
    elif declared["content"] != domain.facts():
        raise OdError(
            "OD-DOMAIN-CONFLICT",
            f"data set {domain.name!r} is declared with {declared['content']}, not with {domain.facts()}",
            next_step="use the declared unit and neighbours; a data set has only one kind of promise",
        )
    caps = entries.select("kind = ? AND domain = ?", CAP, domain.name)
    cap = {**domain.cap.facts(), "reason": domain.cap_reason.strip()}
    if caps and Cap.from_facts(caps[-1]["content"]) == domain.cap:
        return
    if any(earlier["content"]["reason"] == cap["reason"] for earlier in caps):
        raise OdError(
            "OD-LEDGER-CAP-REASON",
            f"the cap of {domain.name!r} changed from {_cap_text(caps[-1]['content'])} to {_cap_text(cap)}"
            " without a new reason",
            next_step="state why in the privacy domain's cap reason",
        )
    entries.append(CAP, domain.name, content=cap)


def _cap_text(facts: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items() if name != "reason")


def other_unit(domain: str) -> OdError:
    """Return the OdError for a release whose unit is not that of its data set."""
    return OdError(
        "OD-DOMAIN-CONFLICT",
        f"the release's unit or neighbours differ from those of the privacy domain {domain!r}",
        next_step="declare the domain once, and use its unit and neighbours in all its releases",
    )


def declared_facts(entries: Entries, domain: str) -> dict[str, Any]:
    """Return the facts with which a data set was declared. Raises OdError if it is not declared."""
    declared = entries.newest(DOMAIN, domain=domain)
    if declared is None:
        raise OdError(
            "OD-DOMAIN-UNDECLARED",
            f"the privacy domain {domain!r} is not declared",
            next_step="run a release of that domain",
        )
    facts: dict[str, Any] = declared["content"]
    return facts
