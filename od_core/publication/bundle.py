"""Make, open and check bundles of published files.

A bundle is the public folder of a release. Readers of a bundle need no software of this project.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.errors import OdError
from od_core.files.durable import (
    PUBLIC_FILE_MODE,
    PUBLIC_FOLDER_MODE,
    Written,
    compute_file_digest,
    make_folder,
    replace_folder,
    sync,
    write_checked,
)
from od_core.ledger.chain import BUNDLE_FORMAT, EntryName
from od_core.parallel import map_in_order, run_in_background
from od_core.publication.certificate import (
    Certificate,
    compute_certificate_digest,
    read_bundle_format,
    read_certificate,
)
from od_core.publication.file_formats import (
    has_same_content,
    is_read_whole,
    opens,
    refuse_faulty_files,
    refuse_unreadable,
)
from od_core.publication.kind import BundleKind, T
from od_core.publication.tables import BundleFile
from od_core.publication.templates import render_data, render_template

CERTIFICATE, CHECKSUMS = "certificate.json", "SHA256SUMS"

_FIRST_WITH_FOLDERS = 6
"""First ``BUNDLE_FORMAT`` with folders. The first certificates do not state their format.

A bundle of flows of format 1 has the flows at all pairs of levels in one CSV file; one of format 2 has no indicators,
one of format 3 has no atlas, and one of format 4 lacks what other tools look for (``FIRST_FOR_TOOLS``). A bundle of any
kind has no folders before format 6, and one of group sizes has Wilson's intervals of noisy sizes before format 7.
SDMX structures have a version that may change since format 8. Each is verified, and written again if it is damaged, as
its own format has it.
"""

TABLES = "tables"
"""Folder of a bundle with its tables as Parquet and CSV. Files of other formats are in the folder of their format."""

_LINE = re.compile(r"([0-9a-f]{64}) [ *](.+)")


def format_checksums(digests: Mapping[str, str]) -> str:
    """Return the text of ``SHA256SUMS``, in the order of the names, from the SHA-256 of the bytes of each file."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(digests.items()))


def list_bundle_contents(folder: Path) -> dict[str, Path]:
    """Return the files of a bundle, and folders without any, by the name below its folder, in the order of names."""
    places = (
        place for place in folder.rglob("*") if place.is_symlink() or not (place.is_dir() and any(place.iterdir()))
    )
    return dict(sorted((place.relative_to(folder).as_posix(), place) for place in places))


def locate_table(bundle: Path, name: str) -> Path:
    """Return the path of a Parquet or CSV table of a bundle of any format."""
    path = bundle / TABLES / name
    return path if path.exists() or not (bundle / name).exists() else bundle / name


def read_checksums(folder: Path) -> dict[str, str]:
    """Return the checksums in a folder's ``SHA256SUMS``, by file name; an empty dict if that file cannot be read."""
    matches = map(_LINE.fullmatch, _read_checksum_lines(folder) or ())
    return {match[2]: match[1] for match in matches if match}


def _read_checksum_lines(folder: Path) -> list[str] | None:
    """Return the lines of ``SHA256SUMS``, which line feeds alone end, as for ``sha256sum -c``; None if unreadable."""
    try:
        return (folder / CHECKSUMS).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError):
        return None


