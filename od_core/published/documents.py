"""Make documents on a published release from its bundle: those of its disclosure, and its data contract.

The same bundle gives the same bytes, whichever version of the software wrote it. The words of the disclosure are in
``publication/templates/disclosure``; what they state is collected here. The data contract is for data catalogues, and
follows the Open Data Contract Standard (ODCS), version 3.1.0.

References:
    PROV-DM, W3C Recommendation of 30 April 2013; the PROV-JSON serialization, W3C Member Submission of 24 April 2013.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path, PurePath
from statistics import NormalDist
from typing import Any
from urllib.parse import quote

import yaml

from od_core.errors import OdError
from od_core.files.durable import compute_file_digest, write_if_changed
from od_core.ledger.release_key import ReleaseKey
from od_core.meaning.subject import Subject
from od_core.periods import Period
from od_core.privacy.accounting import format_promise
from od_core.privacy.budget import Cap
from od_core.privacy.domain import bound_periods_per_year, bound_rho_of_year, is_of_uncounted
from od_core.privacy.posterior import Guarantee
from od_core.privacy.stability import compute_laplace_reach
from od_core.publication.bundle_files import CERTIFICATE, CHECKSUMS, PACKAGE, read_checksums
from od_core.publication.certificate import (
    Certificate,
    StatedSource,
    is_derived,
    read_guarantee_for_one_unit,
    read_subject,
)
from od_core.publication.certify import TRIPS_OF_A_PERSON
from od_core.publication.kind import BundleKind
from od_core.publication.read_back import (
    REPAIR,
    make_damaged_bundle_error,
    make_incomplete_bundle_error,
    name_bundle,
    read_bundle_certificate,
    refuse_incomplete,
)
from od_core.publication.templates import format_sentence, render_clauses, render_data, render_template
from od_core.published.opening import find_bundle_kind, open_bundle_folder
from od_core.stops.plan import BOX_NOISE_NAMES

TO_COMPLETE = "To be completed by the organisation"
"""Text of a field that only the organisation which publishes a release can fill in."""

_NORMAL_QUANTILE_95 = NormalDist().inv_cdf(0.95)
"""Standard deviations that the absolute value of a normal variable exceeds 1 time in 10."""


@dataclass(frozen=True, eq=False)
class Facts:
    """The public facts on one published release.

    Attributes:
        key, certificate: key and certificate of the release.
        files: name, description, SHA-256 and more of each file, as the data package states them.
        losses: what is promised for one privacy unit: by everything that may be published about it first, and by this
            release last; see :func:`compute_losses`.
    """

    key: ReleaseKey
    certificate: Certificate
    files: tuple[dict[str, object], ...]
    losses: tuple[Loss, ...]

    @classmethod
    def from_bundle(cls, folder: Path) -> Facts:
        """Return the facts on the release in a bundle's folder.

        Raises OdError if the certificate or the data package is missing, cannot be read, does not match its checksum,
        or lacks a fact; or the certificate is of an unknown kind.
        """
        certificate = read_bundle_certificate(folder)
        key = ReleaseKey.parse(certificate["release"])
        digests = read_checksums(folder)
        for name in (CERTIFICATE, PACKAGE):
            if not (folder / name).is_file() or compute_file_digest(folder / name) != digests.get(name):
                raise make_damaged_bundle_error(key, f"{name} is missing or does not match {CHECKSUMS}")
        find_bundle_kind(certificate)  # refuses an unknown kind
        try:
            with refuse_incomplete(name_bundle(folder)):
                package = json.loads((folder / PACKAGE).read_text(encoding="utf-8"))
                return cls(key, certificate, tuple(package["resources"]), compute_losses(certificate))
        except (ValueError, TypeError, ZeroDivisionError):
            raise OdError(
                "OD-BUNDLE-CHANGED", f"the certificate of {key} states numbers that are none", next_step=REPAIR
            ) from None

    @property
    def guarantee(self) -> Guarantee:
        """Promise of this release alone for one privacy unit."""
        return self.losses[-1].guarantee

    @property
    def whole(self) -> Guarantee:
        """Joint promise of all that may be published about one privacy unit; of this release, if no cap is stated."""
        return self.losses[0].guarantee

    @property
    def is_derived(self) -> bool:
        """True if the release follows from other releases, and nothing was measured for it."""
        return is_derived(self.certificate)

    @cached_property
    def subject(self) -> Subject:
        """What the release is about."""
        return read_subject(self.certificate)

    @property
    def kind(self) -> BundleKind[Any]:
        """The kind of the bundle, which knows its files and how derived flows follow from others."""
        return find_bundle_kind(self.certificate)

    @property
    def sources(self) -> list[StatedSource]:
        """The releases that a derived release follows from, as its certificate states them; else an empty list."""
        return self.certificate.get("sources", [])

    @property
    def plan(self) -> Mapping[str, Any]:
        """The plan; empty for a derived release."""
        return self.certificate.get("plan", {})

    @property
    def units(self) -> int | None:
        """Published number of privacy units, which may have noise; None if it is not published, as for users."""
        trips = self.certificate["contents"].get("trips")
        return int(trips) if self.subject.counts_all and trips is not None else None

    @property
    def rho_of_whole(self) -> Fraction | None:
        """Rho of :attr:`whole`; None unless the epsilon of :attr:`whole` is converted from rho.

        So it is None under a cap in epsilon, whose rho does not bound all that it allows (:meth:`Guarantee.from_cap`).
        It is None, too, for a derived release whose certificate states no cap.
        """
        is_stated = not self.is_derived or "account" in self.certificate
        return self.whole.rho if is_stated and self.whole.is_converted else None

    @property
    def has_threshold(self) -> bool:
        """True if only pairs with trips are measured, and pairs with a noisy count below a threshold are dropped."""
        return any("threshold" in step for step in self.plan.get("steps", []))

    @property
    def reach(self) -> int | None:
        """Number that the absolute noise of a number of the most detailed level exceeds at most 1 time in 10.

        It is rounded up. None for a derived release, for which nothing was measured, and for boxes whose noise depends
        on what is drawn first.
        """
        if self.is_derived:
            return None
        facts_of_other_steps = {"breakdown", "area_totals"}
        level_steps = [step for step in self.plan["steps"] if not step.keys() & facts_of_other_steps]
        most_detailed = next(step for step in reversed(level_steps) if not is_of_uncounted(step))
        if "variance" in most_detailed:
            return math.ceil(_NORMAL_QUANTILE_95 * math.sqrt(Fraction(most_detailed["variance"])))
        for name in ("scale", *(f"scale_of_{name}" for name in BOX_NOISE_NAMES)):
            if most_detailed.get(name):
                return compute_laplace_reach(Fraction(most_detailed[name]))
        return None

    @property
    def person(self) -> Guarantee | None:
        """Guarantee for a person with ``TRIPS_OF_A_PERSON`` privacy units; None if nothing is promised."""
        return self.guarantee.scale_to_units(TRIPS_OF_A_PERSON)

    @cached_property
    def said(self) -> dict[str, Any]:
        """Sentences that several documents have in common, by name."""
        values = {"facts": self, "certificate": self.certificate, "trips_of_a_person": TRIPS_OF_A_PERSON}
        values["clauses"] = render_clauses(self.subject)
        return dict(render_data("disclosure/sentences.yaml", **values))

    def sentence(self, name: str) -> str:
        """Return the sentence of the certificate's guarantee with this name, or "" if there is none.

        It begins with a capital letter and ends with a full stop.
        """
        return format_sentence(str(self.certificate["guarantee"].get(name, "")))


@dataclass(frozen=True)
class Loss:
    """What some releases together promise for one privacy unit.

    Attributes:
        of: words that name the releases, as the subject of a sentence.
        guarantee: their joint promise.
    """

    of: str
    guarantee: Guarantee

    @property
    def promise(self) -> str:
        """The promise, such as ``epsilon 1 at delta 1e-8``, rounded up."""
        return format_promise(float(self.guarantee.epsilon), float(self.guarantee.delta))


def compute_losses(certificate: Certificate) -> tuple[Loss, ...]:
    """Return the promises for a privacy unit: of everything that the cap allows, of a year, and of the release alone.

    The first is left out if the certificate states no cap, and the second unless the unit is of a year and the release
    is measured. The cap holds for all releases of the data set: of all periods under unit ``user``, and otherwise of
    the period or the year.
    """
    guarantee, subject = read_guarantee_for_one_unit(certificate), read_subject(certificate)
    account = certificate.get("account")
    stated_periods = account.get("periods_of_year") if account else None
    periods = stated_periods or bound_periods_per_year(Period(certificate["period"]))
    words = render_data("disclosure/losses.yaml", certificate=certificate, periods=periods)
    losses = []
    if account is not None:
        losses.append(Loss(words["cap"], Guarantee.from_cap(Cap.from_facts(account["cap"]), guarantee)))
    if subject.is_of_year and "plan" in certificate:
        spent, plan = certificate["spent"], certificate["plan"]
        charged = [*zip(plan["steps"], map(Fraction, spent["rho_by_level_exact"]), strict=True)]
        max_trips, max_trips_year = certificate["contribution_bound"], plan["max_trips_year"]
        rho = bound_rho_of_year([charged] * periods, max_trips, max_trips_year, plan.get("max_trips_pair"))
        losses.append(Loss(words["year"], Guarantee.from_rho(rho, guarantee.delta)))
    return (*losses, Loss(words["release"], guarantee))


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
        key: key of the release.
        folder: folder of the documents.
        changed: names of the files that were written. All others were there already with the same content.
    """

    key: ReleaseKey
    folder: Path
    changed: tuple[str, ...]

    def facts(self) -> Mapping[str, object]:
        """Return the key, the folder and the files as a JSON-ready dictionary."""
        facts = {"release": str(self.key), "folder": str(self.folder), "files": DESCRIPTIONS}
        return facts | {"changed": [*self.changed]}


