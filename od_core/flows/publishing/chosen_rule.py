"""State the rule of estimation that held-out noise chose, in certificates and in words."""

from __future__ import annotations

from typing import Any

from od_core.flows.estimation.shrinkage import Rule

_ESTIMATION = "estimation"
"""Name of the certificate's field."""


def estimation_facts(rule: Rule | None) -> dict[str, Any]:
    """Return the certificate's field on a chosen rule: its name, and u if it has one. It is empty for None."""
    if rule is None:
        return {}
    return {_ESTIMATION: {"rule": rule.name, "u": None if rule.u is None else str(rule.u)}}


def estimation_text(certificate: dict[str, Any]) -> str:
    """Return a sentence on the rule that a certificate states. It is empty if no rule was chosen."""
    if _ESTIMATION not in certificate:
        return ""
    rule, u = certificate[_ESTIMATION]["rule"], certificate[_ESTIMATION]["u"]
    if rule == "least_squares":
        return "Held-out noise showed no rule of estimation that has less error than least squares."
    if u is None:
        return "Held-out noise chose the rule of estimation: deviations from what is predicted are normal."
    return (
        "Held-out noise chose the rule of estimation: a mixture of deviations from what is predicted, in which small"
        f" flows get at least {u} standard deviations of the noise."
    )
