"""Enter the privacy domain of a data set and its cap in a ledger."""

from __future__ import annotations

from od_core.errors import OdError
from od_core.ledger.entries import CAP, DOMAIN, Entries
from od_core.privacy.cap import Cap
from od_core.privacy.domain import PrivacyDomain


def enter_domain(entries: Entries, domain: PrivacyDomain) -> None:
    """Enter a domain, or a new cap with its reason, as :meth:`od_core.ledger.ledger.Ledger.declare` does."""
    declared = entries.newest(DOMAIN, domain=domain.name)
    if declared is None:
        entries.append(DOMAIN, domain.name, content=domain.facts())
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
