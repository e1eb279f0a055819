"""Make and write the disclosure documents of a published release. The same bundle gives the same bytes.

They are templates in ``publication/templates/disclosure``.

References:
    PROV-DM, W3C Recommendation of 30 April 2013; the PROV-JSON serialization, W3C Member Submission of 24 April 2013.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from od_core.errors import OdError
from od_core.files.durable import write_if_other
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.bundle import CHECKSUMS
from od_core.publication.certificate import certificate_digest
from od_core.publication.guarantee import TRIPS_OF_A_PERSON
from od_core.publication.read_back import refuse_incomplete
from od_core.publication.templates import filled, filled_data
from od_core.published.disclosure.facts import TO_COMPLETE, Facts
from od_core.published.opening import bundle_folder

REGISTRY, CHECKLIST, CHECKLIST_PAGE = "registry-entry.yaml", "nist-sp-800-226.json", "nist-sp-800-226.html"
NOTICE, ASSESSMENT, PROVENANCE = "notice.html", "impact-assessment.md", "provenance.json"
"""Names of the files."""

DESCRIPTIONS = {
    REGISTRY: "entry for the registry of differential privacy deployments",
    CHECKLIST: "evaluation by NIST SP 800-226, for programs",
    CHECKLIST_PAGE: "evaluation by NIST SP 800-226, for people",
    NOTICE: "notice for the people in the data",
    ASSESSMENT: "record for a data protection impact assessment",
    PROVENANCE: "provenance in the model of W3C PROV",
}
"""What each file is."""

PRIORS = (Fraction(1, 100), Fraction(1, 10), Fraction(1, 2), Fraction(9, 10))
"""Beliefs of an attacker before the release for which the impact assessment states the residual risk."""


@dataclass(frozen=True)
class Disclosure:
    """The written disclosure documents of a release.

    Attributes:
        changed: names of the files that were written. All others were there already.
    """

    key: ReleaseKey
    folder: Path
    changed: tuple[str, ...]

    def facts(self) -> dict[str, Any]:
        """Return what was written, ready for JSON."""
        return {
            "release": str(self.key),
            "folder": str(self.folder),
            "files": DESCRIPTIONS,
            "changed": list(self.changed),
        }


def disclosure_documents(bundle: str | Path) -> tuple[ReleaseKey, dict[str, str]]:
    """Return the key of a published release, and the text of each of its disclosure documents by file name.

    Args:
        bundle: its folder or .zip file. Only its certificate and its data package are read.

    Raises:
        OdError: the bundle does not exist, or its certificate or data package is damaged or incomplete.
    """
    with bundle_folder(Path(bundle)) as folder:
        facts = Facts.of(folder)
        with refuse_incomplete(folder.name):
            return facts.key, _documents(facts)


def _documents(facts: Facts) -> dict[str, str]:
    given = {
        "facts": facts,
        "certificate": facts.certificate,
        "said": facts.said,
        "to_complete": TO_COMPLETE,
        "trips_of_a_person": TRIPS_OF_A_PERSON,
    }
    checklist = filled_data("disclosure/nist-sp-800-226.yaml", **given)
    answers = Counter(item["answer"] for layer in checklist["layers"] for item in layer["items"])
    return {
        REGISTRY: _yaml(filled_data("disclosure/registry-entry.yaml", **given)),
        CHECKLIST: checklist_json(facts, checklist),
        CHECKLIST_PAGE: filled("disclosure/nist-sp-800-226.html", **given, checklist=checklist, answers=answers),
        NOTICE: filled("disclosure/notice.html", **given),
        ASSESSMENT: filled("disclosure/impact-assessment.md", **given, beliefs=_beliefs(facts)),
        PROVENANCE: _json(provenance(facts)),
    }


def provenance(facts: Facts) -> dict[str, Any]:
    """Return where a release comes from as a dictionary that is ready for PROV-JSON."""

    def identifier(kind: str, name: str) -> str:
        """Return an identifier, in which unusual characters are escaped as in addresses."""
        return f"od:{kind}/{quote(name, safe='/')}"

    given = {"facts": facts, "certificate": facts.certificate, "to_complete": TO_COMPLETE, "id": identifier}
    stated: dict[str, Any] = filled_data("disclosure/provenance.json", **given)
    for kind, relations in stated.items():
        if isinstance(relations, list):  # they have identifiers
            numbered = {f"_:{kind}{number}": one for number, one in enumerate(relations, start=1)}
            stated[kind] = {name: {f"prov:{end}": of for end, of in one.items()} for name, one in numbered.items()}
    return stated


def checklist_json(facts: Facts, checklist: dict[str, Any]) -> str:
    """Return the checklist as JSON text, which meets ``nist_checklist.schema.json``."""
    stated = {
        "publication": checklist["publication"],
        "doi": "10.6028/NIST.SP.800-226",
        "release": str(facts.key),
        "certificate": certificate_digest(facts.certificate),
        "items": [
            {
                "id": item["id"],
                "layer": layer["layer"],
                **item,
                "evidence": [f"certificate.json#{pointer}" for pointer in item["evidence"].split()],
                "documentation": [f"docs/{place}" for place in item["documentation"].split()],
            }
            for layer in checklist["layers"]
            for item in layer["items"]
        ],
    }
    return _json(stated)


def _json(stated: dict[str, Any]) -> str:
    return json.dumps(stated, indent=2, ensure_ascii=False) + "\n"


def _yaml(entry: dict[str, Any]) -> str:
    """Return YAML text in which texts of several lines are blocks, as the registry asks."""
    return yaml.dump(entry, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _beliefs(facts: Facts) -> list[list[str]]:
    """Return each prior with its least and largest posterior by each of the losses that bounds beliefs, as text."""
    bounded = [one.guarantee for one in facts.losses if one.guarantee.odds is not None]
    rows = []
    for prior in PRIORS:
        ranges = [guarantee.posterior(prior) for guarantee in bounded]
        moved = [f"{_percent(low, up=False)} to {_percent(high)}" for low, high in ranges]
        rows.append([_percent(prior), *moved])
    return rows


def _percent(value: Fraction, *, up: bool = True) -> str:
    """Return a probability in percent with one decimal place, rounded up, or down."""
    tenths = -((-1000 * value.numerator) // value.denominator) if up else 1000 * value.numerator // value.denominator
    return f"{tenths / 10:g} %"


def write_disclosure(bundle: str | Path, folder: Path, *, within: bool = False) -> Disclosure:
    """Write the disclosure documents of a published release to a folder; or ``within`` it, in one named as the release.

    Files that are there already with the same content are left alone. Documents that the organisation has completed
    are replaced, so complete copies of them.

    Raises:
        OdError: as in :func:`disclosure_documents`; or the folder is a file, or lies in a bundle, whose checksums do
            not list the documents.
    """
    key, documents = disclosure_documents(bundle)
    place = folder / key.folder if within else folder
    _refuse_unsuitable(place)
    changed = [name for name, text in documents.items() if write_if_other(place / name, text.encode())]
    return Disclosure(key, place, tuple(changed))


def _refuse_unsuitable(folder: Path) -> None:
    whole = folder.resolve()
    faults = {
        f"{folder} is the folder of a bundle, or lies in one": lambda place: (place / CHECKSUMS).is_file(),
        f"{folder} is a file, or lies below one": Path.is_file,
    }
    for fault, has_it in faults.items():
        if any(has_it(place) for place in (whole, *whole.parents)):
            raise OdError("OD-DISCLOSURE-FOLDER", fault, next_step="name another folder for the documents")
