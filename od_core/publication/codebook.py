"""Describe the files of a bundle: codebook, data package and citation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from od_core.files.durable import Written
from od_core.ledger.release_key import ReleaseKey
from od_core.privacy.accounting import promise_text
from od_core.publication.certificate import Certificate, certificate_digest
from od_core.publication.columns import Table
from od_core.publication.guarantee import promise
from od_core.publication.markup import in_markdown
from od_core.publication.tables import BundleFile

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


NOT_RELEASED = (
    "**Zero** is a released number like any other. **Missing** numbers do not occur. If a column may have no value,"
    " its description says so, and the field in the CSV file is empty. **Not released** is everything that no file"
    " contains: the true counts, and anything that the certificate does not name."
)


def codebook(contents: str, certificate: Certificate, files: Sequence[BundleFile], notes: Sequence[str]) -> str:
    """Return the text of ``codebook.md``: the meaning of every file and column, as Markdown.

    Args:
        contents: content of the release in words, such as ``flows``.
        certificate: certificate of the release.
        files: all files of the bundle.
        notes: further paragraphs, as Markdown.
    """
    tables = {file.table.name: file.table for file in files if file.table is not None}
    parts = [
        f"# Codebook of {certificate['release']}: {contents}",
        f"Data set {certificate['data_set']}, period {certificate['period']}, revision {certificate['revision']};"
        f" measured {certificate['measured_at']}.",
        *_geographies(certificate),
        "## What is protected",
        *(
            f"**{name.replace('_', ' ').capitalize()}.** {in_markdown(words)}"
            for name, words in certificate["guarantee"].items()
        ),
        "`certificate.json` contains all facts; `certificate.html` shows them as a page.",
        "## Files",
        _rows(("file", "content"), [(f"`{file.name}`", in_markdown(file.description)) for file in files]),
        "CSV files follow RFC 4180 and are encoded in UTF-8. Codes are text, even if they look like numbers or are the"
        " code NA, which some programs read as missing. Read them as text: in Python with"
        " `pandas.read_csv(file, dtype=str, keep_default_na=False)`, in R with"
        ' `readr::read_csv(file, col_types = cols(.default = "c"), na = character())`; then convert the columns of'
        " numbers. No code can run as a formula in a spreadsheet, because such codes are refused.",
        "## Zero, missing, not released",
        NOT_RELEASED,
        *(part for table in tables.values() for part in _table(table, [f.name for f in files if f.table is table])),
        *(["## Notes", *notes] if notes else []),
    ]
    return "\n\n".join(parts) + "\n"


def _geographies(certificate: Certificate) -> list[str]:
    """Return one line of Markdown per geography, with its digest and its version; empty if there is no geography."""
    versions: Mapping[str, Any] = certificate.get("geography_versions", {})
    sides: dict[str, str] = certificate.get("geographies", {})
    if len(set(sides.values())) == 1:
        sides = {"areas": next(iter(sides.values()))}
        versions = {"areas": next(iter(versions.values()), None)}
    return [
        f"Geography of the {side if side == 'areas' else f'{side}s'}: SHA-256 `{digest}`,"
        f" {'without a version' if versions.get(side) is None else f'version {in_markdown(versions[side])}'}."
        for side, digest in sides.items()
    ]


def _table(table: Table, files: Sequence[str]) -> list[str]:
    listed = [
        f"{' and '.join(f'`{name}`' for name in codes.columns)}: listed in `{codes.table}.csv`, columns"
        f" {', '.join(f'`{name}`' for name in codes.listed)}."
        for codes in table.code_lists
    ]
    columns = [
        (
            f"`{column.name}`",
            column.type,
            column.unit or "-",
            in_markdown(column.description)
            + ("" if column.minimum is None or column.type == "string" else f" At least {column.minimum}.")
            + ("" if column.required else " May be empty."),
        )
        for column in table.columns
    ]
    return [
        f"## {table.title}",
        f"{', '.join(f'`{name}`' for name in files)}. Each row is: {table.row[0].lower()}{table.row[1:]}",
        table.absent,
        f"The key of a row is {', '.join(f'`{name}`' for name in table.key)}.",
        *listed,
        _rows(("column", "type", "unit", "meaning"), columns),
    ]


def _rows(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with the given header and rows."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def readme(contents: str, certificate: Certificate, files: Sequence[BundleFile]) -> str:
    """Return the plain text of ``README.txt``, an overview of the files; the arguments are as in :func:`codebook`."""
    first = next(file.name for file in files if file.name.endswith(".csv"))
    shown = {
        "report.html": "the release in pictures and tables",
        **{file.name: "choose areas, and see their trips" for file in files if file.name == "atlas.html"},
        first: "the released numbers, as text",
        **{file.name: "the same as an Excel workbook" for file in files if file.name.endswith(".xlsx")},
        "codebook.md": "the meaning of every file and column; zero, missing and not released",
        "certificate.html": "what is protected, and what is not",
        "datapackage.json": "the same information for programs (Frictionless Data Package)",
    }
    width = max(map(len, shown)) + 2
    return (
        f"{certificate['release']}: {contents}, published with differential privacy\n\n"
        f"{promise(certificate['guarantee'])}\n\n"
        "Files\n"
        + "".join(f"  {name:<{width}}{words}\n" for name, words in shown.items())
        + "\nTo check that no file was damaged in transfer\n"
        f"  sha256sum -c {CHECKSUMS}\n\n"
        "To cite\n"
        f"  {citation(certificate)}\n"
    )


LICENCE = {"name": "notspecified", "title": "Not stated here; ask the publisher of the release"}
"""Entry for an unstated licence, with the name from the Open Definition's list of licences."""

