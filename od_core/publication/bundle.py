"""The bundle: one folder that holds a release for people who have nothing else of this project."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from od_core.archive.files import sync
from od_core.archive.ledger import EntryName
from od_core.errors import OdError
from od_core.publication.bundle_file import BundleFile
from od_core.publication.certificate_page import certificate_page
from od_core.publication.checksums import CHECKSUMS, faulty_files, write_checksums
from od_core.publication.codebook import codebook, readme
from od_core.publication.datapackage import datapackage
from od_core.publication.kind import Kind, R
from od_core.publication.open_matrix import same_matrices
from od_core.publication.zipped import write_zip, zip_beside, zip_faults

CERTIFICATE = "certificate.json"
SCHEMA = "certificate.schema.json"
REPORT = "report.html"
AREAS_FILE, FLOWS_FILE, MEASUREMENTS_FILE = "areas.parquet", "flows.parquet", "noisy_measurements.parquet"
"""The tables that a release of flows is read back from."""

WORDS = (
    "README.txt",
    "certificate.html",
    SCHEMA,
    "codebook.md",
    "datapackage.json",
    "flows.sdmx.json",
    REPORT,
)
"""Files that follow from the certificate and the tables, in the words of the software that made them."""

_SENTENCES = ("guarantee", "known_limitations")
"""Facts of a certificate that are put into words."""


@contextmanager
def staged_folder(write: Callable[[Path], None], target: Path) -> Iterator[None]:
    """Prepare a bundle beside its place; it appears in one rename when the body ends without an error.

    Its zip file, beside it, appears just before: a crash in between leaves a zip file alone, which the next run makes
    anew. A bundle that is public already is never replaced: the prepared one must have the same files, byte for byte,
    and is thrown away. (The certificate names the software that first made it; a later version of the software may
    make it anew only if everything else is equal.)

    Raises:
        OdError: a public bundle, or its zip file, differs from what its measurements give.
    """
    staged = target.with_name(f".{target.name}.staged")
    shutil.rmtree(staged, ignore_errors=True)
    staged.mkdir(parents=True)
    try:
        write(staged)
        if target.exists():
            _refuse_changed(staged, target)
            yield
            if not zip_beside(target).exists():
                _zip(target, target)
                sync(target.parent)
        else:
            yield
            sync(staged)
            _zip(staged, target)
            staged.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _refuse_changed(made: Path, public: Path) -> None:
    changed = differing_files(made, public)
    beside = zip_beside(public)
    if not changed and beside.exists() and any(zip_faults(public, _release(public), beside)):
        changed = [beside.name]
    if changed:
        raise OdError(
            "OD-BUNDLE-CHANGED",
            f"the public bundle is not what its measurements give; different: {', '.join(changed)}",
            next_step="restore the bundle from a copy, or the ledger and measurements that it was made from",
            spent="nothing more was spent",
        )


def _zip(folder: Path, target: Path) -> None:
    """The zip file of a bundle appears whole, in one rename; what an interrupted run left of it is written over."""
    staged = target.with_name(f".{target.name}.zip.staged")
    try:
        write_zip(folder, _release(folder), staged)
        sync(staged)
        staged.replace(zip_beside(target))
    finally:
        staged.unlink(missing_ok=True)


def _release(folder: Path) -> str:
    """The release that a bundle is of, by its certificate."""
    return str(json.loads((folder / CERTIFICATE).read_text(encoding="utf-8"))["release"])


def bundle_faults(folder: Path) -> Iterator[str]:
    """What is wrong with the files of a bundle and its zip file by themselves, a line each, with the file's name."""
    yield from (f"{name} {fault}" for name, fault in faulty_files(folder))
    if _content(folder / CERTIFICATE) is not None:
        yield from zip_faults(folder, _release(folder), zip_beside(folder))


def ledger_entries(releases: Path) -> dict[str, EntryName]:
    """The ledger's entry that each public bundle below a folder names in its certificate."""
    entries = {}
    for path in sorted(releases.glob(f"*/*/r*/{CERTIFICATE}")):
        with suppress(OSError, ValueError, KeyError, TypeError):  # verification says what is wrong with a bundle
            certificate = json.loads(path.read_text(encoding="utf-8"))
            named = certificate["ledger"]
            entries[str(certificate["release"])] = EntryName(int(named["entry"]), str(named["hash"]))
    return entries


