"""Write the files of a bundle, and publish or restore its folder in one rename.

A bundle is the public folder of a release. Readers of a bundle need no software of this project.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path, PurePath
from typing import Literal
from zipfile import ZipFile

from od_core.errors import OdError
from od_core.files.durable import (
    PUBLIC_FILE_MODE,
    PUBLIC_FOLDER_MODE,
    Written,
    make_folder,
    replace_folder,
    sync,
    write_checked,
)
from od_core.languages import ENGLISH, get_language, name_in_language, translate
from od_core.ledger.balance import Balance
from od_core.parallel import map_in_order, run_in_background
from od_core.publication.bundle_differences import is_damaged_copy, list_differing_files, make_changed_bundle_error
from od_core.publication.bundle_files import (
    CERTIFICATE,
    CHECKSUMS,
    PACKAGE,
    REPORT,
    SCHEMA,
    TABLES,
    check_zip,
    find_json_object,
    format_checksums,
    is_zip_sound,
    locate_zip,
    name_top_folder,
    read_release_name,
    write_zip,
)
from od_core.publication.certificate import (
    Certificate,
    compute_certificate_digest,
    read_bundle_format,
    read_certificate,
    write_in_languages,
)
from od_core.publication.columns import Table
from od_core.publication.file_formats import is_read_whole, refuse_faulty_files, refuse_unreadable
from od_core.publication.kind import BundleKind, T
from od_core.publication.tables import BundleFile
from od_core.publication.templates import render_data, render_template

_FIRST_WITH_FOLDERS = 6
"""First ``BUNDLE_FORMAT`` with folders. The first certificates do not state their format.