_MEDIA = {
    ".csv": "text/csv",
    ".parquet": "application/vnd.apache.parquet",
    ".omx": "application/x-hdf5",
    ".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    ".json": "application/json",
    ".geojson": "application/geo+json",
    ".gpkg": "application/geopackage+sqlite3",
    ".html": "text/html",
    ".md": "text/markdown",
    ".txt": "text/plain",
    ".xml": "application/xml",
}


def datapackage(
    contents: str, certificate: Certificate, files: Sequence[BundleFile], written: Mapping[str, Written]
) -> dict[str, Any]:
    """Return the Data Package descriptor of a bundle; ``written`` has the size and digest of each file, by name."""
    return {
        "profile": "data-package",
        "name": certificate["release"].replace("/", "-").lower(),
        "id": certificate["release"],
        "title": f"{certificate['data_set']}: {contents} of {certificate['period']}",
        "description": in_markdown(promise(certificate["guarantee"])),
        "version": str(certificate["revision"]),
        "created": certificate["measured_at"],
        "licenses": [LICENCE],
        "resources": [_resource(file, written[file.name]) for file in files],
    }


def _resource(file: BundleFile, written: Written) -> dict[str, Any]:
    """Return the descriptor of a file: a tabular resource for CSV tables, a plain resource for other files."""
    suffix = PurePath(file.name).suffix
    tabular = file.table is not None and suffix == ".csv"
    facts: dict[str, Any] = {
        "name": PurePath(file.name).stem.lower() if tabular else file.name.lower(),
        "path": file.name,
        "title": file.description,
        "type": "table" if tabular else "file",
        "format": suffix[1:],
        "mediatype": _MEDIA[suffix],
        "bytes": written.size,
        "hash": f"sha256:{written.digest}",
    }
    if tabular:
        facts |= {"scheme": "file", "profile": "tabular-data-resource", "encoding": "utf-8"}
    if file.table is not None:
        facts |= {"description": f"Each row is: {file.table.row} {file.table.absent}", "schema": _schema(file.table)}
    return facts


def _schema(table: Table) -> dict[str, Any]:
    return {
        "fields": [
            {
                "name": column.name,
                "type": column.type,
                "title": column.title,
                "description": in_markdown(column.description),
                **({} if column.unit is None else {"unit": column.unit}),
                "constraints": {
                    "required": column.required,
                    **({} if column.minimum is None else {"minimum": column.minimum}),
                },
            }
            for column in table.columns
        ],
        "missingValues": [""],
        "primaryKey": list(table.key),
        "foreignKeys": [
            {"fields": list(codes.columns), "reference": {"resource": codes.table, "fields": list(codes.listed)}}
            for codes in table.code_lists
        ],
    }
