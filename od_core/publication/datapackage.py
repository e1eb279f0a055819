"""Describe the bundle as a Frictionless Data Package: every file with its checksum, every column with its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from od_core.files.checked_file import Written
from od_core.publication.certificate import promise
from od_core.publication.columns import Table
from od_core.publication.markdown import in_markdown
from od_core.publication.tables import BundleFile

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
    contents: str, certificate: dict[str, Any], files: Sequence[BundleFile], written: Mapping[str, Written]
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