def disclosure_documents(bundle: str | Path) -> tuple[ReleaseKey, dict[str, str]]:
    """Return the key of a published release, and the text of each of its disclosure documents by file name.

    Of its bundle, which is a folder or a .zip file, only the certificate and the data package are read.

    Raises:
        OdError: the bundle does not exist, or its certificate or data package is damaged or incomplete.

    Examples:
        >>> key, documents = disclosure_documents(bundle)
        >>> sorted(documents)[:3]
        ['impact-assessment.md', 'nist-sp-800-226.html', 'nist-sp-800-226.json']
    """
    with open_bundle_folder(Path(bundle)) as folder:
        facts = Facts.from_bundle(folder)
    with refuse_incomplete(folder.name):
        values = {
            "facts": facts,
            "certificate": facts.certificate,
            "said": facts.said,
            "to_complete": TO_COMPLETE,
            "trips_of_a_person": TRIPS_OF_A_PERSON,
        }
        checklist = render_data("disclosure/nist-sp-800-226.yaml", **values)
        answers = Counter(item["answer"] for layer in checklist["layers"] for item in layer["items"])
        entry = render_data("disclosure/registry-entry.yaml", **values)
        return facts.key, {
            REGISTRY: yaml.dump(entry, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100),
            CHECKLIST: _format_json(render_data("disclosure/nist-sp-800-226.json", **values, checklist=checklist)),
            CHECKLIST_PAGE: render_template(
                "disclosure/nist-sp-800-226.html", **values, checklist=checklist, answers=answers
            ),
            NOTICE: render_template("disclosure/notice.html", **values),
            ASSESSMENT: render_template(
                "disclosure/impact-assessment.md", **values, beliefs=_format_posterior_ranges(facts)
            ),
            PROVENANCE: _format_json(make_provenance(facts)),
        }


