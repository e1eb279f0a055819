"""Describe a site and its releases for catalogues and machine-learning tools: DCAT, Croissant, feed and site map.

Relative addresses in JSON-LD are relative to the file, so a catalogue is valid at any address. If the address of the
site is known, the catalogue has absolute addresses, since some programs do not resolve relative ones.

In Croissant 1.0 of MLCommons, each release has a description of its own: its files never change, so neither do their
checksums, and the numbers of different revisions must not be mixed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from markupsafe import Markup

from od_core.publication.markup import element, joined
from od_core.published.site_releases import SiteDescription, SiteRelease, newest_revisions

_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "geo": "http://www.opengis.net/ont/geosparql#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
_MEDIA_TYPES = "https://www.iana.org/assignments/media-types/"

_EU = "http://publications.europa.eu/resource/authority/"
_SUBJECT: dict[str, Any] = {
    "dcat:keyword": ["origin-destination", "mobility", "trips", "differential privacy"],
    "dcat:theme": [{"@id": f"{_EU}data-theme/TRAN"}],
    "dct:accessRights": {"@id": f"{_EU}access-right/PUBLIC", "@type": "dct:RightsStatement"},
}
"""What every series and release is about, and who may read it, in the vocabularies that DCAT-AP names."""

_MOST_ENTRIES = 100
"""Largest number of releases in the feed."""


_PUBLISHER = "catalog.jsonld#publisher"


def catalogue(site: SiteDescription, by_series: Mapping[str, Sequence[SiteRelease]]) -> str:
    """Return the catalogue of all releases as JSON-LD, in the vocabulary DCAT 3.

    A series is a ``dcat:DatasetSeries``; each of its releases is a ``dcat:Dataset`` with one distribution a file. With
    a publisher, the catalogue has everything that DCAT-AP 3 requires.
    """
    publisher = {} if site.publisher is None else {"dct:publisher": {"@id": _PUBLISHER}}
    known = {**_SUBJECT, **publisher, **_contact(site)}
    series = [
        {
            "@id": f"{name}/index.html",
            "@type": ["dcat:Dataset", "dcat:DatasetSeries"],
            "dct:title": name,
            "dct:description": f"Releases of {releases[0].contents}, by period.",
            **known,
        }
        for name, releases in sorted(by_series.items())
    ]
    data_sets = [_data_set(release, known, site.licence) for _, own in sorted(by_series.items()) for release in own]
    described = _absolute(
        {
            "@context": _CONTEXT,
            "@id": "index.html",
            "@type": "dcat:Catalog",
            "dct:title": site.title,
            "dct:description": "Statistics of trips between areas, published with differential privacy.",
            **({} if not publisher else {"dct:publisher": _publisher(site)}),
            **_licence(site.licence),
            "dcat:dataset": [*series, *data_sets],
        },
        site.base,
    )
    return _json(described)


def _absolute(value: Any, base: str | None) -> Any:
    """Return a part of the catalogue whose every ``@id`` in the site begins with the site's address, if it is known."""
    if isinstance(value, list):
        return [_absolute(one, base) for one in value]
    if not isinstance(value, dict):
        return value
    own = base is not None and ":" not in value.get("@id", ":")
    return {name: f"{base}{part}" if own and name == "@id" else _absolute(part, base) for name, part in value.items()}


def _publisher(site: SiteDescription) -> dict[str, Any]:
    return {"@id": _PUBLISHER, "@type": "foaf:Agent", "foaf:name": site.publisher}


def _contact(site: SiteDescription) -> dict[str, Any]:
    if site.contact is None:
        return {}
    address = {"vcard:hasEmail": {"@id": f"mailto:{site.contact}"}}
    if not site.is_mail:
        address = {"vcard:hasURL": {"@id": site.contact}}
    return {"dcat:contactPoint": {"@type": "vcard:Kind", "vcard:fn": site.publisher or site.title, **address}}


def _licence(licence: str | None) -> dict[str, Any]:
    return {} if licence is None else {"dct:license": {"@id": licence, "@type": "dct:LicenseDocument"}}


def _spatial(release: SiteRelease) -> dict[str, Any]:
    """Return the rectangle around the zones of a release, if they have coordinates."""
    if (extent := release.extent) is None:
        return {}
    west, south, east, north = extent
    corners = ((west, south), (east, south), (east, north), (west, north), (west, south))
    polygon = ", ".join(f"{longitude} {latitude}" for longitude, latitude in corners)
    box = {"@type": "geo:wktLiteral", "@value": f"POLYGON(({polygon}))"}
    return {"dct:spatial": {"@type": "dct:Location", "dcat:bbox": box}}


