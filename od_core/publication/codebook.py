"""Describe the files of a bundle: codebook, data package and citation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from od_core.files.durable import Written
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import promise_text
from od_core.publication.certificate import Certificate, certificate_digest
from od_core.publication.guarantee import promise
from od_core.publication.markup import in_markdown
from od_core.publication.tables import BundleFile
from od_core.publication.templates import filled, filled_data

CHECKSUMS = "SHA256SUMS"
"""Name of the file with the digest of every other file of a bundle."""


def citation(certificate: Certificate) -> str:
    """Return the text with which to cite a release, or flows that are derived from releases.

    It names the period and the revision, because another revision has different noise and different numbers, and the
    certificate, of which there is only one.
    """
    key = ReleaseKey.parse(certificate["release"])
    return (
        f"{key.release}, period {key.period}, revision {key.revision}. {_made(certificate)}, measured"
        f" {certificate['measured_at'][:10]}. Certificate {certificate_digest(certificate)[:16]}."
    )


def _made(certificate: Certificate) -> str:
    if sources := certificate.get("sources"):
        first, last = sources[0]["release"], sources[-1]["release"]
        span = first if first == last else f"{first} to {last}"
        return f"Derived from {len(sources)} release{'s' * (len(sources) > 1)} with differential privacy ({span})"
    promise = promise_text(certificate["spent"]["epsilon"], certificate["spent"]["delta"])
    return f"Released with differential privacy ({promise}; mechanism {certificate['mechanism']['name']})"


def codebook(contents: str, certificate: Certificate, files: Sequence[BundleFile], notes: Sequence[str]) -> str:
    """Return the text of ``codebook.md``: the meaning of every file and column, as Markdown.

    Args:
        contents: content of the release in words, such as ``flows``.
        certificate: certificate of the release.
        files: all files of the bundle.
        notes: further paragraphs, as Markdown.
    """
    tables = {file.table.name: file.table for file in files if file.table is not None}
    named = [(table, [file.name for file in files if file.table is table]) for table in tables.values()]
    given = {"contents": contents, "certificate": certificate, "files": files, "tables": named, "notes": notes}
    return filled("codebook.md", **given)


def readme(contents: str, certificate: Certificate, files: Sequence[BundleFile]) -> str:
    """Return the plain text of ``README.txt``, an overview of the files; the arguments are as in :func:`codebook`."""
    names = [file.name for file in files]
    return filled(
        "README.txt",
        contents=contents,
        certificate=certificate,
        names=names,
        first=next(name for name in names if name.endswith(".csv")),
        promise=promise(certificate["guarantee"]),
        citation=citation(certificate),
        checksums=CHECKSUMS,
    )


def datapackage(
    contents: str, certificate: Certificate, files: Sequence[BundleFile], written: Mapping[str, Written]
) -> dict[str, Any]:
    """Return the Data Package descriptor of a bundle; ``written`` has the size and digest of each file, by name."""
    given = {"contents": contents, "certificate": certificate, "files": files, "written": written}
    package: dict[str, Any] = filled_data(
        "datapackage.json", **given, promise=promise(certificate["guarantee"]), in_markdown=in_markdown
    )
    return package
