"""State rules of estimation in words, and the one that held-out noise chose in certificates; tell two rules apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from od_core.flows.mechanisms import ESTIMATORS, declared
from od_core.publication.certificate import Certificate


def estimation_text(certificate: Certificate) -> str:
    """Return sentences on the rule that a certificate states. The text is empty if no rule was chosen."""
    if "estimation" not in certificate:
        return ""
    rule, u = certificate["estimation"]["rule"], certificate["estimation"]["u"]
    chosen, evidence = ESTIMATORS[rule].chosen.format(u=u), certificate.get("evidence", {"releases": 1})
    if evidence["releases"] == 1:
        return chosen
    since = f", which has kept this rule since {evidence['since']}" if evidence["since"] else ""
    return f"{chosen} The evidence is that of {evidence['releases']} releases of the series{since}."


def by_other_rule(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return a sentence on changes between two releases that different rules of estimation make, from certificates.

    It is empty if the rules are the same, or not known because a certificate is empty.
    """
    if not before or not after:
        return ""
    mechanisms = [stated["mechanism"]["name"] for stated in (before, after)]
    rules = [_rule(stated) for stated in (before, after)] if mechanisms[0] == mechanisms[1] else mechanisms
    if rules[0] == rules[1]:
        return ""
    said = (
        f" The two releases were estimated by different rules, {rules[0]} and {rules[1]}, so a flow, above all a small"
        f" one, may change for this reason alone."
    )
    evidence = after.get("evidence")
    if evidence is None or evidence["releases"] == 1 or "estimation" not in before:  # no evidence was pooled
        return said
    parts = {(one["rule"], one["u"]): one["saved"] / evidence["releases"] / 10_000 for one in evidence["rules"]}
    chosen = (before["estimation"], after["estimation"])
    old, new = (f"{parts.get((rule['rule'], rule['u']), 0.0):.1f} %" for rule in chosen)
    return (
        f"{said} By the evidence of {evidence['releases']} releases of the series, the former saves {old} of the error"
        f" of least squares, and the latter {new}."
    )


def _rule(certificate: Mapping[str, Any]) -> str:
    """Return the rule by which a release was estimated, in words: the one that was chosen, or else declared."""
    options = certificate["mechanism"]["options"]
    rule, u = declared(options), options.get("u")
    if "estimation" in certificate:
        rule, u = ESTIMATORS[certificate["estimation"]["rule"]], certificate["estimation"]["u"]
    return rule.name if u is None else f"{rule.name} with u = {u}"