def check_checksums(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the fault, in words, of each file that is missing, unexpected or unlike its checksum."""
    lines = _read_checksum_lines(folder)
    if lines is None:
        yield CHECKSUMS, "is missing or cannot be read"
        return
    digests = read_checksums(folder)
    if len(digests) < len(lines):
        yield CHECKSUMS, "is damaged"
    present = list_bundle_contents(folder).keys() - {CHECKSUMS}
    for name in sorted({*present, *digests}):
        if name not in present:
            yield name, "is missing"
        elif name not in digests:
            yield name, "does not belong to the bundle"
        elif not (folder / name).is_file() or compute_file_digest(folder / name) != digests[name]:
            yield name, "does not match its checksum"


_NO_TIME = (1980, 1, 1, 0, 0, 0)
"""Earliest time that a zip file can state. Every entry has this time, so that it does not change the bytes."""

_UNIX = 3

_COMPRESSION = 5
"""Level of compression. For bundles of text, level 6 takes twice the time of level 5 to make files 2 % smaller."""

_LARGE = 2**30
"""Sizes above this, in bytes, get the fields that files above 2 GiB need."""


def locate_zip(folder: Path) -> Path:
    """Return the path of a bundle's zip file, which is beside its folder."""
    return folder.with_name(f"{folder.name}.zip")


def write_zip(folder: Path, release: str, path: Path) -> None:
    """Write all files of a folder to a zip file, and check it.

    In the zip file, they are in a folder named after the release, such as ``us_flights_2001-06_r1``. The entries are in
    the order of names with the same time. The same files give the same bytes with the same compressor.

    Raises:
        OSError, OdError: as in :func:`od_core.files.durable.write_checked`; or the zip file does not match the folder.
    """

    def write(target: BinaryIO) -> None:
        with ZipFile(target, "w", ZIP_DEFLATED, compresslevel=_COMPRESSION) as archive:
            for inner_name, file in list_bundle_contents(folder).items():
                name, large = f"{_name_top_folder(release)}/{inner_name}", file.stat().st_size > _LARGE
                with file.open("rb") as source, archive.open(name, "w", force_zip64=large) as compressed:
                    shutil.copyfileobj(source, compressed)
                entry = archive.getinfo(name)
                entry.create_system, entry.external_attr = _UNIX, PUBLIC_FILE_MODE << 16

    write_checked(path, write, mode=PUBLIC_FILE_MODE, from_disk=True)
    if faults := list(check_zip(folder, release, path)):
        raise OdError(
            "OD-FILE-DAMAGED",
            f"the zip file was written, but does not match the bundle: {'; '.join(faults)}",
            next_step="check the disk, then run the release again",
            spent="nothing more was spent",
        )


def check_zip(folder: Path, release: str, path: Path) -> Iterator[str]:
    """Yield one line for each difference between a zip file and a folder; each line begins with the zip file's name.

    A file is compared with its checksum in the folder's ``SHA256SUMS`` or, without one, with the file in the folder.
    """
    digests = read_checksums(folder)
    try:
        with ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            expected = {
                f"{_name_top_folder(release)}/{name}": (name, file)
                for name, file in list_bundle_contents(folder).items()
            }
            faults = [f"{name} is missing from it" for name in sorted(expected.keys() - entries.keys())]
            faults += [f"{name} does not belong in it" for name in sorted(entries.keys() - expected.keys())]
            for name in sorted(entries.keys() & expected.keys()):
                inner_name, file = expected[name]
                if _digest(archive, name) != (digests.get(inner_name) or compute_file_digest(file)):
                    faults.append(f"{name} differs from the file in the folder")
            if list(entries) != list(expected) or any(entry.date_time != _NO_TIME for entry in entries.values()):
                faults = faults or ["its files have a different order or different times"]
    except _BROKEN:
        faults = ["it is missing, damaged or not a zip file"]
    yield from (f"{path.name}: {fault}" for fault in faults)


def is_zip_sound(release: str, path: Path) -> bool:
    """Return whether a zip file contains a bundle of a release in which every file matches its checksum."""
    top = f"{_name_top_folder(release)}/"
    try:
        with ZipFile(path) as archive:
            digests = {name.removeprefix(top): _digest(archive, name) for name in archive.namelist()}
            digests.pop(CHECKSUMS, None)
            return archive.read(f"{top}{CHECKSUMS}") == format_checksums(digests).encode()
    except _BROKEN:
        return False


_BROKEN = (OSError, BadZipFile, KeyError, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Exceptions that ``zipfile`` raises for damaged files: wrong sizes, checksums, compressed bytes and flags."""


def _digest(archive: ZipFile, name: str) -> str:
    with archive.open(name) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # readable, as required


def _name_top_folder(release: str) -> str:
    return release.replace("/", "_")


NOTICE = ".withdrawn.json"
"""End of the name of the file that stands in place of a withdrawn bundle and its zip file."""

KEPT = PurePath("confidential", "withdrawn")
"""Place below the folder of all output with copies of withdrawn bundles, which only the owner can read."""

SCHEMA = "certificate.schema.json"
REPORT, ATLAS = "report.html", "atlas.html"
PACKAGE = "datapackage.json"
PARQUET = {
    "areas": "areas.parquet",
    "flows": "flows.parquet",
    "measurements": "noisy_measurements.parquet",
    "segment_flows": "segments.parquet",
    "segment_measurements": "segment_measurements.parquet",
}
"""Files of a bundle from which a release of flows can be read again, by the names of their tables in the database.

Those of segments are there only with breakdowns."""

BOUNDARIES = "boundaries.parquet"

_WORDED = (".html", ".json", ".md", ".txt", ".xml", ".xlsx", ".gpkg", "lines.geojson")
"""Ends of the names of files with words of the software version about facts of the certificate and the tables."""

_LAYOUT = ("bundle_format", "formats")
"""Fields of the certificate on which files the bundle has. Each version of the software states its own."""

_SENTENCES = ("about", "guarantee", "invariants", "known_limitations")
"""Fields of the certificate whose values are sentences."""


@contextmanager
def publish_folder(write: Callable[[Path], None], target: Path, published: str | None = None) -> Iterator[Certificate]:
    """Prepare a bundle in a hidden folder, and publish it in one rename if this context ends without an error.

    The context is given the certificate in the public folder after it: the prepared one, or that of a sound bundle.

    The zip file beside the public folder is written during the context, and published just before the folder. A crash
    in between leaves only the zip file, and the next run writes it again.

    If the public folder exists already, the prepared bundle is compared with it (see :func:`list_differing_files`). A
    sound public bundle is never replaced: if the two are equal, the prepared bundle is discarded, otherwise an error is
    raised. A damaged public bundle is replaced. It is damaged if each file that differs from the prepared one is
    missing, contradicts its checksum, cannot be read, or is a CSV file that lacks rows and has no others.

    Args:
        write: function that writes the files of the bundle into an empty folder.
        published: digest of the published certificate, from the ledger; None if the ledger has none. Without it, a
            damaged bundle is replaced only if its own certificate equals the prepared one.

    Raises:
        OdError: the public bundle or its zip file is sound, but differs from the prepared one; the public bundle is
            damaged, and neither the ledger nor its own certificate shows that it was equal to the prepared one; or it
            is lost, and the prepared certificate is not the published one.
    """
    staged, replaced = (target.with_name(f".{target.name}.{name}") for name in ("staged", "replaced"))
    for left_behind in (staged, replaced):
        shutil.rmtree(left_behind, ignore_errors=True)
    make_folder(staged)
    try:
        write(staged)
        state = _compare_with_public(staged, target, published)
        source = staged if state in ("absent", "damaged") else target
        with nullcontext() if state == "sound" else _publish_zip(source, target):
            yield _read_json_object(source / CERTIFICATE)
            if source == staged:
                sync(staged)
        if state == "damaged":
            replace_folder(target, by=staged, aside=replaced)
        elif state == "absent":
            staged.rename(target)
        if state in ("absent", "zip damaged"):
            sync(target.parent)
    finally:
        for folder in (staged, replaced):
            shutil.rmtree(folder, ignore_errors=True)


def _compare_with_public(staged: Path, target: Path, published: str | None) -> str:
    """Return "absent", "damaged", "zip damaged" or "sound". Raises OdError as :func:`publish_folder` does."""
    if not target.exists():
        if published not in (None, compute_certificate_digest(_read_json_object(staged / CERTIFICATE))):
            raise OdError(
                "OD-BUNDLE-CHANGED",
                "the published bundle is lost, and the one that was made again has another certificate",
                next_step="restore it from a copy, or run its release again with the declaration and the version of"
                " od-release that published it",
                spent="nothing more was spent",
            )
        return "absent"
    if changed := list_differing_files(staged, target):
        if _is_vouched_for(staged, target, published) and _is_only_damaged(staged, target, changed):
            return "damaged"
        raise _make_changed_bundle_error(changed, staged, target)
    packed, release = locate_zip(target), _release(target)
    if not any(check_zip(target, release, packed)):
        return "sound"
    if is_zip_sound(release, packed):
        raise _make_changed_bundle_error([packed.name], staged, target)
    return "zip damaged"


def restore_folder(target: Path, release: str, published: str | None = None) -> None:
    """Unpack the zip file of a bundle whose folder is lost, if every file in it matches its checksum.

    If ``published`` is given, the certificate in the zip file must have this digest.
    """
    packed, staged = locate_zip(target), target.with_name(f".{target.name}.staged")
    if target.exists() or not is_zip_sound(release, packed):
        return
    shutil.rmtree(staged, ignore_errors=True)
    try:
        with ZipFile(packed) as archive:
            archive.extractall(staged)
        folder = staged / _name_top_folder(release)
        certificate = _read_json_object(folder / CERTIFICATE)
        if certificate is not None and published in (None, compute_certificate_digest(certificate)):
            for place in (folder, *folder.rglob("*")):
                place.chmod(PUBLIC_FOLDER_MODE if place.is_dir() else PUBLIC_FILE_MODE)
                sync(place)
            folder.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _make_changed_bundle_error(changed: list[str], made: Path, public: Path) -> OdError:
    """Return the OdError for a public bundle that is sound, but differs from the prepared one."""
    now, then = (content.get("od-release") for content in map(_read_software, (made, public)))
    upgraded = now is not None and then is not None and now != then
    new, old = (_read_json_object(folder / CERTIFICATE) or {} for folder in (made, public))
    fields = [name for name in sorted(old) if name != "software" and old[name] != new.get(name)]
    return OdError(
        "OD-BUNDLE-CHANGED",
        "the public bundle differs from the result of its measurements"
        + (f" (od-release {then} published it, and this is {now})" if upgraded else "")
        + (f"; different fields of its certificate: {', '.join(fields)}" if fields else "")
        + f"; different: {', '.join(changed)}",
        next_step=(f"run the release again with od-release {then}, or " if upgraded else "")
        + "restore the bundle from a copy, or the declaration, the ledger and the measurements from which it was made",
        spent="nothing more was spent",
    )


def _read_software(folder: Path) -> dict[str, object]:
    """Return the versions of the software that the certificate of a bundle names."""
    return (_read_json_object(folder / CERTIFICATE) or {}).get("software") or {}


def _is_vouched_for(made: Path, public: Path, published: str | None) -> bool:
    """Return whether the prepared certificate equals the one that the ledger records or the one in the public bundle.

    If so, the bundles have the same measurements: a certificate names a ledger entry, whose hash covers their digests.
    """
    prepared, in_public = _read_json_object(made / CERTIFICATE), _read_json_object(public / CERTIFICATE)
    digests = {published, *([] if in_public is None else [compute_certificate_digest(in_public)])}
    return prepared is not None and compute_certificate_digest(prepared) in digests


def _is_only_damaged(made: Path, public: Path, changed: list[str]) -> bool:
    """Return whether every differing file of a public bundle is damaged. An intact one may belong to another bundle.

    Only two intact files may differ: the checksums, and a data package that differs only in entries for damaged files.
    """
    digests = read_checksums(public)

    def is_damaged(name: str) -> bool:
        file = public / name
        contradicts = not file.is_file() or (name in digests and compute_file_digest(file) != digests[name])
        return (made / name).exists() and (contradicts or not opens(file) or _lacks_rows(made / name, file))

    damaged = set(filter(is_damaged, changed))
    others = {*changed} - damaged - {CHECKSUMS}
    packages = [_read_comparable_package(damaged, folder) for folder in (made, public)]
    return not others or (others == {PACKAGE} and packages[0] is not None and packages[0] == packages[1])


def _lacks_rows(made: Path, public: Path) -> bool:
    """Return whether a public CSV file has fewer lines than the prepared one, and all of them are lines of that one.

    Earlier versions left out the rows without a distance (``docs/decisions/0063-rows-that-were-left-out.md``).
    """
    if made.suffix != ".csv":
        return False
    published_lines, made_lines = (Counter(file.read_bytes().split(b"\r\n")) for file in (public, made))
    return published_lines < made_lines


def _read_comparable_package(damaged: set[str], folder: Path) -> dict[str, object] | None:
    """Return the data package of a bundle without the sizes and checksums of damaged files; None if it is unreadable.

    Those sizes and checksums may describe the damaged content, so they are not compared.
    """
    package: dict[str, Any] | None = _read_json_object(folder / PACKAGE)
    for resource in [] if package is None else package.get("resources", []):
        if resource.get("path") in damaged:
            resource.update(bytes=None, hash=None)
    return package


def as_published(facts: Certificate, folder: Path, published: str | None) -> Certificate:
    """Return a certificate of this version of the software in the wording of the version that published it.

    A later version may word a certificate differently or add fields, and a series may be described differently. The
    result has the sentences and the bundle format of the certificate in the public ``folder``, and no fields that this
    lacks. If other fields differ, only the formats are those of the certificate, so that the same files are
    compared. If the certificate in the folder does not have the ``published`` digest, the result is ``facts``.
    """
    public = _read_json_object(folder / CERTIFICATE)
    if public is None or compute_certificate_digest(public) != published:
        return facts
    result: dict[str, Any] = {name: fact for name, fact in facts.items() if name not in _LAYOUT or name in public}
    result |= {name: public[name] for name in result.keys() & _LAYOUT}
    if _has_same_numbers(result, public):
        result = {name: fact for name, fact in result.items() if name in public}
        for name in public.keys() & _SENTENCES:
            sentences = public[name]
            if isinstance(sentences, dict) and isinstance(result.get(name), dict):  # JSON files have sorted names
                sentences = {key: sentences[key] for key in result[name] if key in sentences} | sentences
            result[name] = sentences
    return cast("Certificate", result)


@contextmanager
def _publish_zip(folder: Path, target: Path) -> Iterator[None]:
    """Write the zip file of a bundle's ``folder`` during the context, and publish it beside ``target`` at its end."""
    staged = target.with_name(f".{target.name}.zip.staged")
    try:
        with run_in_background(partial(write_zip, folder, _release(folder), staged)):
            yield
        staged.replace(locate_zip(target))
    finally:
        staged.unlink(missing_ok=True)


def _release(folder: Path) -> str:
    return read_certificate(folder / CERTIFICATE)["release"]


def check_bundle(folder: Path) -> Iterator[str]:
    """Yield one line for each fault of a bundle's files and of its zip file; each line begins with the file's name."""
    faulty = dict(check_checksums(folder))
    yield from (f"{name} {fault}" for name, fault in faulty.items())
    sound = {name: file for name, file in list_bundle_contents(folder).items() if name not in faulty}
    yield from (f"{name} cannot be read, although it matches its checksum" for name in sound if not opens(sound[name]))
    if _read_json_object(folder / CERTIFICATE) is not None:
        yield from check_zip(folder, _release(folder), locate_zip(folder))


def refuse_newer_bundle(certificate: Certificate) -> None:
    """Raise OdError if a later version of this software published the bundle of a certificate in another format."""
    is_known = str(certificate.get("format", " certificate 1")).endswith(" certificate 1")
    if not is_known or certificate.get("bundle_format", 1) > BUNDLE_FORMAT:
        raise OdError(
            "OD-BUNDLE-NEWER",
            f"{certificate['release']} has a bundle of a later format than this version of od-release knows",
            next_step="use at least the version that published it, or restore the copy of var from before the upgrade",
            spent="nothing was spent",
        )


def read_certified_entries(releases: Path) -> dict[str, EntryName]:
    """Return the ledger entries that readable certificates name, by release. See :func:`refuse_newer_bundle`."""
    entries = {}
    for path in sorted(releases.glob(f"*/*/r*/{CERTIFICATE}")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # verification reports faults of bundles
            certificate = json.loads(path.read_text(encoding="utf-8"))
            refuse_newer_bundle(certificate)
            entry = certificate["ledger"]
            entries[str(certificate["release"])] = EntryName(int(entry["entry"]), str(entry["hash"]))
    return entries


def write_bundle(
    kind: BundleKind[T],
    release: T,
    certificate: Certificate,
    report: str,
    folder: Path,
    tell: Callable[[int, int, str], None] | None = None,
) -> None:
    """Write all files of a bundle of any kind into an empty folder, durably. The checksums are written last.

    The rows of every file are compared with the tables of the bundle. Several files are written at a time. The bytes
    are the same for any number of threads.

    Args:
        report: text of ``report.html``.
        tell: called after each file is written, with the number of the file from 1, the number of listed files, and
            the name of the file; the data package and the checksums are not listed.

    Raises:
        OdError: a file cannot be written or read back, or does not have the rows of its table.
    """
    tables, notes = list_bundle_tables(kind, release, certificate), kind.list_notes(release, certificate)
    schema = files("od_core.publication").joinpath(SCHEMA).read_text(encoding="utf-8")
    defined = {file.table.name: file.table for file in tables if file.table is not None}
    file_names = [(table, [file.name for file in tables if file.table is table]) for table in defined.values()]
    listed = [
        *tables,
        _make_text_file(REPORT, "The release in pictures and tables.", report),
        _make_text_file(
            "certificate.html",
            "What is protected, and which budget was spent.",
            render_template("certificate.html", certificate=certificate),
        ),
        BundleFile(CERTIFICATE, "The certificate, for programs.", lambda file: file.write(encode_json(certificate))),
        _make_text_file(SCHEMA, "JSON Schema of certificates.", schema),
    ]
    values = {"certificate": certificate, "files": listed}
    codebook = render_template("codebook.md", **values, tables=file_names, notes=notes)
    listed.append(_make_text_file("codebook.md", "What the tables and their columns mean.", codebook))
    listed.append(_make_text_file("README.txt", "Overview of the files.", render_template("README.txt", **values)))
    written_files: dict[str, Written] = {}
    places = {(folder / file.name).parent for file in listed}
    for place in places:
        make_folder(place)

    def write(file: BundleFile) -> Written:
        content = _write(folder / file.name, file.write)
        if not is_read_whole(file):
            refuse_unreadable(folder / file.name)
        return content

    for file, content in zip(listed, map_in_order(write, listed), strict=True):
        written_files[file.name] = content
        if tell is not None:
            tell(len(written_files), len(listed), file.name)
    refuse_faulty_files(folder, tables)
    package = encode_json(render_data("datapackage.json", **values, written=written_files))
    written_files[PACKAGE] = _write(folder / PACKAGE, lambda file: file.write(package))
    refuse_unreadable(folder / PACKAGE)
    checksums = format_checksums({name: content.digest for name, content in written_files.items()}).encode()
    _write(folder / CHECKSUMS, lambda file: file.write(checksums))
    for place in places:
        sync(place)


def list_bundle_tables(kind: BundleKind[T], release: T, certificate: Certificate) -> list[BundleFile]:
    """Return the files with the tables of a release in the formats that its certificate states, below their folders."""
    files = list(kind.list_files(release, certificate))
    if read_bundle_format(certificate) < _FIRST_WITH_FOLDERS:
        return files
    placed = []
    for file in files:
        is_parquet = PurePath(file.name).suffix == ".parquet"
        if file.format is None or file.format in certificate["formats"]:
            place = TABLES if file.format == "csv" or is_parquet else file.format
            if file.table is not None and is_parquet and "csv" not in certificate["formats"]:
                file = replace(file, description=file.table.file)  # the only file of its table
            placed.append(file if place is None else replace(file, name=f"{place}/{file.name}"))
    return placed


def _make_text_file(name: str, description: str, text: str) -> BundleFile:
    return BundleFile(name, description, lambda file: file.write(text.encode()))


_write = partial(write_checked, mode=PUBLIC_FILE_MODE, from_disk=True)
"""Function that writes a file, checks that it has the intended bytes, and returns its size and digest."""


def encode_json(content: Mapping[str, object]) -> bytes:
    """Return a dictionary as UTF-8 encoded JSON text with sorted names."""
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


def list_differing_files(made: Path, public: Path) -> list[str]:
    """Return the sorted names of the files that differ between a new bundle and a public one.

    The two certificates may name different versions of software. If they do, the words of files may differ too, and
    only the checksums of these files are checked.
    """
    one_software = _read_software(made) == _read_software(public)
    names = {*list_bundle_contents(made), *list_bundle_contents(public)}
    worded = [] if one_software else [name for name in list_bundle_contents(made) if name.endswith(_WORDED)]
    excluded = {CERTIFICATE, CHECKSUMS, *worded}
    changed = {name for name in names - excluded if not _agree(made / name, public / name, one_software=one_software)}
    if not _is_same_certificate(made / CERTIFICATE, public / CERTIFICATE):
        changed.add(CERTIFICATE)
    faulty = {name for name, _ in check_checksums(public)}
    return sorted(changed | (faulty & excluded) | ({CHECKSUMS} if faulty - excluded - changed else set()))


def _agree(file: Path, public: Path, *, one_software: bool) -> bool:
    """Return whether two files have the same bytes, or the same content if different software wrote them."""
    if not (file.is_file() and public.is_file()):
        return False
    if compute_file_digest(file) == compute_file_digest(public):
        return True
    is_other = file.suffix in (".xlsx", ".gpkg")  # their library is not known
    is_other |= file.suffix == ".omx" and not one_software
    with suppress(pa.ArrowException, OSError):  # a Parquet file that cannot be read is damaged
        if file.suffix == ".parquet":
            is_other |= pq.read_metadata(file).created_by != pq.read_metadata(public).created_by
    return is_other and has_same_content(file, public)


def _is_same_certificate(made: Path, public: Path) -> bool:
    """Return whether two certificates can be read and are equal, except for the software.

    If different versions of this library wrote them, the sentences may differ too, and ``made`` may have more fields.
    """
    new, old = _read_json_object(made), _read_json_object(public)
    if new is None or old is None:
        return False
    if len({content.get("software", {}).get("od-release") for content in (new, old)}) > 1:
        return _has_same_numbers(new, old)
    return bool(new | {"software": None} == old | {"software": None})


def _has_same_numbers(made: dict[str, object], public: dict[str, object]) -> bool:
    """Return whether ``made`` has the fields of ``public``; it may have more.

    The sentences, the software and the formats of the bundle are not compared.
    """
    excluded = (*_SENTENCES, *_LAYOUT, "software")
    return all(made.get(name) == fact for name, fact in public.items() if name not in excluded)


def _read_json_object(path: Path) -> Any:
    """Return the JSON object in a file; None if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