def make_provenance(facts: Facts) -> dict[str, object]:
    """Return the provenance of a release as a PROV-JSON document, JSON-ready."""

    def make_identifier(kind: str, name: str) -> str:
        """Return an identifier, in which unusual characters are escaped as in addresses."""
        return f"od:{kind}/{quote(name, safe='/')}"

    values = {"facts": facts, "certificate": facts.certificate, "to_complete": TO_COMPLETE, "id": make_identifier}
    document: dict[str, object] = render_data("disclosure/provenance.json", **values)
    for kind, listed in document.items():
        if isinstance(listed, list):  # relations, which have no names of their own and are numbered
            numbered = {}
            for number, relation in enumerate(listed, start=1):
                numbered[f"_:{kind}{number}"] = {f"prov:{end}": identifier for end, identifier in relation.items()}
            document[kind] = numbered
    return document


def _format_json(document: dict[str, object]) -> str:
    """Return a document as the text of a JSON file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, as the registry asks."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Return the YAML of a text: as a block if it has several lines."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def _format_posterior_ranges(facts: Facts) -> list[list[str]]:
    """Return a row of texts for each prior: the prior, and the range of its posterior by each of the losses.

    Losses without odds are left out, because they do not bound beliefs.
    """
    guarantees = [loss.guarantee for loss in facts.losses if loss.guarantee.odds is not None]
    rows = []
    for prior in PRIORS:
        row = [_format_percent(prior)]
        for guarantee in guarantees:
            least, largest = guarantee.bound_posterior(prior)
            row.append(f"{_format_percent(least, up=False)} to {_format_percent(largest)}")
        rows.append(row)
    return rows


def _format_percent(value: Fraction, *, up: bool = True) -> str:
    """Return a probability in percent with at most one decimal place, rounded up; with ``up`` False, rounded down."""
    tenths = math.ceil(1000 * value) if up else math.floor(1000 * value)
    return f"{tenths / 10:g} %"


def write_disclosure(bundle: str | Path, folder: Path, *, within: bool = False) -> Disclosure:
    """Write the disclosure documents of a published release to a folder, and return which of them were written.

    With ``within``, they are written to a subfolder that is named as the release. A file with the same content is left
    alone. Every other file of these names is replaced, also a document that the organisation has completed, so complete
    copies.

    Raises OdError as :func:`disclosure_documents` does, or if the folder is a file or a bundle, or is inside of one.
    """
    key, documents = disclosure_documents(bundle)
    target = folder / key.folder if within else folder
    _refuse_unsuitable(target)
    changed = [name for name, text in documents.items() if write_if_changed(target / name, text.encode())]
    return Disclosure(key, target, tuple(changed))


def _refuse_unsuitable(folder: Path) -> None:
    """Raise OdError if documents cannot be written to a folder: it is a bundle or a file, or lies in one."""
    path = folder.resolve()
    faults = {
        f"{folder} is the folder of a bundle, or lies in one": lambda place: (place / CHECKSUMS).is_file(),
        f"{folder} is a file, or lies below one": Path.is_file,
    }
    for fault, is_unsuitable in faults.items():
        if any(is_unsuitable(place) for place in (path, *path.parents)):
            raise OdError("OD-DISCLOSURE-FOLDER", fault, next_step="name another folder for the documents")


ODCS_VERSION = "v3.1.0"
"""Version of the standard that contracts follow."""


def data_contract(bundle: str | Path) -> dict[str, object]:
    """Return the data contract of a bundle, which is a folder or a .zip file, as a JSON-ready dictionary.

    Raises:
        OdError: the bundle does not exist, or its certificate or data package cannot be read.

    Examples:
        >>> data_contract(bundle)["kind"]
        'DataContract'
    """
    with open_bundle_folder(Path(bundle)) as folder:
        certificate = read_bundle_certificate(folder)
        try:
            package: dict[str, Any] = json.loads((folder / PACKAGE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise make_incomplete_bundle_error(folder, f"it lacks a {PACKAGE} that can be read") from None
        with refuse_incomplete(name_bundle(folder)):
            tables: dict[str, dict[str, Any]] = {}
            for resource in package["resources"]:
                if "schema" in resource:  # of a table in several files, the first one is the CSV file
                    tables.setdefault(PurePath(resource["path"]).stem, resource)
            format_of_pattern = {}  # a pattern stands for the names of files, such as "{model}.csv"
            for resource in tables.values():
                path = PurePath(resource["path"])
                format_of_pattern[str(path.with_stem("{model}"))] = path.suffix.removeprefix(".")
            values = {"certificate": certificate, "package": package, "tables": tables, "patterns": format_of_pattern}
            contract: dict[str, object] = render_data("contract.json", version=ODCS_VERSION, **values)
            return contract
