"""Write the entry of a release for the public registry of differential privacy deployments.

The registry (https://registry.opendp.org) takes entries as YAML files that meet its schema. All technical fields follow
from the certificate. What only the organisation knows is marked, and ``data_curator_type`` has no value of the schema
until the organisation has chosen one, so an entry that is not completed is not valid.
"""

from __future__ import annotations

from typing import Any

import yaml

from od_core.privacy.accounting import float_above
from od_core.published.disclosure.facts import (
    TO_COMPLETE,
    Facts,
    loss_text,
    person_text,
    promise_text,
    software_text,
    sources_text,
    unit_text,
)

ORGANISATION = (
    "deployment.basic.data_curators.0.data_curator_name",
    "deployment.basic.data_curators.0.data_curator_type",
    "deployment.basic.intended_use",
    "deployment.basic.data_product_region",
    "deployment.implementation.justification",
    "deployment.administrative.registry_authors.0",
)
"""Fields of an entry that the organisation completes."""

_COMPOSITION = {
    "trip": "The ledger adds up the charges of all releases of a period.",
    "user": "The ledger adds up the charges of all releases of all periods.",
    "user_year": (
        "The ledger takes the largest sum that the releases of a year cost a user whose trips of the year are bounded."
    ),
}

_ACTORS = (
    "Curator: the organisation that publishes the release. It sees the records, and is trusted.",
    "Data subjects: the people whose trips are recorded. They trust the curator with their records.",
    "Data users: everyone. They see the published files alone, and need no trust.",
    "Adversaries: anyone who sees the published files, with any other knowledge, such as every other record.",
)


def registry_entry(facts: Facts) -> dict[str, Any]:
    """Return the entry of a release as a dictionary that is ready for YAML and JSON."""
    return {
        "url_slug": str(facts.key).replace("/", "-").replace("_", "-").lower(),
        "deployment": {
            "basic": _basic(facts),
            "dp_variant": {
                "variant_name": facts.variant,
                "data_domain": _domain(facts),
                "unprotected_quantities": (
                    f"{facts.sentence('public')} Not protected: {facts.sentence('not_protected')}"
                ),
            },
            "privacy_loss": _privacy_loss(facts),
            "deployment_model": _model(facts),
            "implementation": _implementation(facts),
            "administrative": {
                "evidence_sources": {
                    "certificate": {
                        "evidence_source_type": "Formal publication by the deploying organization",
                        "misc": {
                            "title": f"Certificate of {facts.key}",
                            "note": f"certificate.json in its bundle; SHA-256 of its fields: {facts.digest}",
                        },
                    }
                },
                "status": "Draft",
                "registry_authors": [TO_COMPLETE],
                "tier": 3,
            },
        },
    }


