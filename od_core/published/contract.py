"""Describe a published release as a data contract, for data catalogues.

The contract follows the Open Data Contract Standard (ODCS), version 3.1.0. Everything in it is read from the data
package and the certificate of a bundle, so it can be made for any bundle, whichever version of the software wrote it.
"""

from __future__ import annotations

import json
from pathlib import Path, PurePath
from typing import Any

from od_core.publication.bundle import PACKAGE
from od_core.publication.read_back import certificate_of, incomplete, named, refuse_incomplete
from od_core.published.opening import bundle_folder

ODCS_VERSION = "v3.1.0"
"""Version of the standard that contracts follow."""


def data_contract(bundle: str | Path) -> dict[str, Any]:
    """Return the data contract of a bundle, which is a folder or a .zip file, as a JSON-ready dictionary.

    The contract is that of the series: its id stays the same in every period, and its version names the period and the
    revision. Its server is the folder of the bundle, since a bundle does not say where it is published: the CSV file of
    each table is named after the table.

    Raises:
        OdError: the bundle does not exist, or its certificate or data package cannot be read.
    """
    with bundle_folder(Path(bundle)) as folder:
        certificate = certificate_of(folder)
        try:
            package: dict[str, Any] = json.loads((folder / PACKAGE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise incomplete(folder, f"it lacks a {PACKAGE} that can be read") from None
        with refuse_incomplete(named(folder)):
            return _contract(certificate, package)


def _contract(certificate: dict[str, Any], package: dict[str, Any]) -> dict[str, Any]:
    series, period, revision = str(certificate["release"]).split("/")
    guarantee = certificate["guarantee"]
    return {
        "apiVersion": ODCS_VERSION,
        "kind": "DataContract",
        "id": series,
        "name": package["title"],
        "version": f"{period}-{revision}",
        "status": "active",
        "dataProduct": series,
        "description": {
            "purpose": package["description"],
            "limitations": " ".join(certificate["known_limitations"]),
        },
        "contractCreatedTs": package["created"],
        "servers": [{"server": "bundle", "type": "local", "path": "{model}.csv", "format": "csv"}],
        "schema": _tables(package["resources"]),
        "customProperties": [
            {"property": "dataSet", "value": certificate["data_set"]},
            *({"property": f"guarantee_{name}", "value": sentence} for name, sentence in guarantee.items()),
        ],
    }


def _tables(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an object per table. Of a table that is in several files, the first one is named: the CSV file."""
    files: dict[str, dict[str, Any]] = {}
    for resource in resources:
        if "schema" in resource:
            files.setdefault(PurePath(resource["path"]).stem, resource)
    return [_table(name, resource) for name, resource in files.items()]


def _table(name: str, resource: dict[str, Any]) -> dict[str, Any]:
    schema = resource["schema"]
    return {
        "name": name,
        "physicalName": resource["path"],
        "physicalType": "file",
        "logicalType": "object",
        "businessName": resource["title"],
        "description": resource["description"],
        "properties": [_property(field, schema["primaryKey"]) for field in schema["fields"]],
        "relationships": [
            {
                "type": "foreignKey",
                "from": [f"{name}.{column}" for column in keys["fields"]],
                "to": [f"{keys['reference']['resource']}.{column}" for column in keys["reference"]["fields"]],
            }
            for keys in schema["foreignKeys"]
        ],
    }


def _property(field: dict[str, Any], key: list[str]) -> dict[str, Any]:
    name, constraints = field["name"], field["constraints"]
    options = {"minimum": constraints["minimum"]} if "minimum" in constraints else {}
    return {
        "name": name,
        "businessName": field["title"],
        "description": field["description"],
        "logicalType": field["type"],
        **({"logicalTypeOptions": options} if options else {}),
        "required": constraints["required"],
        **({"primaryKey": True, "primaryKeyPosition": key.index(name) + 1} if name in key else {}),
        **({"customProperties": [{"property": "unit", "value": field["unit"]}]} if "unit" in field else {}),
    }