def write_bundle(
    kind: Kind[R],
    release: R,
    certificate: dict[str, Any],
    report: str,
    folder: Path,
    tell: Callable[[int, int, str], None] | None = None,
) -> None:
    """Write all files of a bundle of any kind into an empty folder, durably; the checksums last.

    Args:
        kind: of the release: the files of its tables, and what is to be said of them.
        release: the release.
        certificate: its certificate.
        report: text of ``report.html``.
        folder: an empty folder.
        tell: is told of each file before it is written: its number, how many there are, its name.
    """
    tables, notes = kind.files(release, certificate), kind.notes(release, certificate)
    listed = [*tables, *_pages(certificate, report)]
    listed += [
        _words("codebook.md", "What every file and column means.", codebook(kind.contents, certificate, listed, notes)),
        _words("README.txt", "Where to begin.", readme(kind.contents, certificate, listed)),
    ]

    def package(path: Path) -> None:
        write_json(datapackage(kind.contents, certificate, listed, folder), path)

    for number, file in enumerate(listed, start=1):
        if tell is not None:
            tell(number, len(listed), file.name)
        _write(folder / file.name, file.write)
    _write(folder / "datapackage.json", package)
    _write(folder / CHECKSUMS, partial(write_checksums, folder))


def _pages(certificate: dict[str, Any], report: str) -> list[BundleFile]:
    """The report, and the certificate in each form."""
    schema = files("od_core.publication").joinpath(SCHEMA).read_text(encoding="utf-8")
    return [
        _words(REPORT, "The release in pictures and tables.", report),
        _words("certificate.html", "What is protected, and what was spent.", certificate_page(certificate)),
        BundleFile(CERTIFICATE, "The same for programs.", lambda path: write_json(certificate, path)),
        _words(SCHEMA, "JSON Schema of certificates.", schema),
    ]


def _words(name: str, description: str, text: str) -> BundleFile:
    """A file of text that is made already."""

    def write(path: Path) -> None:
        path.write_bytes(text.encode())

    return BundleFile(name, description, write)


def _write(path: Path, write: Callable[[Path], None]) -> None:
    write(path)
    sync(path)


def write_json(content: dict[str, Any], path: Path) -> None:
    """Facts with sorted names."""
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def differing_files(made: Path, public: Path) -> list[str]:
    """Names of the files that differ between two bundles.

    Of the certificates, the software may. Where it does, so may pages and other words that follow from the certificate
    and the tables: they are held to their checksums alone.
    """
    software = [(_content(folder / CERTIFICATE) or {}).get("software") for folder in (made, public)]
    apart = {CERTIFICATE, CHECKSUMS} if software[0] == software[1] else {CERTIFICATE, CHECKSUMS, *WORDS}
    names = {file.name for file in (*made.iterdir(), *public.iterdir())} - apart
    changed = {name for name in names if not _same(made / name, public / name, one_software=software[0] == software[1])}
    if not _certificates_agree(made / CERTIFICATE, public / CERTIFICATE):
        changed.add(CERTIFICATE)
    faulty = {name for name, _ in faulty_files(public)}
    return sorted(changed | (faulty & apart) | ({CHECKSUMS} if faulty - apart - changed else set()))


def _same(file: Path, public: Path, *, one_software: bool) -> bool:
    """The same bytes; or, where another version of the software writes a format otherwise, the same numbers."""
    if not (file.exists() and public.exists()):
        return False
    if file.read_bytes() == public.read_bytes():
        return True
    if file.suffix == ".omx" and not one_software:
        return same_matrices(file, public)
    if file.suffix != ".parquet" or _software(file) == _software(public):
        return False
    try:
        return bool(pq.read_table(file).equals(pq.read_table(public)))
    except (pa.ArrowException, OSError):
        return False


def _software(parquet: Path) -> str:
    """The program that wrote a Parquet file."""
    try:
        return str(pq.ParquetFile(parquet).metadata.created_by)
    except (pa.ArrowException, OSError):
        return ""


def _certificates_agree(made: Path, public: Path) -> bool:
    """Equal but for the software; a certificate that another version of this library wrote keeps its own sentences.

    Numbers stay as they are in any version; how they are put into words may change, and facts may be added.
    """
    new, old = _content(made), _content(public)
    if new is None or old is None:
        return False
    versions = [content.pop("software", {}).get("od-release") for content in (new, old)]
    if versions[0] == versions[1]:
        return new == old
    return all(new.get(name) == fact for name, fact in old.items() if name not in _SENTENCES)


def _content(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content
