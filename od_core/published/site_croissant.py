"""Describe a published release for machine-learning tools, in the format Croissant 1.0 of MLCommons.

Each release has a description of its own: its files never change, so neither do their checksums, and the numbers of
different revisions must not be mixed.
"""

from __future__ import annotations

import json
from typing import Any

from od_core.published.site_description import SiteDescription
from od_core.published.site_releases import SiteRelease

_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
"""The context that the specification prescribes, word for word."""

_TYPES = {"string": "sc:Text", "integer": "sc:Integer", "number": "sc:Float"}

_PARQUET = "application/vnd.apache.parquet"
_NAMED_OTHERWISE = {_PARQUET: "application/x-parquet"}
"""Media types of data packages, and the names that Croissant has for them."""


def croissant(site: SiteDescription, release: SiteRelease) -> str:
    """Return the description of a release as JSON-LD, with all files of its bundle and the records of its tables.

    The records are those of the Parquet files. Readers of CSV files guess the types of columns, and would take codes
    such as 007 for numbers.
    """
    return json.dumps(_description(site, release), indent=1, ensure_ascii=False) + "\n"


def _description(site: SiteDescription, release: SiteRelease) -> dict[str, Any]:
    within = release.folder.rpartition("/")[0] + "/"
    published = {} if site.publisher is None else {"@type": "Organization", "name": site.publisher}
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": release.title,
        "description": release.promise,
        "url": site.address(f"{release.folder}/report.html", within=within),
        "version": str(release.key.revision),
        "datePublished": release.certificate["measured_at"],
        "citeAs": release.citation(site),
        **({"creator": published, "publisher": published} if published else {}),
        **({} if site.licence is None else {"license": site.licence}),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file["path"],
                "name": file["path"],
                "description": file["title"],
                "contentUrl": site.address(f"{release.folder}/{file['path']}", within=within),
                "contentSize": f"{file['bytes']} B",
                "encodingFormat": _NAMED_OTHERWISE.get(file["mediatype"], file["mediatype"]),
                "sha256": file["hash"].removeprefix("sha256:"),
            }
            for file in release.files
        ],
        "recordSet": [_records(file) for file in release.files if file["mediatype"] == _PARQUET and "schema" in file],
    }


def _records(file: dict[str, Any]) -> dict[str, Any]:
    """Return the records of a table; their name is that of its file without the ending."""
    name = file["path"].partition(".")[0]
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "description": file["description"],
        "key": [{"@id": f"{name}/{column}"} for column in file["schema"]["primaryKey"]],
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column['name']}",
                "name": column["name"],
                "description": column["description"],
                "dataType": _TYPES[column["type"]],
                "source": {"fileObject": {"@id": file["path"]}, "extract": {"column": column["name"]}},
            }
            for column in file["schema"]["fields"]
        ],
    }