A bundle of flows of format 1 has the flows at all pairs of levels in one CSV file; one of format 2 has no indicators,
one of format 3 has no atlas, and one of format 4 lacks what other tools look for (``FIRST_FOR_TOOLS``). A bundle of any
kind has no folders before format 6, and one of group sizes has Wilson's intervals of noisy sizes before format 7.
SDMX structures have a version that may change since format 8. Each is verified, and written again if it is damaged, as
its own format has it.
"""


def write_bundle(
    kind: BundleKind[T],
    release: T,
    certificate: Certificate,
    render_report: Callable[[Certificate], str],
    folder: Path,
    tell: Callable[[int, int, str], None] | None = None,
    balance: Balance | None = None,
) -> None:
    """Write all files of a bundle of any kind into an empty folder, durably. The checksums are written last.

    The rows of every file are compared with the tables of the bundle. Several files are written at a time. The bytes
    are the same for any number of threads.

    Args:
        kind, release: kind of the bundle, and what is published.
        certificate: certificate of the release.
        render_report: returns the text of ``report.html`` of the release, given its certificate or one in another
            language of the certificate, in which all pages are written a second time.
        folder: empty folder to write to.
        tell: called after each file is written, with the number of the file from 1, the number of listed files, and
            the name of the file; the data package and the checksums are not listed.
        balance: attribute of :class:`~od_core.publication.kind.ReleaseContext`; None for derived flows.

    Raises:
        OdError: a file cannot be written or read back, or does not have the rows of its table.
    """
    tables = list_bundle_tables(kind, release, certificate)

    def list_documents(stated: Certificate) -> list[BundleFile]:
        described_tables = list_bundle_tables(kind, release, stated)
        return _list_documents(
            described_tables, stated, render_report(stated), kind.list_notes(release, stated), balance
        )

    listed = [*tables, *chain(*write_in_languages(certificate, list_documents).values())]
    folders = {(folder / file.name).parent for file in listed}
    for inner_folder in folders:
        make_folder(inner_folder)

    def write_listed_file(file: BundleFile) -> Written:
        """Write a file, check that it can be read, and return its digest and size."""
        written = _write(folder / file.name, file.write)
        if not is_read_whole(file):  # otherwise, the comparison of rows below reads the file
            refuse_unreadable(folder / file.name)
        return written

    written_files: dict[str, Written] = {}
    for file, written in zip(listed, map_in_order(write_listed_file, listed), strict=True):
        written_files[file.name] = written
        if tell is not None:
            tell(len(written_files), len(listed), file.name)
    refuse_faulty_files(folder, tables)
    package = encode_json(render_data("datapackage.json", certificate=certificate, files=listed, written=written_files))
    written_files[PACKAGE] = _write(folder / PACKAGE, lambda file: file.write(package))
    refuse_unreadable(folder / PACKAGE)
    checksums = format_checksums({name: written.digest for name, written in written_files.items()}).encode()
    _write(folder / CHECKSUMS, lambda file: file.write(checksums))
    for inner_folder in folders:
        sync(inner_folder)


def list_bundle_tables(kind: BundleKind[T], release: T, certificate: Certificate) -> list[BundleFile]:
    """Return the files with the tables of a release in the formats that its certificate states.

    Their names include their folders, except in bundles of the first formats, which have none.
    """
    table_files = kind.list_files(release, certificate)
    if read_bundle_format(certificate) < _FIRST_WITH_FOLDERS:
        return list(table_files)
    formats = certificate["formats"]
    return [_place_in_folder(file, formats) for file in table_files if file.format is None or file.format in formats]


def _place_in_folder(file: BundleFile, formats: Sequence[str]) -> BundleFile:
    """Return a file of a bundle with the folder of its format in its name; ``formats`` are those of the bundle."""
    is_parquet = PurePath(file.name).suffix == ".parquet"
    if is_parquet and file.table is not None and "csv" not in formats:  # the description refers to the CSV file
        file = replace(file, description=file.table.file)
    folder = TABLES if is_parquet or file.format == "csv" else file.format
    return file if folder is None else replace(file, name=f"{folder}/{file.name}")


def _list_documents(
    tables: Sequence[BundleFile],
    certificate: Certificate,
    report: str,
    notes: Sequence[str],
    balance: Balance | None,
) -> list[BundleFile]:
    """Return the files that explain a release: report, certificate, schema, codebook and overview.

    They are in the language that is used; those for programs are only among the English ones. ``tables`` are the files
    with the tables, ``report`` is the text of the report, and ``notes`` are those of the codebook. For ``balance``, see
    :func:`write_bundle`.
    """
    schema = files("od_core.publication").joinpath(SCHEMA).read_text(encoding="utf-8")
    certificate_page = render_template("certificate.html", certificate=certificate, balance=balance)
    documents = [
        _make_text_file(REPORT, translate("The release in pictures and tables."), report),
        _make_text_file(
            "certificate.html", translate("What is protected, and which budget was spent."), certificate_page
        ),
    ]
    if get_language() == ENGLISH:
        documents += [
            BundleFile(
                CERTIFICATE, "The certificate, for programs.", lambda file: file.write(encode_json(certificate))
            ),
            _make_text_file(SCHEMA, "JSON Schema of certificates.", schema),
        ]
    files_of_tables: dict[str, tuple[Table, list[str]]] = {}  # a table may have a file in each format
    for file in tables:
        if file.table is not None:
            _, names = files_of_tables.setdefault(file.table.name, (file.table, []))
            names.append(file.name)
    codebook = render_template(
        "codebook.md",
        certificate=certificate,
        files=[*tables, *documents],
        tables=list(files_of_tables.values()),
        notes=notes,
    )
    documents.append(_make_text_file("codebook.md", translate("What the tables and their columns mean."), codebook))
    overview = render_template("README.txt", certificate=certificate, files=[*tables, *documents])
    documents.append(_make_text_file("README.txt", translate("Overview of the files."), overview))
    return documents


def _make_text_file(name: str, description: str, text: str) -> BundleFile:
    """Return the file of a bundle that contains a text, whose name states the language unless it is English."""
    return BundleFile(name_in_language(name), description, lambda file: file.write(text.encode()))


_write = partial(write_checked, mode=PUBLIC_FILE_MODE, from_disk=True)
"""Function that writes a file, checks that it has the intended bytes, and returns its size and digest."""


def encode_json(content: Mapping[str, object]) -> bytes:
    """Return a dictionary as UTF-8 encoded JSON text with sorted names."""
    return (json.dumps(content, indent=2, sort_keys=True) + "\n").encode()


@contextmanager
def publish_folder(
    write: Callable[[Path], None], target: Path, published_digest: str | None = None
) -> Iterator[Certificate]:
    """Prepare a bundle in a hidden folder, and publish it in one rename if this context ends without an error.

    The context yields the certificate that the public folder has afterwards: the prepared one, or that of a sound
    bundle that is there already.

    The zip file beside the public folder is written during the context, and published just before the folder. A crash
    in between leaves only the zip file, and the next run writes it again.

    If the public folder exists already, the prepared bundle is compared with it (see :func:`list_differing_files`). A
    sound public bundle is never replaced: if the two are equal, the prepared bundle is discarded, otherwise an error is
    raised. A damaged public bundle is replaced. It is damaged if each file that differs from the prepared one is
    missing, contradicts its checksum, cannot be read, or is a CSV file that lacks rows and has no others.

    Args:
        write: function that writes the files of the bundle into an empty folder.
        target: public folder of the bundle.
        published_digest: digest of the published certificate, from the ledger; None if the ledger has none. Without
            it, a damaged bundle is replaced only if its own certificate equals the prepared one.

    Raises:
        OdError: the public bundle or its zip file is sound, but differs from the prepared one; the public bundle is
            damaged, and neither the ledger nor its own certificate shows that it was equal to the prepared one; or it
            is lost, and the prepared certificate is not the published one.
    """
    prepared = target.with_name(f".{target.name}.staged")
    replaced = target.with_name(f".{target.name}.replaced")
    for left_behind in (prepared, replaced):
        shutil.rmtree(left_behind, ignore_errors=True)
    make_folder(prepared)
    try:
        write(prepared)
        state = _inspect_public_bundle(prepared, target, published_digest)
        is_new = state in ("absent", "damaged")
        source = prepared if is_new else target
        with nullcontext() if state == "sound" else _publish_zip(source, target):
            yield read_certificate(source / CERTIFICATE)
            if is_new:
                sync(prepared)
        if state == "damaged":
            replace_folder(target, by=prepared, aside=replaced)
        elif state == "absent":
            prepared.rename(target)
        if state in ("absent", "zip damaged"):
            sync(target.parent)
    finally:
        for folder in (prepared, replaced):
            shutil.rmtree(folder, ignore_errors=True)


def _inspect_public_bundle(
    prepared: Path, target: Path, published_digest: str | None
) -> Literal["absent", "damaged", "zip damaged", "sound"]:
    """Return the state of the public bundle in ``target``, compared with the one in the folder ``prepared``.

    Arguments and errors are those of :func:`publish_folder`.
    """
    if not target.exists():
        if published_digest not in (None, compute_certificate_digest(read_certificate(prepared / CERTIFICATE))):
            raise OdError(
                "OD-BUNDLE-CHANGED",
                "the published bundle is lost, and the one that was made again has another certificate",
                next_step="restore it from a copy, or run its release again with the declaration and the version of"
                " od-release that published it",
                spent="nothing more was spent",
            )
        return "absent"
    differing = list_differing_files(prepared, target)
    if differing:
        if is_damaged_copy(prepared, target, differing, published_digest):
            return "damaged"
        raise make_changed_bundle_error(differing, prepared, target)
    zip_file, release = locate_zip(target), read_release_name(target)
    if not any(check_zip(target, release, zip_file)):
        return "sound"
    if is_zip_sound(release, zip_file):
        raise make_changed_bundle_error([zip_file.name], prepared, target)
    return "zip damaged"


@contextmanager
def _publish_zip(folder: Path, target: Path) -> Iterator[None]:
    """Write the zip file of a bundle's ``folder`` during the context, and publish it beside ``target`` at its end."""
    prepared = target.with_name(f".{target.name}.zip.staged")
    try:
        with run_in_background(partial(write_zip, folder, read_release_name(folder), prepared)):
            yield
        prepared.replace(locate_zip(target))
    finally:
        prepared.unlink(missing_ok=True)


def restore_folder(target: Path, release: str, published_digest: str | None = None) -> None:
    """Unpack the zip file of a bundle whose folder is lost, if every file in the zip file matches its checksum.

    Otherwise, or if the folder ``target`` exists, do nothing. If ``published_digest`` is given, the certificate in the
    zip file must have this digest, too.
    """
    zip_file, prepared = locate_zip(target), target.with_name(f".{target.name}.staged")
    if target.exists() or not is_zip_sound(release, zip_file):
        return
    shutil.rmtree(prepared, ignore_errors=True)
    try:
        with ZipFile(zip_file) as archive:
            archive.extractall(prepared)
        folder = prepared / name_top_folder(release)
        certificate = find_json_object(folder / CERTIFICATE)
        if certificate is not None and published_digest in (None, compute_certificate_digest(certificate)):
            for path in (folder, *folder.rglob("*")):
                path.chmod(PUBLIC_FOLDER_MODE if path.is_dir() else PUBLIC_FILE_MODE)
                sync(path)
            folder.rename(target)
            sync(target.parent)
    finally:
        shutil.rmtree(prepared, ignore_errors=True)
