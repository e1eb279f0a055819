"""Decide whether a published bundle differs from one that is made again, maybe by another version of the software.

Numbers must be the same; sentences may be worded differently by another version.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError
from od_core.files.durable import compute_file_digest
from od_core.publication.bundle_files import (
    CERTIFICATE,
    CHECKSUMS,
    PACKAGE,
    check_checksums,
    find_json_object,
    list_bundle_contents,
    read_checksums,
)
from od_core.publication.certificate import Certificate, compute_certificate_digest
from od_core.publication.file_formats import has_same_content, is_readable

_WORDED_ENDINGS = (".html", ".json", ".md", ".txt", ".xml", ".xlsx", ".gpkg", "lines.geojson")
"""Endings of the names of files with sentences, which another version of the software may word differently."""

_LAYOUT_FIELDS = ("bundle_format", "formats")
"""Fields of the certificate on which files the bundle has. Each version of the software states its own."""

_SENTENCE_FIELDS = ("about", "guarantee", "invariants", "known_limitations", "translations")
"""Fields of the certificate whose values are sentences."""


def list_differing_files(made: Path, public: Path) -> list[str]:
    """Return the sorted names of the files that differ between the bundle ``made`` now and the ``public`` one.

    If the two certificates name different versions of software, files with sentences (``_WORDED_ENDINGS``) are not
    compared, and only their public checksums are checked.
    """
    same_software = _read_software(made) == _read_software(public)
    made_files = list_bundle_contents(made)
    not_compared = {CERTIFICATE, CHECKSUMS}
    if not same_software:
        not_compared |= {name for name in made_files if name.endswith(_WORDED_ENDINGS)}
    compared = (made_files.keys() | list_bundle_contents(public).keys()) - not_compared
    differing = set()
    for name in compared:
        if not _are_same_files(made / name, public / name, same_software=same_software):
            differing.add(name)
    if not _are_same_certificates(made / CERTIFICATE, public / CERTIFICATE):
        differing.add(CERTIFICATE)
    faulty = {name for name, _ in check_checksums(public)}
    differing |= faulty & not_compared
    if faulty - differing:  # these files are as they were made again, so their public checksums are wrong
        differing.add(CHECKSUMS)
    return sorted(differing)


def _are_same_files(made: Path, public: Path, *, same_software: bool) -> bool:
    """Return whether two files have the same bytes or, if different software may have written them, the same content.

    ``same_software`` states whether the certificates of their bundles name the same software.
    """
    if not (made.is_file() and public.is_file()):
        return False
    if compute_file_digest(made) == compute_file_digest(public):
        return True
    may_have_other_writer = made.suffix in (".xlsx", ".gpkg")  # no certificate names the libraries that compress them
    may_have_other_writer |= made.suffix == ".omx" and not same_software
    with suppress(pa.ArrowException, OSError):  # a Parquet file that cannot be read is damaged
        if made.suffix == ".parquet":
            may_have_other_writer |= pq.read_metadata(made).created_by != pq.read_metadata(public).created_by
    return may_have_other_writer and has_same_content(made, public)


def _are_same_certificates(made: Path, public: Path) -> bool:
    """Return whether two certificates can be read and are equal, except for the software.

    If different versions of this library wrote them, the sentences may differ too, and ``made`` may have more fields.
    """
    new, old = find_json_object(made), find_json_object(public)
    if new is None or old is None:
        return False
    if new.get("software", {}).get("od-release") != old.get("software", {}).get("od-release"):
        return _have_same_facts(new, old)
    return bool(new | {"software": None} == old | {"software": None})


def _have_same_facts(made: dict[str, object], public: dict[str, object]) -> bool:
    """Return whether a certificate ``made`` has each field of the ``public`` one with its value; it may have more.

    The sentences, the software and the formats of the bundle are not compared.
    """
    not_compared = (*_SENTENCE_FIELDS, *_LAYOUT_FIELDS, "software")
    return all(made.get(name) == fact for name, fact in public.items() if name not in not_compared)


def _read_software(folder: Path) -> dict[str, object]:
    """Return the versions of the software that the certificate of a bundle names."""
    return (find_json_object(folder / CERTIFICATE) or {}).get("software") or {}


def reword_as_published(certificate: Certificate, folder: Path, published_digest: str | None) -> Certificate:
    """Return a certificate that was made again, with the sentences and formats of the published one.

    A later version of the software may word a certificate differently or add fields, and a series may be described
    differently. The result has the sentences and the formats of the certificate in the public ``folder``, and no fields
    that the public certificate lacks. If other fields differ, only the formats are taken from the public certificate,
    so that the same files are compared.

    If the certificate in the folder does not have the digest ``published_digest``, ``certificate`` is returned
    unchanged.
    """
    public = find_json_object(folder / CERTIFICATE)
    if public is None or compute_certificate_digest(public) != published_digest:
        return certificate
    result: dict[str, Any] = {
        name: fact for name, fact in certificate.items() if name not in _LAYOUT_FIELDS or name in public
    }
    result |= {name: public[name] for name in result.keys() & _LAYOUT_FIELDS}
    if _have_same_facts(result, public):
        result = {name: fact for name, fact in result.items() if name in public}
        for name in public.keys() & _SENTENCE_FIELDS:
            result[name] = _restore_order(public[name], result.get(name))
    return cast("Certificate", result)


def _restore_order(published: Any, worded_now: Any) -> Any:
    """Return published sentences, by name, in the order of ``worded_now``, the sentences of this version.

    JSON files have sorted names, so the published order is lost. Sentences without names are returned unchanged.
    """
    if not (isinstance(published, dict) and isinstance(worded_now, dict)):
        return published
    ordered = {name: _restore_order(published[name], now) for name, now in worded_now.items() if name in published}
    return ordered | {name: text for name, text in published.items() if name not in ordered}


def is_damaged_copy(made: Path, public: Path, differing: list[str], published_digest: str | None) -> bool:
    """Return whether a public bundle is a damaged copy of the one ``made`` again, so that it may be replaced by it.

    ``differing`` is the result of :func:`list_differing_files`, and ``published_digest`` the digest of the published
    certificate in the ledger, if it has one.
    """
    return _has_published_certificate(made, public, published_digest) and _is_only_damaged(made, public, differing)


def _has_published_certificate(made: Path, public: Path, published_digest: str | None) -> bool:
    """Return whether the certificate made again equals the one in the ledger or the one in the public bundle.

    If so, the bundles have the same measurements: a certificate names a ledger entry, whose hash covers their digests.
    """
    new, old = find_json_object(made / CERTIFICATE), find_json_object(public / CERTIFICATE)
    if new is None:
        return False
    digest = compute_certificate_digest(new)
    return digest == published_digest or (old is not None and digest == compute_certificate_digest(old))


def _is_only_damaged(made: Path, public: Path, differing: list[str]) -> bool:
    """Return whether every differing file of a public bundle is damaged; an intact one may be of another release.

    Two intact files may differ: the checksums, and a data package that differs only in entries for damaged files.
    """
    digests = read_checksums(public)

    def is_damaged(name: str) -> bool:
        """Return whether a file is missing, contradicts its checksum, cannot be read, or lacks rows."""
        file = public / name
        if not (made / name).exists():  # it does not belong to this bundle
            return False
        if not file.is_file() or (name in digests and compute_file_digest(file) != digests[name]):
            return True
        return not is_readable(file) or _lacks_rows(file, made / name)

    damaged = {name for name in differing if is_damaged(name)}
    intact = {*differing} - damaged - {CHECKSUMS}
    if intact == {PACKAGE}:
        package = _read_comparable_package(made, damaged)
        return package is not None and package == _read_comparable_package(public, damaged)
    return not intact


def _lacks_rows(public: Path, made: Path) -> bool:
    """Return whether a public CSV file has fewer lines than the one made again, and all of them are lines of that one.

    Earlier versions left out the rows without a distance (``docs/decisions/0063-rows-that-were-left-out.md``).
    """
    if made.suffix != ".csv":
        return False
    public_lines, made_lines = (Counter(file.read_bytes().split(b"\r\n")) for file in (public, made))
    return public_lines < made_lines


def _read_comparable_package(folder: Path, damaged: set[str]) -> dict[str, object] | None:
    """Return the data package of a bundle without the sizes and checksums of damaged files; None if it is unreadable.

    Those sizes and checksums may describe the damaged content, so they are not compared.
    """
    package: dict[str, Any] | None = find_json_object(folder / PACKAGE)
    if package is not None:
        for resource in package.get("resources", []):
            if resource.get("path") in damaged:
                resource.update(bytes=None, hash=None)
    return package


def make_changed_bundle_error(differing: list[str], made: Path, public: Path) -> OdError:
    """Return the OdError for a public bundle that is sound, but differs from the one made again."""
    version, published_version = (_read_software(folder).get("od-release") for folder in (made, public))
    is_upgraded = version is not None and published_version is not None and version != published_version
    new, old = (find_json_object(folder / CERTIFICATE) or {} for folder in (made, public))
    fields = [name for name in sorted(old) if name != "software" and old[name] != new.get(name)]
    return OdError(
        "OD-BUNDLE-CHANGED",
        "the public bundle differs from the result of its measurements"
        + (f" (od-release {published_version} published it, and this is {version})" if is_upgraded else "")
        + (f"; different fields of its certificate: {', '.join(fields)}" if fields else "")
        + f"; different: {', '.join(differing)}",
        next_step=(f"run the release again with od-release {published_version}, or " if is_upgraded else "")
        + "restore the bundle from a copy, or the declaration, the ledger and the measurements from which it was made",
        spent="nothing more was spent",
    )
