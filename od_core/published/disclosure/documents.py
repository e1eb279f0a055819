"""Make and write the disclosure documents of a published release. The same bundle gives the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from od_core.errors import OdError
from od_core.files.durable import write_if_other
from od_core.ledger.release_key import ReleaseKey
from od_core.publication.codebook import CHECKSUMS
from od_core.publication.read_back import refuse_incomplete
from od_core.published.disclosure.facts import Facts
from od_core.published.disclosure.impact_assessment import impact_assessment
from od_core.published.disclosure.nist_checklist import checklist, checklist_json, checklist_page
from od_core.published.disclosure.notice import notice
from od_core.published.disclosure.provenance import provenance_json
from od_core.published.disclosure.registry_entry import registry_yaml
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


@dataclass(frozen=True)
class Disclosure:
    """The written disclosure documents of a release.

    Attributes:
        key: the release.
        folder: their folder.
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
            items = checklist(facts)
            return facts.key, {
                REGISTRY: registry_yaml(facts),
                CHECKLIST: checklist_json(facts, items),
                CHECKLIST_PAGE: checklist_page(facts, items),
                NOTICE: notice(facts),
                ASSESSMENT: impact_assessment(facts),
                PROVENANCE: provenance_json(facts),
            }


def write_disclosure(bundle: str | Path, folder: Path, *, within: bool = False) -> Disclosure:
    """Write the disclosure documents of a published release to a folder.

    Files that are there already with the same content are left alone. Documents that the organisation has completed
    are replaced, so complete copies of them.

    Args:
        bundle: as in :func:`disclosure_documents`.
        folder: the folder.
        within: True for a folder of the release below ``folder``, such as ``us_flights/2001-06/r1``.

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
    if any((place / CHECKSUMS).is_file() for place in (whole, *whole.parents)):
        raise OdError(
            "OD-DISCLOSURE-FOLDER",
            f"{folder} is the folder of a bundle, or lies in one",
            next_step="name another folder for the documents",
        )
    if any(place.is_file() for place in (whole, *whole.parents)):
        raise OdError(
            "OD-DISCLOSURE-FOLDER",
            f"{folder} is a file, or lies below one",
            next_step="name a folder for the documents",
        )