def registry_yaml(facts: Facts) -> str:
    """Return the entry of a release as YAML text; texts of several lines are blocks, as the registry asks."""
    return yaml.dump(registry_entry(facts), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _basic(facts: Facts) -> dict[str, Any]:
    of = f" ({facts.derivation} {sources_text(facts)})" if facts.is_derived else ""
    return {
        "name": f"{facts.key.release}, period {facts.key.period}, revision {facts.key.revision}",
        "data_curators": [{"data_curator_name": TO_COMPLETE, "data_curator_type": TO_COMPLETE}],
        "description": f"Tables of {facts.contents}{of} from data set {facts.certificate['data_set']}.",
        "intended_use": TO_COMPLETE,
        "data_product_type": "Summary statistics",
        "data_product_region": TO_COMPLETE,
        "publication_date": facts.certificate["measured_at"][:10],
    }


def _domain(facts: Facts) -> str:
    if facts.is_derived:
        return f"The published releases {sources_text(facts)}, and through them their records."
    return (
        f"All files of trip records of data set {facts.certificate['data_set']} in period {facts.key.period} that are"
        f" accepted. {facts.sentence('input')}"
    )


def _privacy_loss(facts: Facts) -> dict[str, Any]:
    guarantee, parameters = facts.whole, {"epsilon": float_above(facts.whole.epsilon)}
    if guarantee.delta:
        parameters["delta"] = float_above(guarantee.delta)
    if facts.rho is not None:
        parameters["rho"] = float_above(facts.rho)
    units = {}
    if facts.unit == "trip" and "trips" in facts.certificate["contents"] and "max_weight" not in facts.plan:
        units = {"number_of_privacy_units": int(facts.certificate["contents"]["trips"])}
    many = f" One record is one unit: {person_text(facts)}." if facts.unit == "trip" and not facts.is_derived else ""
    return {
        "privacy_unit": {
            "trip": "Event level (one trip)",
            "user": "User level",
            "user_period": "User and period",
            "user_year": "User and year",
        }[facts.unit],
        "privacy_unit_details": (
            f"The unit is {unit_text(facts)}. Neighbours are"
            f" {'bounded (one unit is replaced)' if facts.is_bounded else 'unbounded (one unit is added or removed)'}."
            f" {facts.sentence('protected')}{many}"
        ),
        **units,
        "privacy_parameters": parameters,
        "privacy_parameters_details": _parameters(facts, bool(units)),
    }


def _parameters(facts: Facts, has_units: bool) -> str:
    spent, whole = facts.certificate["spent"], loss_text(facts)
    if facts.is_derived:
        said = "The parameters are those of the releases that these numbers follow from; nothing was charged for them."
    elif facts.guarantee.rho is not None:
        said = (
            f"The promise of this release is {promise_text(facts)}. It is the least of the conversions of the same rho"
            f" {spent['rho_exact']}: exact {spent['epsilon_exact'] or 'not defined'}, tight {spent['epsilon_tight']},"
            f" Bun and Steinke {spent['epsilon_bun_steinke']}, all rounded up."
        )
    else:
        said = f"The promise of this release is {promise_text(facts)}, which the mechanism gives directly."
    exact = "exact" if facts.has_exact_numbers else "the released one, which contains noise"
    return f"{whole} {said}" + (f" The number of privacy units is {exact}." if has_units else "")


def _model(facts: Facts) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "trust_assumptions": " ".join(facts.certificate["known_limitations"]),
        "actors": "\n".join(f"- {actor}" for actor in _ACTORS),
        "release_type": "Many releases",
        "release_type_details": (
            f"This entry is for period {facts.key.period}. Every release is charged to data set"
            f" {facts.certificate['data_set']} in a ledger, whose cap limits what all releases of a period spend"
            f" together. {'Under this unit, the losses of all periods add up.' if facts.unit == 'user' else ''}"
        ).strip(),
        "data_source_type": "Dynamic",
        "access_type": "Non-interactive",
    }


def _implementation(facts: Facts) -> dict[str, Any]:
    if facts.is_derived:
        mechanisms = f"None: the numbers are {facts.derivation} {sources_text(facts)}, whose entries name theirs."
        composition = facts.sentence("protected")
    else:
        mechanism = facts.certificate["mechanism"]["name"]
        mechanisms = "\n".join(
            f"- {line}"
            for line in (
                f"Mechanism {mechanism} with {facts.noise_law} noise of backend {facts.certificate['noise']}, in"
                f" {len(facts.plan['steps'])} measured steps.",
                f"Software: {software_text(facts)}. The certificate states the versions of all libraries.",
                "Floating point: noise is drawn as exact integers, and the budget is added up as exact fractions.",
                "Timing: nobody queries the records, so there is no running time to observe for data users.",
                "Records and counts stay in a folder that only the operator can read, and are never published.",
            )
        )
        spent = facts.certificate["spent"]
        lost = (
            f" With draws that were lost with their process and charged once more ({spent['lost_draws']}), they add up"
            f" to {spent['rho_exact']}."
            if spent["lost_draws"]
            else ""
        )
        composition = (
            f"The charges of the {len(facts.plan['steps'])} steps add up to rho {spent['rho_planned_exact']}, as exact"
            f" fractions.{lost} {_COMPOSITION.get(facts.unit, _COMPOSITION['trip'])}"
        )
    bounded = f" {facts.sentence('contribution')}" if "contribution" in facts.certificate["guarantee"] else ""
    return {
        "preprocessing_and_hyperparameter_tuning": (
            f"{facts.sentence('input')}{bounded} All settings are declared before a record is read, and the plan that"
            " follows from them is published."
        ),
        "mechanisms": mechanisms,
        "composition": composition,
        "post_processing": (
            "Estimates are computed from the noisy measurements and public facts alone: non-negative whole numbers that"
            " are consistent over all levels. The measurements are published, too, so anyone can compute them again."
            if not facts.is_derived
            else "The numbers are computed from the published releases alone."
        ),
        "justification": TO_COMPLETE,
        "utility": _utility(facts),
    }


def _utility(facts: Facts) -> str:
    stated = "Every number has a 90 % interval." if facts.certificate.get("interval") else "Numbers have no intervals."
    if facts.reach is None:
        return stated
    return (
        f"The noise of one measured number of the most detailed level is at most {facts.reach}, 9 times in 10. {stated}"
    )