def _data_set(release: SiteRelease, known: dict[str, Any], licence: str | None) -> dict[str, Any]:
    """Return a release as ``dcat:Dataset``, with what is ``known`` of all."""
    first, last = release.period.first, release.period.end - timedelta(days=1)
    return {
        "@id": f"{release.folder}/report.html",
        "@type": "dcat:Dataset",
        "dct:identifier": str(release.key),
        "dct:title": release.title,
        "dct:description": release.promise,
        **known,
        **_spatial(release),
        "dct:issued": _typed(release.certificate["measured_at"], "dateTime"),
        "dct:temporal": {
            "@type": "dct:PeriodOfTime",
            "dcat:startDate": _typed(first.isoformat(), "date"),
            "dcat:endDate": _typed(last.isoformat(), "date"),
        },
        "dcat:version": str(release.key.revision),
        "dcat:inSeries": {"@id": f"{release.key.release}/index.html"},
        "dcat:distribution": [_distribution(release, file) | _licence(licence) for file in release.files],
    }


def _distribution(release: SiteRelease, file: dict[str, Any]) -> dict[str, Any]:
    address = f"{release.folder}/{file['path']}"
    return {
        "@id": f"{address}#distribution",
        "@type": "dcat:Distribution",
        "dct:title": file["title"],
        "dcat:accessURL": {"@id": address},
        "dcat:downloadURL": {"@id": address},
        "dcat:mediaType": {"@id": _MEDIA_TYPES + file["mediatype"], "@type": "dct:MediaType"},
        "dcat:byteSize": {"@type": "xsd:nonNegativeInteger", "@value": str(file["bytes"])},
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256", "@type": "spdx:ChecksumAlgorithm"},
            "spdx:checksumValue": {"@type": "xsd:hexBinary", "@value": file["hash"].removeprefix("sha256:")},
        },
    }


def _typed(value: str, kind: str) -> dict[str, str]:
    return {"@type": f"xsd:{kind}", "@value": value}


def dataset_markup(site: SiteDescription, name: str, newest: Sequence[SiteRelease]) -> Markup:
    """Return the description of a series for search engines: a schema.org ``Dataset`` as JSON-LD in an element.

    Args:
        site: what the site says of itself.
        name: name of the series.
        newest: the last revision of each period, newest period first.
    """
    latest = newest[0]
    first = min(one.period.first for one in newest)
    last = max(one.period.end for one in newest) - timedelta(days=1)
    description = {
        "@context": "https://schema.org",
        "@type": "Dataset",
        "name": name,
        "description": f"Released {latest.contents} by period. {latest.promise}",
        "identifier": str(latest.key),
        "version": str(latest.key.revision),
        "dateModified": latest.certificate["measured_at"],
        "temporalCoverage": f"{first}/{last}",
        "measurementTechnique": "Counts with exact discrete noise, made consistent (differential privacy)",
        "isAccessibleForFree": True,
        **({} if site.publisher is None else {"creator": {"@type": "Organization", "name": site.publisher}}),
        **({} if site.licence is None else {"license": site.licence}),
        "distribution": [
            {
                "@type": "DataDownload",
                "name": str(one.key),
                "encodingFormat": "application/zip",
                "contentUrl": f"{one.key.period}/r{one.key.revision}.zip",
            }
            for one in newest
        ],
    }
    # In a script element, text ends at "</", and is not unescaped: no such sign may stand in it.
    text = json.dumps(description, ensure_ascii=True).replace("<", "\\u003c").replace(">", "\\u003e")
    return Markup(f'<script type="application/ld+json">{text}</script>')  # noqa: S704 - escaped above


def atom_feed(site: SiteDescription, base: str, releases: Sequence[SiteRelease]) -> str:
    """Return the feed of the last releases and revisions, newest measurement first, as Atom (RFC 4287).

    Args:
        site: what the site says of itself.
        base: address of the site, with a slash at its end.
        releases: all releases.
    """
    newest = sorted(releases, key=lambda one: (one.certificate["measured_at"], one.key), reverse=True)
    entries = [
        element(
            "entry",
            element("id", f"{base}{one.folder}/"),
            element("title", f"{one.key.release}: {one.key.period}, revision {one.key.revision}"),
            element("updated", one.certificate["measured_at"]),
            element("link", href=f"{base}{one.folder}/report.html"),
            element("summary", f"Released {one.contents} of {one.key.period}."),
        )
        for one in newest[:_MOST_ENTRIES]
    ]
    feed = element(
        "feed",
        element("id", base),
        element("title", site.title),
        element("updated", newest[0].certificate["measured_at"]),
        element("author", element("name", site.publisher or site.title)),
        element("link", rel="self", href=f"{base}feed.atom"),
        element("link", href=base),
        *entries,
        xmlns="http://www.w3.org/2005/Atom",
    )
    return f'<?xml version="1.0" encoding="utf-8"?>\n{feed}\n'


def sitemap(base: str, by_series: Mapping[str, Sequence[SiteRelease]]) -> str:
    """Return the site map: the first page, the page of each series and the reports of its newest revisions."""
    pages = ["index.html"]
    for name, releases in sorted(by_series.items()):
        pages.append(f"{name}/index.html")
        pages += [f"{one.folder}/report.html" for one in newest_revisions(releases)]
    listed = joined(*(element("url", element("loc", base + page)) for page in pages))
    whole = element("urlset", listed, xmlns="http://www.sitemaps.org/schemas/sitemap/0.9")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{whole}\n'


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


_CROISSANT_CONTEXT = {
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
        "@context": _CROISSANT_CONTEXT,
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
