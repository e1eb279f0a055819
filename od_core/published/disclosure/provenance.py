"""Write where a release comes from in the model of W3C PROV, as PROV-JSON.

Records and true counts are entities without content: they are named by the public data set and period, and no value
or fingerprint of them is stated.

References:
    PROV-DM, W3C Recommendation of 30 April 2013; the PROV-JSON serialization, W3C Member Submission of 24 April 2013.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from od_core.published.disclosure.facts import TO_COMPLETE, Facts

_NAMESPACE = "urn:od-release:"


class _Document:
    """A PROV document under construction: its records by kind, each with an identifier."""

    def __init__(self) -> None:
        self.parts: dict[str, dict[str, dict[str, Any]]] = {}

    def add(self, kind: str, name: str, **attributes: Any) -> str:
        """Add an entity, an activity or an agent, and return its identifier."""
        identifier = f"od:{name}"
        stated = {key.replace("__", ":"): value for key, value in attributes.items() if value is not None}
        self.parts.setdefault(kind, {})[identifier] = stated
        return identifier

    def relate(self, kind: str, **ends: str) -> None:
        """Add a relation between identifiers, such as ``wasGeneratedBy(entity=..., activity=...)``."""
        relations = self.parts.setdefault(kind, {})
        relations[f"_:{kind}{len(relations) + 1}"] = {f"prov:{end}": name for end, name in ends.items()}


def provenance(facts: Facts) -> dict[str, Any]:
    """Return the provenance of a release as a dictionary that is ready for PROV-JSON."""
    document, key = _Document(), str(facts.key)
    organisation = document.add(
        "agent", "organisation", prov__type=_typed("prov:Organization"), prov__label=TO_COMPLETE
    )
    software = document.add(
        "agent", "software", prov__type=_typed("prov:SoftwareAgent"), prov__label=facts.said["software"]
    )
    document.relate("actedOnBehalfOf", delegate=software, responsible=organisation)
    bundle = document.add(
        "entity",
        _name("bundle", key),
        prov__type=_typed("prov:Collection"),
        prov__label=f"published bundle of {key}",
        od__certificate_sha256=facts.digest,
        od__promise=facts.said["promise"],
    )
    publish = _activity(document, facts, "publish", key, software)
    document.relate("wasGeneratedBy", entity=bundle, activity=publish)
    document.relate("wasAttributedTo", entity=bundle, agent=organisation)
    for file in facts.files:
        member = document.add(
            "entity",
            _name("file", f"{key}/{file['path']}"),
            prov__label=file["path"],
            od__sha256=file["hash"].removeprefix("sha256:"),
        )
        document.relate("hadMember", collection=bundle, entity=member)
    estimates = document.add("entity", _name("estimates", key), prov__label=f"estimates of {key}, which contain noise")
    document.relate("used", activity=publish, entity=estimates)
    document.relate("wasDerivedFrom", generatedEntity=bundle, usedEntity=estimates)
    if facts.is_derived:
        _from_releases(document, facts, estimates, software)
    else:
        _from_records(document, facts, estimates, software)
    prefixes = {"od": _NAMESPACE, "prov": "http://www.w3.org/ns/prov#", "xsd": "http://www.w3.org/2001/XMLSchema#"}
    return {"prefix": prefixes, **document.parts}


def provenance_json(facts: Facts) -> str:
    """Return the provenance of a release as PROV-JSON text."""
    return json.dumps(provenance(facts), indent=2, ensure_ascii=False) + "\n"


def _from_releases(document: _Document, facts: Facts, estimates: str, software: str) -> None:
    """Add the published releases that a derived release follows from."""
    derive = _activity(document, facts, "derive", str(facts.key), software)
    document.relate("wasGeneratedBy", entity=estimates, activity=derive)
    for source in facts.sources:
        name = document.add(
            "entity",
            _name("bundle", source["release"]),
            prov__type=_typed("prov:Collection"),
            prov__label=f"published bundle of {source['release']}",
            od__certificate_sha256=source["certificate"],
            od__epsilon=source["epsilon"],
            od__delta=source["delta"],
            od__rho=source["rho_exact"],
        )
        document.relate("used", activity=derive, entity=name)
        document.relate("wasDerivedFrom", generatedEntity=estimates, usedEntity=name)


def _from_records(document: _Document, facts: Facts, estimates: str, software: str) -> None:
    """Add the records, their counts, the plan, the measurements and the ledger entry of a measured release."""
    key, certificate = str(facts.key), facts.certificate
    records = document.add(
        "entity",
        _name("records", f"{certificate['data_set']}/{facts.key.period}"),
        prov__label=f"records of data set {certificate['data_set']}, period {facts.key.period}",
        od__confidential=True,
    )
    counts = document.add("entity", _name("counts", key), prov__label=f"true counts of {key}", od__confidential=True)
    plan = document.add(
        "entity",
        _name("plan", key),
        prov__type=_typed("prov:Plan"),
        prov__label=f"plan of {key}, fixed before a record was read",
        od__sha256=certificate["plan_digest"],
    )
    count = _activity(document, facts, "count", key, software)
    document.relate("used", activity=count, entity=records)
    document.relate("wasGeneratedBy", entity=counts, activity=count)
    document.relate("wasDerivedFrom", generatedEntity=counts, usedEntity=records)
    for side, digest in certificate.get("geographies", {}).items():
        name = document.add(
            "entity", _name("geography", digest), prov__label=f"public geography of {side}", od__sha256=digest
        )
        document.relate("used", activity=count, entity=name)
    measure = _activity(document, facts, "measure", key, software, end=certificate["measured_at"], plan=plan)
    document.relate("used", activity=measure, entity=counts)
    entry = document.add(
        "entity",
        _name("ledger-entry", str(certificate["ledger"]["entry"])),
        prov__label="entry of the budget ledger for the last measurement",
        od__number=certificate["ledger"]["entry"],
        od__sha256=certificate["ledger"]["hash"],
        od__rho=certificate["spent"]["rho_exact"],
        od__lost_draws=certificate["spent"]["lost_draws"],
    )
    document.relate("wasGeneratedBy", entity=entry, activity=measure)
    estimate = _activity(document, facts, "estimate", key, software)
    for number, step in enumerate(facts.plan["steps"], 1):
        noisy = document.add(
            "entity",
            _name("measurement", f"{key}/{number}"),
            prov__label=f"noisy measurement {number}",
            **{f"od__{name}": value for name, value in step.items()},
        )
        document.relate("wasGeneratedBy", entity=noisy, activity=measure)
        document.relate("wasDerivedFrom", generatedEntity=noisy, usedEntity=counts)
        document.relate("used", activity=estimate, entity=noisy)
        document.relate("wasDerivedFrom", generatedEntity=estimates, usedEntity=noisy)
    document.relate("wasGeneratedBy", entity=estimates, activity=estimate)


def _activity(
    document: _Document,
    facts: Facts,
    verb: str,
    key: str,
    software: str,
    *,
    end: str | None = None,
    plan: str | None = None,
) -> str:
    """Add an activity of the software and return its identifier."""
    name = document.add("activity", _name(verb, key), prov__label=f"{verb} {facts.key}", prov__endTime=end)
    followed = {} if plan is None else {"plan": plan}
    document.relate("wasAssociatedWith", activity=name, agent=software, **followed)
    return name


def _name(kind: str, of: str) -> str:
    """Return the local part of an identifier, in which unusual characters are escaped as in addresses."""
    return f"{kind}/{quote(of, safe='/')}"


def _typed(name: str) -> dict[str, str]:
    return {"$": name, "type": "prov:QUALIFIED_NAME"}
