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
from od_core.publication.templates import filled_data
from od_core.published.opening import bundle_folder

ODCS_VERSION = "v3.1.0"
"""Version of the standard that contracts follow."""


def data_contract(bundle: str | Path) -> dict[str, Any]:
    """Return the data contract of a bundle, which is a folder or a .zip file, as a JSON-ready dictionary.

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
            tables: dict[str, dict[str, Any]] = {}
            for resource in package["resources"]:
                if "schema" in resource:  # of a table in several files, it is that of the CSV file
                    tables.setdefault(PurePath(resource["path"]).stem, resource)
            given = {"certificate": certificate, "package": package, "tables": tables}
            contract: dict[str, Any] = filled_data("contract.json", version=ODCS_VERSION, **given)
            return contract
