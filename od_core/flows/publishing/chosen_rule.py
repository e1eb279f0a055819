"""State the rule of estimation that held-out noise chose, in certificates and in words, and tell two rules apart."""

from __future__ import annotations

from collections.abc import Mapping
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


def by_other_rule(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a sentence on changes between two releases that different rules of estimation make.

    Args:
        before, after: certificates of two releases of flows; empty if they are not at hand.

    Returns:
        The sentence; an empty text if the rules are the same or not known.
    """
    if not before or not after:
        return ""
    mechanisms = [stated["mechanism"]["name"] for stated in (before, after)]
    rules = [_rule(stated) for stated in (before, after)] if mechanisms[0] == mechanisms[1] else mechanisms
    if rules[0] == rules[1]:
        return ""
    return (
        f" The two releases were estimated by different rules, {rules[0]} and {rules[1]}, so a flow, above all a small"
        " one, may change for this reason alone."
    )


_RULES = {"least_squares": "least squares", "normal": "normal deviations", "mixture": "a mixture of deviations"}
"""Words for the rules of estimation, by their names in certificates."""


def _rule(certificate: Mapping[str, Any]) -> str:
    """Return the rule by which a release was estimated, in words: the one that was chosen, or else declared."""
    options = certificate["mechanism"]["options"]
    u, shrinks = options.get("u"), options.get("estimate") == "shrunk"
    rule = "least_squares" if not shrinks else "normal" if u is None else "mixture"
    if _ESTIMATION in certificate:
        rule, u = certificate[_ESTIMATION]["rule"], certificate[_ESTIMATION]["u"]
    return _RULES[rule] if u is None else f"{_RULES[rule]} with u = {u}"
